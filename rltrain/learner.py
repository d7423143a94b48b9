"""Scored groups to weight updates: advantages, mini-batches, micro-batches, the loss.

Owns the denominators: N is the sampled tokens of all rows of an optimiser step, those of all ranks,
and fixed before any micro-batch is cut. Every rank is given the rows of all and works on its share
of each micro-batch, so that which rows make an optimiser step does not depend on the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from attrs import frozen

from .advantage import group_advantages
from .batch import (
    MICRO_BATCH_TOKENS,
    PACKED_TOKENS,
    Batch,
    TrainingRow,
    make_batch,
    micro_batches,
    mini_batches,
)
from .engine import Engine
from .errors import RunStopped
from .loss import RatioStats, kl_penalty, make_loss, ratio_stats
from .manifest import Algorithm
from .policy import Policy
from .ranks import Ranks
from .rollout import Group
from .seeds import fixed_hash

__all__ = ["Learner", "Update", "training_rows"]


def training_rows(groups: Sequence[Group], *, norm: str) -> list[TrainingRow]:
    """Return the rollouts that carry signal, with their advantages, in their order."""
    return [
        TrainingRow(rollout.transcript, advantage)
        for group in groups
        for rollout, advantage in zip(
            group.rollouts, group_advantages(group.rewards, norm=norm), strict=True
        )
        if advantage is not None and rollout.transcript.sampled_tokens
    ]


@frozen(kw_only=True, eq=False)
class Update:
    """What one training step did to the weights.

    `fresh` are the ratio's sums over the first optimiser step, where π and μ should be equal;
    `ratio` those over all optimiser steps. Norms and losses are means over optimiser steps.
    """

    optimiser_steps: int
    trained_tokens: int
    loss: float
    grad_norm: float
    entropy: float
    fresh: RatioStats
    ratio: RatioStats


class Learner:
    """Improves a policy on groups of rollouts.

    Args:
        policy: What is trained.
        engine: The optimiser.
        algorithm: The loss and its settings.
        ranks: The processes that share the work.
    """

    def __init__(self, policy: Policy, engine: Engine, algorithm: Algorithm, ranks: Ranks) -> None:
        self._ranks = ranks
        self._policy = policy
        self._engine = engine
        self._algorithm = algorithm
        self._loss = make_loss(
            algorithm.name,
            importance_cap=algorithm.importance_cap,
            clip_range=algorithm.clip_range,
        )

    def update(self, rows: Sequence[TrainingRow], *, step: int, lr: float) -> Update | None:
        """Take the optimiser steps of one training step; None where no row carries signal.

        Args:
            rows: The rows of all ranks, in the same order on each.
            step: The training step; with the seed it decides every random number.
            lr: The learning rate.

        Raises:
            RunStopped: A loss or gradient is not finite; the weights are those before it.
        """
        if not rows:
            return None
        parts: list[_OptimiserStep] = []
        for epoch in range(self._algorithm.update_epochs):
            seed = fixed_hash("order", self._algorithm.seed, step, epoch)
            for part in mini_batches(rows, size=self._algorithm.mini_batch_size, seed=seed):
                # What is random here, LoRA dropout, depends on run, step and part alone.
                torch.manual_seed(fixed_hash("dropout", self._algorithm.seed, step, len(parts)))
                parts.append(self._optimiser_step(part, lr))
        ratio = sum((part.ratio for part in parts[1:]), start=parts[0].ratio)
        return Update(
            optimiser_steps=len(parts),
            trained_tokens=ratio.tokens,
            loss=sum(part.loss for part in parts) / len(parts),
            grad_norm=sum(part.grad_norm for part in parts) / len(parts),
            entropy=sum(part.entropy for part in parts) / ratio.tokens,
            fresh=parts[0].ratio,
            ratio=ratio,
        )

    def _optimiser_step(self, rows: Sequence[TrainingRow], lr: float) -> _OptimiserStep:
        algorithm = self._algorithm
        token_count = sum(row.transcript.sampled_tokens for row in rows)
        stats = RatioStats.zero()
        loss_sum = entropy_sum = 0.0
        parts = list(
            micro_batches(
                rows,
                max_rows=algorithm.micro_batch_size_per_gpu,
                max_tokens=PACKED_TOKENS if algorithm.packing else MICRO_BATCH_TOKENS,
                packed=algorithm.packing,
                ranks=self._ranks.world_size,
            )
        )
        for part in parts:
            is_last = part is parts[-1]
            own = part[self._ranks.rank :: self._ranks.world_size]
            if not own:
                self._backward_nothing(part[:1], is_last=is_last)
                continue
            loss, entropy, part_stats = self._backward(own, token_count, is_last=is_last)
            loss_sum, entropy_sum, stats = (
                loss_sum + loss,
                entropy_sum + entropy,
                stats + part_stats,
            )
        loss_sum, entropy_sum, *sums = self._ranks.total([loss_sum, entropy_sum, *stats.sums()])
        if not math.isfinite(loss_sum):
            raise RunStopped(f"the loss is {loss_sum}: no weight was changed")
        return _OptimiserStep(
            loss=loss_sum,
            grad_norm=self._engine.step(lr),
            entropy=entropy_sum,
            ratio=RatioStats.of(sums),
        )

    def _backward_nothing(self, rows: Sequence[TrainingRow], *, is_last: bool) -> None:
        """Take part in a micro-batch that has no row for this rank.

        The gradients are summed while they are made, in the order in which they are made: so this
        rank makes the same ones as the others, of a row that is theirs, times zero.
        """
        batch = self._batch(rows)
        current = self._policy.token_logprobs(batch, temperature=self._algorithm.temperature)
        self._engine.backward(current.logprobs.sum() * 0.0, is_last=is_last)

    def _backward(
        self, rows: Sequence[TrainingRow], token_count: int, *, is_last: bool
    ) -> tuple[float, float, RatioStats]:
        algorithm = self._algorithm
        batch = self._batch(rows)
        current = self._policy.token_logprobs(batch, temperature=algorithm.temperature)
        policy, behaviour, mask = current.logprobs, batch.behaviour_logprobs, batch.action_mask
        loss = self._loss(policy, behaviour, mask, batch.advantages, token_count)
        if algorithm.beta:
            reference = self._policy.reference_logprobs(batch, temperature=algorithm.temperature)
            loss = loss + algorithm.beta * kl_penalty(policy, reference, mask, token_count)
        self._engine.backward(loss, is_last=is_last)
        stats = ratio_stats(policy, behaviour, mask, cap=algorithm.importance_cap)
        return loss.item(), current.entropy.sum().item(), stats

    def _batch(self, rows: Sequence[TrainingRow]) -> Batch:
        batch = make_batch(rows, pad_id=self._policy.pad_id, packed=self._algorithm.packing)
        return batch.to(self._policy.device)


@frozen(kw_only=True, eq=False)
class _OptimiserStep:
    """One optimiser step: the loss, the gradient's norm, summed entropy, the ratio's sums."""

    loss: float
    grad_norm: float
    entropy: float
    ratio: RatioStats
