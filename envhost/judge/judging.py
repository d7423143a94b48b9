"""Judging: a program against a problem's tests, to one verdict.

Owns the order of the tests, the early stop, the share of processors, and what a run's outcome
means. A failure of ours is tried once more and then raised: it is never a verdict.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import trio
from attrs import evolve, field, frozen

from ..errors import NotScored
from ..sandbox.cells import Cells
from ..sandbox.limits import CPU, OUTPUT, STARVED, WALL, CellLimits, Outcome, Program
from ..telemetry import programs_running
from .compare import Tolerance, outputs_match, text_of, values_match
from .problems import Problem, Test
from .turns import Turns

__all__ = ["Judge", "JudgeRules", "OnTest", "Verdict", "VerdictName", "chosen_tests", "no_code"]

VerdictName = Literal["AC", "WA", "TLE", "ILE", "MLE", "OLE", "RE", "CE", "NC"]

_STDERR_CHARACTERS = 2048
_CHECKER_LIMITS = CellLimits()
_ACCEPTED, _WRONG = 0, 1
# A returned value is decoded only where its text could be right: a float may be `1.0` in the data
# set and have 17 digits here; nothing else grows.
_MOST_GROWTH, _MOST_BYTES = 10, 4096


@frozen(kw_only=True)
class JudgeRules:
    """How programs are judged."""

    limits: CellLimits = field(factory=CellLimits)
    checker: str = "lines"
    tolerance: Tolerance = field(factory=Tolerance)
    run_all: bool = False
    """Whether the tests after the first failed one are run too."""
    prelude: str = ""
    """Source that is run before the program, in its namespace."""


@frozen(kw_only=True)
class Verdict:
    """What came of a program: one name for all its tests, and what they cost."""

    name: VerdictName
    tests_run: int
    tests_passed: int
    tests_total: int
    first_failed: int | None = None
    exit_code: int | None = None
    """Of the first failed run: negative for a signal, None where a limit of ours ended it."""
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    queue_seconds: float = 0.0
    peak_memory_bytes: int = 0
    stderr_tail: str = field(default="", repr=False)
    is_shared: bool = False
    """Whether it comes from a run that somebody else had begun."""

    def metadata(self) -> dict[str, Any]:
        """Return the step's metadata; the keys are the wire protocol's."""
        shared = {"shared": True} if self.is_shared else {}
        return shared | {
            "verdict": self.name,
            "tests_run": self.tests_run,
            "tests_passed": self.tests_passed,
            "tests_total": self.tests_total,
            "first_failed": self.first_failed,
            "cpu_seconds": round(self.cpu_seconds, 4),
            "wall_seconds": round(self.wall_seconds, 4),
            "queue_seconds": round(self.queue_seconds, 4),
            "peak_memory_bytes": self.peak_memory_bytes,
            "stderr_tail": self.stderr_tail,
        }


OnTest = Callable[[int, VerdictName, Outcome], None]
"""What is told of a test that was run: its index, its verdict, and what came of the run."""


def no_code(problem: Problem, *, max_tests: int) -> Verdict:
    """Return the verdict of an answer without a program."""
    total = min(max_tests, len(problem.tests))
    return Verdict(name="NC", tests_run=0, tests_passed=0, tests_total=total)


class Judge:
    """Judges programs, as many at once as there are processors.

    Args:
        cells: Where programs run.
        rules: How they are judged.
        processors: How many programs have a turn at once; see `turns`. A judgement has at most one
            program waiting, so that turns go round among sessions.
        python: Which interpreter the cells have, where a verdict is to be kept by it.
    """

    def __init__(
        self, cells: Cells, rules: JudgeRules, *, processors: int, python: str = ""
    ) -> None:
        self._cells = cells
        self._rules = rules
        self._python = python
        self._turns = Turns(processors)

    @property
    def isolation(self) -> str:
        """How programs are kept apart: the cells' own words."""
        return self._cells.isolation

    @property
    def cells_kind(self) -> str:
        """Which cells programs run in, and why not warm ones."""
        return self._cells.kind

    @property
    def circumstances(self) -> str:
        """All that verdicts depend on, besides the program and its tests."""
        return f"{self._python} {self.isolation} {self.cells_kind} {self._rules}"

    async def judge(
        self, problem: Problem, code: str, *, max_tests: int, on_test: OnTest | None = None
    ) -> Verdict:
        """Run a program against a problem's tests, the cheapest first, to the first failure.

        Of more than `max_tests` tests those with the longest inputs are run; `on_test` is told of
        each that was.

        Raises:
            NotScored: We failed twice; the program has no verdict.
        """
        source = code.encode("utf-8", "surrogatepass")
        chosen = chosen_tests(problem, max_tests)
        verdict = Verdict(name="AC", tests_run=0, tests_passed=0, tests_total=len(chosen))
        for index in chosen:
            test = problem.tests[index]
            name, outcome, queued = await self._twice(problem, test, source)
            if on_test is not None:
                on_test(index, name, outcome)
            passed = name == "AC"
            verdict = evolve(
                verdict,
                tests_run=verdict.tests_run + 1,
                tests_passed=verdict.tests_passed + passed,
                cpu_seconds=verdict.cpu_seconds + outcome.cpu_seconds,
                wall_seconds=verdict.wall_seconds + outcome.wall_seconds,
                queue_seconds=verdict.queue_seconds + queued,
                peak_memory_bytes=max(verdict.peak_memory_bytes, outcome.peak_memory_bytes),
            )
            if not passed and verdict.first_failed is None:
                verdict = evolve(
                    verdict,
                    name=name,
                    first_failed=index,
                    exit_code=outcome.exit_code,
                    stderr_tail=_escaped(outcome.stderr_tail),
                )
            if not passed and (name == "CE" or not self._rules.run_all):
                break
        return verdict

    async def _twice(
        self, problem: Problem, test: Test, source: bytes
    ) -> tuple[VerdictName, Outcome, float]:
        try:
            return await self._once(problem, test, source)
        except NotScored:
            return await self._once(problem, test, source)

    async def _once(
        self, problem: Problem, test: Test, source: bytes
    ) -> tuple[VerdictName, Outcome, float]:
        is_call = problem.fn_name is not None
        stdin = json.dumps(test.input) if is_call else text_of(test.input)
        program = Program(
            source=source,
            stdin=stdin.encode("utf-8", "surrogatepass"),
            fn_name=problem.fn_name,
            files=(("prelude.py", self._rules.prelude.encode()),) if self._rules.prelude else (),
        )
        outcome, queued = await self._run(program, self._rules.limits)
        if outcome.ending == STARVED:
            raise NotScored(
                "the program got too little of the processor to be judged: the machine is "
                "overloaded by something else"
            )
        name = _fault(outcome)
        if name is None:
            right = await self._is_right(problem, test, program, outcome)
            name = "AC" if right else "WA"
        return name, outcome, queued

    async def _run(self, program: Program, limits: CellLimits) -> tuple[Outcome, float]:
        """Run a program when its turn comes; return what came of it, and how long that took."""
        waiting_since = trio.current_time()
        async with self._turns.turn() as turn:
            queued = trio.current_time() - waiting_since
            with programs_running:
                return await self._cells.run(program, limits, turn.step_aside), queued

    async def _is_right(
        self, problem: Problem, test: Test, program: Program, outcome: Outcome
    ) -> bool:
        if problem.fn_name is not None:
            if len(outcome.stdout) > _MOST_GROWTH * len(json.dumps(test.expected)) + _MOST_BYTES:
                return False
            try:
                value = json.loads(outcome.stdout)
            except (ValueError, RecursionError):
                return False
            return values_match(test.expected, value, self._rules.tolerance)
        expected = text_of(test.expected)
        if problem.checker is None:
            rules = self._rules
            return outputs_match(rules.checker, expected, outcome.stdout, rules.tolerance)
        return await self._ask_checker(problem, program.stdin, expected, outcome.stdout)

    async def _ask_checker(
        self, problem: Problem, given: bytes, expected: str, actual: bytes
    ) -> bool:
        """Ask the problem's own checker: exit status 0 accepts, 1 does not.

        A checker that fails on this output and accepts the expected one was failed by the output,
        which is then wrong; one that fails on both is broken, and nobody's verdict.
        """
        said = await self._checker_says(problem, given, expected, actual)
        if isinstance(said, bool):
            return said
        if await self._checker_says(problem, given, expected, expected.encode()) is True:
            return False
        raise NotScored(f"the checker of {problem.problem_id} failed {said}")

    async def _checker_says(
        self, problem: Problem, given: bytes, expected: str, actual: bytes
    ) -> bool | str:
        """Run a checker in a cell of its own; a text is how it failed."""
        assert problem.checker is not None
        program = Program(
            source=problem.checker.encode(),
            stdin=b"",
            files=(("input", given), ("expected", expected.encode()), ("actual", actual)),
            arguments=("input", "expected", "actual"),
        )
        outcome, _ = await self._run(program, _CHECKER_LIMITS)
        if outcome.exit_code not in {_ACCEPTED, _WRONG} or b"Traceback" in outcome.stderr_tail:
            tail = _escaped(outcome.stderr_tail)[-300:]
            return f"({outcome.ending}, exit code {outcome.exit_code}): {tail}"
        return outcome.exit_code == _ACCEPTED


def chosen_tests(problem: Problem, max_tests: int) -> list[int]:
    """Return the indices of the tests to run, in the order to run them.

    Of inputs of one length the first ones count as the longer, as in GEM.
    """

    def size(index: int) -> int:
        value = problem.tests[index].input
        return len(value) if isinstance(value, str) else len(json.dumps(value))

    longest_first = sorted(range(len(problem.tests)), key=size, reverse=True)
    return sorted(longest_first[:max_tests], key=size)


_CUT: dict[str, VerdictName] = {CPU: "TLE", WALL: "ILE", OUTPUT: "OLE"}


def _fault(outcome: Outcome) -> VerdictName | None:
    """Return the verdict of a run that did not end well; None where its output decides."""
    if not outcome.is_compiled:
        return "CE"
    if outcome.is_out_of_memory:
        return "MLE"
    if outcome.ending in _CUT:
        return _CUT[outcome.ending]
    if outcome.exit_code == 0:
        return None
    last_line = outcome.stderr_tail.rstrip().rpartition(b"\n")[2]
    return "MLE" if last_line.startswith(b"MemoryError") else "RE"


def _escaped(tail: bytes) -> str:
    """Return the end of an error output, at most 2 KiB, control characters escaped."""
    text = tail[-_STDERR_CHARACTERS:].decode("utf-8", "replace")
    shown = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    return shown[-_STDERR_CHARACTERS:]
