"""The loop: collect, learn, log, evaluate, save. Readable top to bottom."""

from __future__ import annotations

import time
from pathlib import Path

from attrs import evolve, frozen

from .checkpoint import Checkpoints, RunState
from .engine import Engine, learning_rate
from .errors import RunStopped
from .guards import check_policy_gap, hint
from .interrupts import StopRequest
from .learner import Learner, training_rows
from .manifest import Manifest
from .metrics import RunLog, StepRecord
from .policy import Policy
from .progress import Display
from .ranks import Ranks
from .records import StepTimes, evaluation_record, groups_of, step_record
from .report import write_page
from .rounds import Rounds

__all__ = ["Trainer"]

_SAMPLES = 8
"""Rollouts of each round that are kept as text."""


@frozen(kw_only=True, eq=False)
class Trainer:
    """A run with all its parts; `train` is the loop.

    `policy_gap_limit` is None where it is not enforced; `folder` takes the trained adapter.
    """

    manifest: Manifest
    policy: Policy
    policy_gap_limit: float | None
    engine: Engine
    learner: Learner
    rounds: Rounds
    checkpoints: Checkpoints
    log: RunLog
    display: Display
    stop: StopRequest
    ranks: Ranks
    folder: Path

    def train(self, state: RunState) -> RunState:
        """Train from a state to the run's end, or to where it is asked to stop.

        Raises:
            RunStopped: It cannot go on; the newest checkpoint is of the last good step.
        """
        training = self.manifest.training
        give_up_at = time.monotonic() + (training.max_wall_seconds or float("inf"))
        records: list[StepRecord] = []
        if state.evaluated_step is None:
            state = self._evaluate(state)
        while not self.ranks.any(self._is_over(state) or time.monotonic() >= give_up_at):
            state, record = self._step(state)
            records.append(record)
            self.display.step(record)
            if advice := hint(records):
                self.display.line(f"hint: {advice}")
            if state.step % training.evaluation_interval == 0:
                state = self._evaluate(state)
            is_due = training.checkpoint_steps and state.step % training.checkpoint_steps == 0
            if is_due or state.best_step == state.step:
                self._save(state)
        if state.evaluated_step != state.step and not self.ranks.any(self.stop.is_requested):
            state = self._evaluate(state)
        self._save(state)
        return state

    def _step(self, state: RunState) -> tuple[RunState, StepRecord]:
        """Take one training step: one batch of rollouts, whatever the optimiser steps in it."""
        began = time.monotonic()
        algorithm, share_done = self.manifest.algorithm, self._share_done(state)
        self.display.phase("sampling")
        try:
            collected = self.rounds.training(state.step)
        except RunStopped:
            self._save(state)
            raise

        self.display.phase("training")
        learn_began = time.monotonic()
        groups = groups_of(collected.rollouts)
        rows = training_rows(groups, norm=algorithm.adv_norm)
        lr = learning_rate(algorithm.lr, algorithm.cosine_lr_schedule_config, share_done)
        try:
            update = self.learner.update(rows, step=state.step, lr=lr)
        except RunStopped:
            self.log.failed_batch(rows)
            raise
        learn_ended = time.monotonic()

        turns = sum(max(1, len(rollout.turns)) for rollout in collected.rollouts)
        state = evolve(state, step=state.step + 1, turns=state.turns + turns)
        record = step_record(
            step=state.step,
            turns=state.turns,
            collected=collected,
            groups=groups,
            update=update,
            lr=lr,
            times=StepTimes(began=began, learn_began=learn_began, learn_ended=learn_ended),
            max_reward=self.manifest.environment.max_reward,
        )
        self.log.step(record)
        sample = [group.rollouts[0] for group in groups[:_SAMPLES]]
        self.log.samples(state.step, sample, is_evaluation=False)
        if record.policy_gap is not None and self.policy_gap_limit is not None:
            check_policy_gap(record.policy_gap, limit=self.policy_gap_limit)
        return state, record

    def _evaluate(self, state: RunState) -> RunState:
        """Play the held-out episodes; return the state with the best score so far."""
        began = time.monotonic()
        self.display.phase("evaluating", in_log=True)
        rollouts = self.rounds.evaluation().rollouts
        record = evaluation_record(
            step=state.step,
            rollouts=rollouts,
            max_reward=self.manifest.environment.max_reward,
            seconds=time.monotonic() - began,
        )
        self.log.evaluation(record)
        self.log.samples(state.step, rollouts[:_SAMPLES], is_evaluation=True)
        self.display.evaluation(record)
        if self.ranks.is_leader:
            write_page(self.folder)
        return state.evaluated(record.reward_mean)

    def _save(self, state: RunState) -> None:
        self.checkpoints.save(state, self.policy, self.engine)

    def _share_done(self, state: RunState) -> float:
        return state.turns / self.manifest.training.max_steps

    def _is_over(self, state: RunState) -> bool:
        """Whether the turns are used up, the target is reached, or the user wants to stop."""
        target, best = self.manifest.training.target_score, state.best_score
        is_reached = target is not None and best is not None and best >= target
        return self._share_done(state) >= 1 or is_reached or self.stop.is_requested
