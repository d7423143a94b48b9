"""What happened lately on one server: steps and verdicts over time, failed programs, slow problems.

Owns a bounded memory of it and no clock of its own: a step adds to counters, the server's watcher
turns the page (`tick`), and all else is worked out when somebody looks. A program's text is kept
only where the operator records programs anyway.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

__all__ = ["BIN_COUNT", "BIN_SECONDS", "Bin", "FailedProgram", "History", "SlowProblem"]

BIN_SECONDS = 10.0
BIN_COUNT = 90
_FAILURES = 20
_VERDICT_NAMES = 16  # an environment of somebody's own may invent any number of them
_PROBLEMS = 4096
_NAME_LENGTH = 16
_TEXT_LENGTH = 4096


@frozen
class Bin:
    """What was counted in one stretch of `BIN_SECONDS`."""

    steps: int
    verdicts: Mapping[str, int]


@frozen(kw_only=True)
class FailedProgram:
    """One answer that was judged and was not right.

    `number` counts them, so that a reader knows a new one; `answer` and `stderr_tail` are None
    unless programs are recorded.
    """

    number: int
    unix_time: float
    session: str
    problem_id: str
    verdict: str
    tests_passed: int | None
    tests_total: int | None
    wall_seconds: float | None
    answer: str | None = field(default=None, repr=False)
    stderr_tail: str | None = field(default=None, repr=False)


@frozen(kw_only=True)
class SlowProblem:
    """How long the programs of one problem ran."""

    problem_id: str
    programs: int
    mean_seconds: float
    longest_seconds: float


class _Runs:
    """The running sums of one problem."""

    __slots__ = ("count", "longest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    @property
    def mean(self) -> float:
        return self.total / self.count


class History:
    """The memory of one server.

    Args:
        keeps_programs: Whether failed programs are kept as text.
    """

    def __init__(self, *, keeps_programs: bool = False) -> None:
        self.keeps_programs = keeps_programs
        self.steps = 0
        """All steps so far; the one thing that every step touches."""
        self.verdicts: Counter[str] = Counter()
        """All verdicts so far."""
        self._bins: deque[Bin] = deque(maxlen=BIN_COUNT)
        self._began_at: float | None = None
        self._steps_before = 0
        self._verdicts_before: Counter[str] = Counter()
        self._failures: deque[FailedProgram] = deque(maxlen=_FAILURES)
        self._failure_count = 0
        self._problems: dict[str, _Runs] = {}

    def note_verdict(
        self,
        metadata: Mapping[str, Any],
        *,
        session: str,
        problem_id: str,
        answer: object,
    ) -> None:
        """Take in a judged step: its metadata, and the problem and answer that it was about."""
        verdict = str(metadata["verdict"])[:_NAME_LENGTH]
        if verdict not in self.verdicts and len(self.verdicts) >= _VERDICT_NAMES:
            verdict = "other"
        self.verdicts[verdict] += 1
        seconds = _number(metadata.get("wall_seconds"))
        if problem_id and seconds:  # an answer without code ran for none
            self._note_seconds(problem_id, seconds)
        if verdict == "AC":
            return
        self._failure_count += 1
        keeps = self.keeps_programs
        self._failures.append(
            FailedProgram(
                number=self._failure_count,
                unix_time=time.time(),
                session=session,
                problem_id=problem_id,
                verdict=verdict,
                tests_passed=_integer(metadata.get("tests_passed")),
                tests_total=_integer(metadata.get("tests_total")),
                wall_seconds=seconds,
                answer=_text(answer) if keeps else None,
                stderr_tail=_text(metadata.get("stderr_tail")) if keeps else None,
            )
        )

    def _note_seconds(self, problem: str, seconds: float) -> None:
        runs = self._problems.get(problem)
        if runs is None:
            if len(self._problems) >= _PROBLEMS:  # the quicker half makes room
                slow = sorted(self._problems.items(), key=lambda item: -item[1].mean)
                self._problems = dict(slow[: _PROBLEMS // 2])
            runs = self._problems[problem] = _Runs()
        runs.count += 1
        runs.total += seconds
        runs.longest = max(runs.longest, seconds)

    def tick(self, now: float) -> None:
        """Turn the page where a stretch is over; `now` is any steady clock's, always the same."""
        if self._began_at is None:
            self._began_at = now
        if now < self._began_at + BIN_SECONDS:
            return
        over = int((now - self._began_at) / BIN_SECONDS)
        self._bins.append(self._current())
        self._bins.extend([Bin(0, {})] * min(over - 1, BIN_COUNT))  # the machine slept
        self._began_at += over * BIN_SECONDS
        self._steps_before = self.steps
        self._verdicts_before = self.verdicts.copy()

    def _current(self) -> Bin:
        return Bin(self.steps - self._steps_before, dict(self.verdicts - self._verdicts_before))

    def bins(self) -> list[Bin]:
        """Return the stretches so far, oldest first; the last is the one that is under way."""
        return [*self._bins, self._current()]

    def steps_per_second(self, now: float) -> float:
        """Return the rate over the last whole stretch and the one under way."""
        if self._began_at is None:
            return 0.0
        steps, seconds = self._current().steps, now - self._began_at
        if self._bins:
            steps += self._bins[-1].steps
            seconds += BIN_SECONDS
        return steps / seconds if seconds > 0 else 0.0

    def failures(self) -> list[FailedProgram]:
        """Return the last failed programs, newest first."""
        return list(reversed(self._failures))

    def slowest(self, count: int) -> list[SlowProblem]:
        """Return the problems whose programs ran longest on average, slowest first."""
        slow = sorted(self._problems.items(), key=lambda item: -item[1].mean)
        return [
            SlowProblem(
                problem_id=problem,
                programs=runs.count,
                mean_seconds=runs.mean,
                longest_seconds=runs.longest,
            )
            for problem, runs in slow[:count]
        ]


def _number(value: object) -> float | None:
    """Return what an environment calls a number; its metadata may hold anything."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9:
        return float(value)
    return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    return value if len(value) <= _TEXT_LENGTH else value[:_TEXT_LENGTH] + "\n…"
