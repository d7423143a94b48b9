"""The code environment: a problem is the prompt, a program the answer, its verdict the reward.

Owns the episode and what all sessions share; its options are `code_options`, judging is the judge's
work. `python -m envhost serve` serves it when no entrypoint is named.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

from attrs import frozen

from ..environment import Description, Observation, StepResult, text_observation
from ..errors import EpisodeError, NotScored, ProtocolError
from ..judge.extract import extract_code
from ..judge.judging import Judge, no_code
from ..judge.problems import ProblemSet, Split
from ..judge.record import Record, Recorded, open_record
from ..judge.sharing import Judging, SharedVerdicts, shared_verdicts
from ..telemetry import session_id
from .code_options import CodeOptions, checked_options

__all__ = ["CodeEnvironment", "CodeEnvironments", "CodeOptions", "make"]


def make(
    *, unsafe_no_sandbox: bool = False, record_dir: str | None = None, **options: Any
) -> CodeEnvironments:
    """Return the factory of a code environment; the options are `CodeOptions`.

    `record_dir` is a directory where every judged program is written down.

    Raises:
        ConfigError: An option is unknown or has a wrong value.
    """
    return CodeEnvironments(
        checked_options(options, unsafe_no_sandbox=unsafe_no_sandbox), record_dir=record_dir
    )


class CodeEnvironments:
    """What all sessions share: the problems, the judge and the record."""

    def __init__(self, options: CodeOptions, *, record_dir: str | None = None) -> None:
        self.options = options
        self._record_dir = record_dir
        self._problems: ProblemSet | None = None
        self._judge: Judge | None = None
        self._shared: SharedVerdicts | None = None
        self._record: Record | None = None

    def describe(self) -> Description:
        """Say what is served."""
        notes = []
        if self._problems is not None:
            notes.append(self._problems.report)
        if self._judge is not None:
            notes.append(f"isolation: {self._judge.isolation}")
            notes.append(f"cells: {self._judge.cells_kind}")
        return Description(
            name=f"code:{self.options.dataset}",
            description="Programs judged against contest tests.",
            notes=tuple(notes),
            isolation=self._judge.isolation if self._judge is not None else "",
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Load the problems, open the judge, which proves itself, and the record."""
        self._problems = await self.options.load_problems_aside()
        async with (
            self.options.open_judge(self._problems) as self._judge,
            open_record(self._record_dir) as self._record,
            self._sharing(self._judge) as self._shared,
        ):
            yield

    def _sharing(self, judge: Judge) -> AbstractAsyncContextManager[SharedVerdicts | None]:
        return shared_verdicts(judge) if self.options.share_verdicts else nullcontext()

    async def build(self) -> CodeEnvironment:
        """Make a session's environment; it holds nothing but its place in the data set."""
        assert self._problems is not None
        assert self._judge is not None
        return CodeEnvironment(
            self.options, self._problems, self._judge, self._shared or self._judge, self._record
        )


@frozen(kw_only=True)
class _Episode:
    problem_id: str
    split: Split
    row_index: int
    seed: int | None


class CodeEnvironment:
    """One session's episodes: reset gives a problem, one step judges the answer and ends it."""

    def __init__(
        self,
        options: CodeOptions,
        problems: ProblemSet,
        judge: Judge,
        judging: Judging,
        record: Record | None,
    ) -> None:
        self._options = options
        self._problems = problems
        self._judge = judge
        self._judges: dict[Split, Judging] = {"train": judging, "test": judge}
        self._record = record
        self._episode: _Episode | None = None
        self._evaluated = 0
        self._drawn = int.from_bytes(os.urandom(3), "big")

    async def reset(
        self,
        *,
        seed: int | None = None,
        row_index: int | None = None,
        evaluation: bool | None = False,
    ) -> Observation:
        """Begin an episode with the row that the seed means; `row_index` wins over it.

        Without either, evaluation walks its split in order and training draws a seed, which the
        metadata tells.
        """
        _check_reset(seed=seed, row_index=row_index, evaluation=evaluation)
        split: Split = "test" if evaluation else "train"
        problems = self._problems
        if not problems.rows(split):
            raise ProtocolError("VALIDATION_ERROR", f"{problems.name} has no {split} rows")
        if row_index is not None:
            row = problems.check_row(split, row_index)
        elif seed is not None:
            row = problems.row_of_seed(split, seed)
        elif evaluation:
            row = self._evaluated % len(problems.evaluation)
            self._evaluated += 1
        else:
            self._drawn += 1
            seed = self._drawn
            row = problems.row_of_seed(split, seed)
        found = problems.prompt(split, row)
        problem_id = found.problem_id
        self._episode = _Episode(problem_id=problem_id, split=split, row_index=row, seed=seed)
        prompt = self._options.prompt_template.replace("{problem}", found.text)
        metadata: dict[str, Any] = {
            "seed": seed,
            "row_index": row,
            "split": split,
            "problem_id": problem_id,
            "isolation": self._judge.isolation,
        }
        if self._options.system_prompt is not None:
            metadata["system_prompt"] = self._options.system_prompt
        return Observation(text_observation(prompt, question=prompt), metadata)

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        """Judge the program in an answer; cancelled, every process of it is gone.

        Raises:
            NotScored: We could not judge it.
        """
        answer = action.get("message")
        if not isinstance(answer, str):
            raise ProtocolError(
                "VALIDATION_ERROR", "expected a text action with the string field 'message'"
            )
        if self._episode is None:
            raise EpisodeError("no episode is running: reset first")
        episode, self._episode = self._episode, None
        problem = await self._problems.problem(episode.split, episode.row_index)
        isolation = {"isolation": self._judge.isolation}
        code = extract_code(answer)
        max_tests = self._options.tests_of(episode.split)
        judge = self._judges[episode.split]
        if code is None:
            result = no_code(problem, max_tests=max_tests).metadata()
            return _ended(self._options.reward_no_code, result | isolation)
        try:
            verdict = await judge.judge(problem, code, max_tests=max_tests)
        except NotScored:
            self._write_down(episode, code, None, {"verdict": "IE"})
            raise
        reward, result = self._options.reward(verdict), verdict.metadata()
        self._write_down(episode, code, reward, result)
        return _ended(reward, result | isolation)

    def _write_down(
        self, episode: _Episode, code: str, reward: float | None, result: Mapping[str, Any]
    ) -> None:
        if self._record is None:
            return
        entry = Recorded(
            time=datetime.now(UTC).isoformat(timespec="milliseconds"),
            session=session_id.get(),
            dataset=self._problems.place,
            split=episode.split,
            row_index=episode.row_index,
            problem_id=episode.problem_id,
            seed=episode.seed,
            reward=reward,
            result=result,
            options=self._options.deciding(),
            program=code,
        )
        self._record.add(entry)

    async def state(self) -> Mapping[str, Any]:
        """Return how many problems there are to train on and to evaluate on."""
        return {
            "dataset_size": len(self._problems.training),
            "evaluation_size": len(self._problems.evaluation),
        }

    async def close(self) -> None:
        """Give back nothing: what runs belongs to the step, and ends with it."""
        self._episode = None


def _check_reset(*, evaluation: bool | None, **numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and type(value) is not int:
            raise ProtocolError(
                "VALIDATION_ERROR", f"{name}: expected an integer, got {value!r:.40}"
            )
    if evaluation is not None and type(evaluation) is not bool:
        raise ProtocolError(
            "VALIDATION_ERROR", f"evaluation: expected true or false, got {evaluation!r:.40}"
        )


def _ended(reward: float, metadata: Mapping[str, Any]) -> StepResult:
    return StepResult(
        observation=text_observation(""), reward=reward, terminated=True, metadata=metadata
    )
