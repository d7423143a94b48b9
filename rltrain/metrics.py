"""What a run tells of itself: one record a training step, one an evaluation, sampled answers.

Owns the records' fields (documented in docs/training.md) and their files: `metrics.jsonl`,
`evaluations.jsonl`, `samples.jsonl`. Other places are `boards`, drawing is `report`'s work.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from types import TracebackType
from typing import Any, Self, TextIO

from attrs import asdict, frozen

from .boards import Board
from .rollout import Rollout

__all__ = [
    "EvaluationRecord",
    "RolloutSummary",
    "RunLog",
    "StepRecord",
    "read_records",
    "reward_spread",
]


@frozen(kw_only=True)
class RolloutSummary:
    """Facts about a set of rollouts; means are over scored ones, None where there are none."""

    episodes: int
    unscored: int
    reward_mean: float | None
    reward_std: float | None
    reward_min: float | None
    reward_max: float | None
    solved: float | None
    completion_tokens: float | None
    cut_share: float | None
    verdicts: Mapping[str, int]
    failures: Mapping[str, int]

    @classmethod
    def of(cls, rollouts: Sequence[Rollout], *, max_reward: float | None) -> RolloutSummary:
        """Return the summary; `solved` is the share with at least `max_reward` (None: above 0)."""
        scored = [rollout for rollout in rollouts if rollout.reward is not None]
        rewards = [rollout.reward for rollout in scored if rollout.reward is not None]
        solved = [r >= max_reward if max_reward is not None else r > 0 for r in rewards]
        lengths = [rollout.transcript.sampled_tokens for rollout in scored]
        failed = [rollout for rollout in rollouts if rollout.reward is None]
        return cls(
            episodes=len(rollouts),
            unscored=len(failed),
            reward_mean=fmean(rewards) if rewards else None,
            reward_std=pstdev(rewards) if rewards else None,
            reward_min=min(rewards, default=None),
            reward_max=max(rewards, default=None),
            solved=fmean(solved) if solved else None,
            completion_tokens=fmean(lengths) if lengths else None,
            cut_share=fmean(rollout.is_cut for rollout in scored) if scored else None,
            verdicts=Counter(r.verdict for r in scored if r.verdict),
            failures=Counter(_kind(rollout.failure) for rollout in failed),
        )


def _kind(failure: str) -> str:
    """Return what stands before the colon: the failures of one kind differ in their details."""
    return failure.partition(":")[0][:80]


@frozen(kw_only=True)
class StepRecord:
    """One training step. Fields that need a sampled or trained token are None without one."""

    step: int
    turns: int
    reward_mean: float | None
    reward_std: float | None
    reward_min: float | None
    reward_max: float | None
    solved: float | None
    episodes: int
    unscored: int
    groups_without_signal: int
    completion_tokens: float | None
    cut_share: float | None
    optimiser_steps: int
    loss: float | None
    entropy: float | None
    policy_gap: float | None
    kl_behaviour_policy: float | None
    capped_share: float | None
    effective_sample_size: float | None
    grad_norm: float | None
    lr: float
    generated_tokens: int
    trained_tokens: int
    generated_tokens_per_second: float | None
    trained_tokens_per_second: float | None
    generate_seconds: float
    score_seconds: float
    train_seconds: float
    sync_seconds: float
    step_seconds: float
    peak_memory_bytes: int
    memory_bytes: Mapping[str, int]
    verdicts: Mapping[str, int]
    failures: Mapping[str, int]


@frozen(kw_only=True)
class EvaluationRecord:
    """One evaluation, after `step` training steps."""

    step: int
    episodes: int
    unscored: int
    reward_mean: float | None
    reward_std: float | None
    solved: float | None
    completion_tokens: float | None
    cut_share: float | None
    verdicts: Mapping[str, int]
    failures: Mapping[str, int]
    seconds: float


class RunLog:
    """The files of a run's folder that grow while it runs.

    Every line is flushed, so that what was logged survives a kill. On resume, lines after the
    checkpoint's step are dropped: each step stands in the files once.

    Args:
        folder: The run's folder; it exists. None where another rank writes: nothing is kept.
        resumed_step: Steps that count as done; later lines are dropped.
        boards: Where the numbers go too; they close with the log.
    """

    def __init__(
        self, folder: Path | None, *, resumed_step: int = 0, boards: Sequence[Board] = ()
    ) -> None:
        self._folder = folder
        self._metrics = _open(folder, "metrics.jsonl", resumed_step)
        self._evaluations = _open(folder, "evaluations.jsonl", resumed_step)
        self._samples = _open(folder, "samples.jsonl", resumed_step)
        self._boards = boards

    def step(self, record: StepRecord) -> None:
        """Log a training step."""
        self._write(self._metrics, asdict(record))
        self._scalars("train", record.step, asdict(record))

    def evaluation(self, record: EvaluationRecord) -> None:
        """Log an evaluation."""
        self._write(self._evaluations, asdict(record))
        self._scalars("evaluation", record.step, asdict(record))

    def samples(self, step: int, rollouts: Iterable[Rollout], *, is_evaluation: bool) -> None:
        """Log rollouts as text: prompt, answers, verdicts, reward."""
        for rollout in rollouts:
            self._write(
                self._samples,
                {
                    "step": step,
                    "is_evaluation": is_evaluation,
                    "problem": rollout.problem,
                    "prompt": rollout.prompt,
                    "turns": [asdict(turn) for turn in rollout.turns],
                    "reward": rollout.reward,
                    "failure": rollout.failure,
                },
            )

    def failed_batch(self, rows: Iterable[Any]) -> None:
        """Keep the rows of an update that failed, to look into."""
        if self._folder is None:
            return
        with (self._folder / "failed-batch.jsonl").open("w") as file:
            for row in rows:
                self._write(file, asdict(row))

    def close(self) -> None:
        """Close the files."""
        for file in (self._metrics, self._evaluations, self._samples):
            file.close()
        for board in self._boards:
            board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, file: TextIO, values: Mapping[str, Any]) -> None:
        file.write(json.dumps(values) + "\n")
        file.flush()

    def _scalars(self, prefix: str, step: int, values: Mapping[str, Any]) -> None:
        numbers = {
            f"{prefix}/{name}": value
            for name, value in values.items()
            if isinstance(value, int | float)
        }
        for board in self._boards:
            board.scalars(step, numbers)


def read_records(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSONL file; a last line cut off by a kill is left out."""
    if not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except ValueError:
            break
    return records


def reward_spread(record: Mapping[str, Any]) -> tuple[float, float]:
    """Return mean ± deviation of a step's rewards, as far as rewards went: (low, high)."""
    mean, deviation = record["reward_mean"], record["reward_std"]
    return max(record["reward_min"], mean - deviation), min(record["reward_max"], mean + deviation)


def _open(folder: Path | None, name: str, resumed_step: int) -> TextIO:
    if folder is None:
        return Path(os.devnull).open("w")
    path = folder / name
    kept = [record for record in read_records(path) if record["step"] <= resumed_step]
    path.write_text("".join(json.dumps(record) + "\n" for record in kept if resumed_step))
    return path.open("a")
