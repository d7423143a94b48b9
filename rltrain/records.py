"""A step's parts to its records: the one place that divides sums by counts."""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence

import torch
from attrs import frozen

from .collect import Collected
from .learner import Update
from .metrics import EvaluationRecord, RolloutSummary, StepRecord
from .rollout import Group, Rollout

__all__ = ["StepTimes", "evaluation_record", "groups_of", "step_record"]


@frozen(kw_only=True)
class StepTimes:
    """When a step began, and when it began and ended to learn, on the monotonic clock."""

    began: float
    learn_began: float
    learn_ended: float


def groups_of(rollouts: Sequence[Rollout]) -> list[Group]:
    """Return rollouts in their groups, in order."""
    members: dict[int, list[Rollout]] = {}
    for rollout in rollouts:
        members.setdefault(rollout.episode.group, []).append(rollout)
    return [Group(index, tuple(members[index])) for index in sorted(members)]


def step_record(
    *,
    step: int,
    turns: int,
    collected: Collected,
    groups: Sequence[Group],
    update: Update | None,
    lr: float,
    times: StepTimes,
    max_reward: float | None,
) -> StepRecord:
    """Return the record of one training step."""
    summary = RolloutSummary.of(collected.rollouts, max_reward=max_reward)
    tokens = update.trained_tokens if update else 0
    train_seconds = times.learn_ended - times.learn_began
    return StepRecord(
        step=step,
        turns=turns,
        reward_mean=summary.reward_mean,
        reward_std=summary.reward_std,
        reward_min=summary.reward_min,
        reward_max=summary.reward_max,
        solved=summary.solved,
        episodes=summary.episodes,
        unscored=summary.unscored,
        groups_without_signal=sum(not _has_signal(group) for group in groups),
        completion_tokens=summary.completion_tokens,
        cut_share=summary.cut_share,
        optimiser_steps=update.optimiser_steps if update else 0,
        loss=update.loss if update else None,
        entropy=update.entropy if update else None,
        policy_gap=update.fresh.absolute / update.fresh.tokens if update else None,
        kl_behaviour_policy=update.ratio.kl / tokens if update else None,
        capped_share=update.ratio.capped / tokens if update else None,
        effective_sample_size=update.ratio.effective_sample_size if update else None,
        grad_norm=update.grad_norm if update else None,
        lr=lr,
        generated_tokens=collected.sampled_tokens,
        trained_tokens=tokens,
        generated_tokens_per_second=_rate(collected.sampled_tokens, collected.generate_seconds),
        trained_tokens_per_second=_rate(tokens, train_seconds),
        generate_seconds=collected.generate_seconds,
        score_seconds=collected.score_seconds,
        train_seconds=train_seconds,
        sync_seconds=collected.handover.seconds,
        step_seconds=time.monotonic() - times.began,
        peak_memory_bytes=peak_memory_bytes(),
        memory_bytes=collected.handover.memory_bytes,
        verdicts=summary.verdicts,
        failures=summary.failures,
    )


def evaluation_record(
    *, step: int, rollouts: Sequence[Rollout], max_reward: float | None, seconds: float
) -> EvaluationRecord:
    """Return the record of one evaluation."""
    summary = RolloutSummary.of(rollouts, max_reward=max_reward)
    return EvaluationRecord(
        step=step,
        episodes=summary.episodes,
        unscored=summary.unscored,
        reward_mean=summary.reward_mean,
        reward_std=summary.reward_std,
        solved=summary.solved,
        completion_tokens=summary.completion_tokens,
        cut_share=summary.cut_share,
        verdicts=summary.verdicts,
        failures=summary.failures,
        seconds=seconds,
    )


def peak_memory_bytes() -> int:
    """Return the most memory held so far: of the GPU where there is one, else of the process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds > 0 else None


def _has_signal(group: Group) -> bool:
    scored = [reward for reward in group.rewards if reward is not None]
    return bool(scored) and min(scored) != max(scored)
