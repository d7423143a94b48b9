"""The optimiser and the ranks: backward, clip, step.

Owns AdamW, the learning rate's schedule and the sums over ranks, behind one class, so that the
loop does not know how many processes there are. This is the plain torch engine with one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .errors import RunStopped
from .manifest import ScheduleConfig

__all__ = ["Engine", "learning_rate"]


def learning_rate(peak: float, schedule: ScheduleConfig | None, progress: float) -> float:
    """Return the learning rate at a share of the run, between 0 and 1.

    Without a schedule it is constant; with one it rises linearly over the warm-up and falls along
    a half cosine to `min_lr`.
    """
    if schedule is None:
        return peak
    if progress < schedule.warmup_proportion:
        return peak * progress / schedule.warmup_proportion
    rest = (progress - schedule.warmup_proportion) / max(1 - schedule.warmup_proportion, 1e-9)
    cosine = 0.5 * (1 + math.cos(math.pi * min(rest, 1.0)))
    return schedule.min_lr + (peak - schedule.min_lr) * cosine


class Engine:
    """AdamW over the adapter's weights, in one process.

    Args:
        parameters: What is trained.
        max_grad_norm: The gradient's Euclidean norm is scaled down to this.
    """

    rank = 0
    world_size = 1

    def __init__(self, parameters: Sequence[nn.Parameter], *, max_grad_norm: float) -> None:
        self._parameters = list(parameters)
        self._max_grad_norm = max_grad_norm
        self._optimiser = torch.optim.AdamW(self._parameters, lr=0.0, weight_decay=0.0)

    def backward(self, loss: Tensor) -> None:
        """Add a micro-batch's gradient."""
        torch.autograd.backward(loss)

    def step(self, lr: float) -> float:
        """Take one optimiser step and forget the gradient; return its norm before clipping.

        Raises:
            RunStopped: The gradient is not finite; no weight has changed.
        """
        norm = float(nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm))
        if not math.isfinite(norm):
            self._optimiser.zero_grad()
            raise RunStopped(f"the gradient's norm is {norm}: no weight was changed")
        for group in self._optimiser.param_groups:
            group["lr"] = lr
        self._optimiser.step()
        self._optimiser.zero_grad()
        return norm

    def total(self, values: Sequence[float]) -> list[float]:
        """Return the values summed over all ranks."""
        return list(values)

    def state_dict(self) -> dict[str, Any]:
        """Return the optimiser's state."""
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over the state that `state_dict` gave."""
        self._optimiser.load_state_dict(state)
