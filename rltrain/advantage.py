"""Rewards to advantages, within one group. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

__all__ = ["group_advantages"]


def group_advantages(
    rewards: Sequence[float | None], *, norm: str = "mean_only"
) -> list[float | None]:
    """Return each member's advantage: its reward minus the mean of the scored members.

    Args:
        rewards: One a member; None where it was not scored.
        norm: `mean_only` (Dr. GRPO, arXiv 2503.20783), or `mean_std`: divided by the population
            standard deviation as well.

    Returns:
        One a member; None for those not scored, and for all of a group without signal, in which
        the scored rewards are all equal: it would only add zeros to the gradient.
    """
    scored = [reward for reward in rewards if reward is not None]
    if not scored or max(scored) == min(scored):
        return [None] * len(rewards)
    mean = sum(scored) / len(scored)
    scale = 1.0
    if norm == "mean_std":
        scale = sqrt(sum((reward - mean) ** 2 for reward in scored) / len(scored))
    return [None if reward is None else (reward - mean) / scale for reward in rewards]
