"""From a program and a problem to a verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve

from envhost.errors import NotScored
from envhost.judge.judging import Judge, JudgeRules, Verdict
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import bwrap_cells
from envhost.sandbox.limits import EXITED, STARVED, CellLimits, Outcome, Program
from envhost.sandbox.watch import StepAside, stay

ENDED = Outcome(
    ending=EXITED,
    exit_code=0,
    is_compiled=True,
    stdout=b"",
    stderr_tail=b"",
    cpu_seconds=0.25,
    wall_seconds=0.5,
    peak_memory_bytes=1000,
)


class FakeCells:
    """Runs nothing: each input has its outcome, and what was asked for is noted."""

    isolation = "fake"

    def __init__(self, **outcomes: Outcome | Exception) -> None:
        self._outcomes = outcomes
        self.asked: list[str] = []

    async def run(
        self, program: Program, limits: CellLimits, step_aside: StepAside = stay, /
    ) -> Outcome:
        name = program.stdin.decode()
        self.asked.append(name)
        await trio.lowlevel.checkpoint()
        outcome = self._outcomes[name]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def printed(text: str) -> Outcome:
    """Return the outcome of a program that printed a text."""
    return evolve(ENDED, stdout=text.encode())


def problem(*tests: tuple[Any, Any], **more: Any) -> Problem:
    """Return a problem of some tests."""
    return Problem(problem_id="p", text="", tests=tuple(Case(*test) for test in tests), **more)


async def judged(given: Problem, source: str, *, max_tests: int = 12, **rules: Any) -> Verdict:
    """Judge a program in a real cell."""
    async with bwrap_cells(find_interpreter(None)) as cells:
        judge = Judge(cells, JudgeRules(**rules), processors=2)
        return await judge.judge(given, source, max_tests=max_tests)


async def test_cheapest_first_and_stops_at_the_first_failure() -> None:
    """Short inputs are run first; after a failed test none is."""
    cells = FakeCells(a=printed("1"), bb=printed("wrong"), ccc=printed("3"))
    judge = Judge(cells, JudgeRules(), processors=1)
    verdict = await judge.judge(problem(("ccc", "3"), ("a", "1"), ("bb", "2")), "", max_tests=12)
    assert cells.asked == ["a", "bb"]
    assert verdict.name == "WA"
    assert (verdict.tests_run, verdict.tests_passed, verdict.tests_total) == (2, 1, 3)
    assert verdict.first_failed == 2


async def test_the_longest_inputs_are_kept() -> None:
    """Of more than the most tests, those with the longest inputs are run."""
    cells = FakeCells(a=printed(""), bb=printed(""), ccc=printed(""))
    judge = Judge(cells, JudgeRules(), processors=1)
    given = problem(("ccc", ""), ("a", ""), ("bb", ""))
    verdict = await judge.judge(given, "", max_tests=2)
    assert cells.asked == ["bb", "ccc"]
    assert (verdict.name, verdict.tests_total) == ("AC", 2)


async def test_of_one_length_the_first_are_kept() -> None:
    """Among inputs of one length the data set's order decides, as in GEM."""
    cells = FakeCells(aa=printed(""), b=printed(""), cc=printed(""), dd=printed(""))
    judge = Judge(cells, JudgeRules(), processors=1)
    given = problem(("aa", ""), ("b", ""), ("cc", ""), ("dd", ""))
    await judge.judge(given, "", max_tests=2)
    assert cells.asked == ["aa", "cc"]


async def test_all_are_run_where_shares_count() -> None:
    """With `run_all` a failed test ends nothing, and the first failure names the verdict."""
    crashed = evolve(ENDED, exit_code=1, stderr_tail=b"boom")
    cells = FakeCells(a=printed("x"), bb=crashed, ccc=printed("3"))
    judge = Judge(cells, JudgeRules(run_all=True), processors=1)
    verdict = await judge.judge(problem(("a", "1"), ("bb", "2"), ("ccc", "3")), "", max_tests=12)
    assert (verdict.name, verdict.tests_run, verdict.tests_passed) == ("WA", 3, 1)
    assert verdict.cpu_seconds == 0.75
    assert verdict.wall_seconds == 1.5
    assert verdict.peak_memory_bytes == 1000


@pytest.mark.parametrize("failure", [NotScored("broken"), evolve(ENDED, ending=STARVED)])
async def test_our_failure_is_no_verdict(failure: Outcome | Exception) -> None:
    """A failure of ours is tried once more and then raised, never scored."""
    cells = FakeCells(a=failure)
    judge = Judge(cells, JudgeRules(), processors=1)
    with pytest.raises(NotScored):
        await judge.judge(problem(("a", "1")), "", max_tests=1)
    assert cells.asked == ["a", "a"]


@pytest.mark.parametrize(
    ("outcome", "name"),
    [
        (evolve(ENDED, ending="cpu", exit_code=None), "TLE"),
        (evolve(ENDED, ending="wall", exit_code=None), "ILE"),
        (evolve(ENDED, ending="output", exit_code=None), "OLE"),
        (evolve(ENDED, is_compiled=False, exit_code=1), "CE"),
        (evolve(ENDED, exit_code=-9, is_out_of_memory=True), "MLE"),
        (evolve(ENDED, exit_code=1, stderr_tail=b"x\nMemoryError\n"), "MLE"),
        (evolve(ENDED, exit_code=-11), "RE"),
        (evolve(ENDED, exit_code=3, stdout=b"right"), "RE"),
        (evolve(ENDED, stdout=b"right"), "AC"),
        (evolve(ENDED, stdout=b"right\xff"), "WA"),
    ],
)
async def test_each_outcome_has_its_verdict(outcome: Outcome, name: str) -> None:
    """What became of a run decides the verdict, and only where it ended well its output."""
    judge = Judge(FakeCells(a=outcome), JudgeRules(), processors=1)
    assert (await judge.judge(problem(("a", "right")), "", max_tests=1)).name == name


async def test_metadata_has_no_expected_output() -> None:
    """What goes to the client tells nothing of the tests, and is escaped."""
    crashed = evolve(ENDED, exit_code=1, stderr_tail=b"\x1b[31mred\xff" + b"x" * 5000)
    judge = Judge(FakeCells(a=crashed), JudgeRules(), processors=1)
    shown = (await judge.judge(problem(("a", "secret")), "", max_tests=1)).metadata()
    assert "secret" not in str(shown)
    assert "\x1b" not in shown["stderr_tail"]
    assert len(shown["stderr_tail"]) <= 2048


async def test_a_long_session_starves_nobody() -> None:
    """A newcomer's first test runs before the next one of a session with many."""
    order: list[str] = []

    class Slow(FakeCells):
        async def run(
            self, program: Program, limits: CellLimits, step_aside: StepAside = stay, /
        ) -> Outcome:
            order.append(program.stdin.decode())
            await trio.sleep(0.01)
            return printed("")

    judge = Judge(Slow(), JudgeRules(), processors=1)
    long = problem(*((f"long{n:02}", "") for n in range(12)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: judge.judge(long, "", max_tests=12))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(lambda: judge.judge(problem(("short", "")), "", max_tests=1))
    assert order.index("short") <= 2


@pytest.mark.parametrize(
    ("given", "expected", "source"),
    [
        ([1, 2, 3], 6, "import sys; print(sum(map(int, sys.stdin)))"),
        ([[1, 2], [3]], [[1, 2], [3]], "import sys; print(sys.stdin.read())"),
        (5, [5, 25], "n = int(input()); print(n); print(n * n)"),
        ("a b\n", ["a", "b"], "print(*input().split(), sep='\\n')"),
    ],
)
async def test_json_inputs_and_outputs(given: Any, expected: Any, source: str) -> None:
    """Lists and numbers in a data set are read and printed as text."""
    assert (await judged(problem((given, expected)), source)).name == "AC"


CALLS = {
    "a function": ("def f(a, b): return a + b", [1, 2], 3, "AC"),
    "a method": ("class Solution:\n def f(self, a): return a", [[1]], [1], "AC"),
    "a tuple": ("def f(): return (1, (2, 3))", [], [1, [2, 3]], "AC"),
    "a set": ("def f(): return {3, 1}", [], [1, 3], "AC"),
    "keys that are numbers": ("def f(): return {1: 2}", [], {"1": 2}, "AC"),
    "a float": ("def f(a): return a / 3", [1], 0.3333333, "AC"),
    "nested arguments": ("def f(a): return a['k'][0][1]", [{"k": [[0, "x"]]}], "x", "AC"),
    "prints beside it": ("def f(): print('noise'); return 1", [], 1, "AC"),
    "nothing": ("def f(): pass", [], None, "AC"),
    "wrong": ("def f(): return 2", [], 1, "WA"),
    "not there": ("def g(): return 1", [], 1, "RE"),
    "raises": ("def f(): raise ValueError", [], 1, "RE"),
    "ends before": ("import os\ndef f(): os._exit(0)", [], 1, "WA"),
    "forged": ("import os\ndef f(): os.write(3, b'1'); return 2", [], 1, "WA"),
    "no JSON": ("def f(): return object()", [], 1, "WA"),
    "huge": ("def f(): return [[]] * 10**6", [], [1], "WA"),
    "deep": ("def f():\n a = []\n for _ in range(900): a = [a]\n return a", [], [[1]], "WA"),
    "does not compile": ("def f(:", [], 1, "CE"),
    "reads nothing": ("import sys\ndef f(): return sys.stdin.read()", [], "", "AC"),
}


@pytest.mark.parametrize("case", CALLS)
async def test_calls(case: str) -> None:
    """A call's return value decides, whatever is printed."""
    source, arguments, expected, name = CALLS[case]
    verdict = await judged(problem((arguments, expected), fn_name="f"), source)
    assert verdict.name == name, verdict.stderr_tail


async def test_a_checker_program_sees_all_and_the_answer_nothing_of_it() -> None:
    """A problem's own checker gets input, expected and actual output; several answers are right."""
    checker = (
        "import sys\n"
        "given, expected, actual = (open(path).read().split() for path in sys.argv[1:])\n"
        "sys.exit(0 if sorted(actual) == sorted(given) and expected == ['any'] else 1)\n"
    )
    given = problem(("3 1 2\n", "any\n"), checker=checker)
    assert (await judged(given, "print(*input().split())")).name == "AC"
    assert (await judged(given, "print(*reversed(input().split()))")).name == "AC"
    assert (await judged(given, "print(1)")).name == "WA"
    look = "import os; print(*sorted(os.listdir('/cell')))"
    assert (await judged(problem(("", "main.py\nrunner.py".replace("\n", " "))), look)).name == "AC"


# Programs that graders in use call wrong, and what they should not let through.
SUMS = {
    "two readlines": (
        "import sys; r = sys.stdin.buffer.readline; print(int(r()) + int(r()))",
        "AC",
    ),
    "readlines": ("import sys; print(sum(map(int, sys.stdin.readlines())))", "AC"),
    "iteration": ("import sys; print(sum(int(line) for line in sys.stdin))", "AC"),
    "input and read": ("import sys; print(int(input()) + int(sys.stdin.read()))", "AC"),
    "open(0)": ("print(sum(map(int, open(0))))", "AC"),
    "os.read": ("import os; print(sum(map(int, os.read(0, 1 << 20).split())))", "AC"),
    "a global": ("n = 0\ndef add():\n global n; n += int(input())\nadd(); add(); print(n)", "AC"),
    "the future": ("from __future__ import annotations\nprint(int(input()) + int(input()))", "AC"),
    "bytes": ("import sys; sys.stdout.buffer.write(b'1000000007')", "AC"),
    "no newline": ("import sys; sys.stdout.write('1000000007')", "AC"),
    "many newlines": ("print(1000000007, '\\n\\n')", "AC"),
    "one off": ("print(1000000008)", "WA"),
    "a float": ("print(1000000007.0)", "WA"),
    "junk after it": ("print(1000000007); print('debug')", "WA"),
    "junk before it": ("print('answer:', 1000000007)", "WA"),
    "nothing": ("", "WA"),
}


@pytest.mark.parametrize("case", SUMS)
async def test_sums(case: str) -> None:
    """Every way to read and print is right, and nothing near is."""
    source, name = SUMS[case]
    assert (await judged(problem(("1000000000\n7\n", "1000000007\n")), source)).name == name


@pytest.mark.parametrize(
    ("source", "name"),
    [("raise ValueError", "RE"), ("pass", "AC"), ("print(1)", "WA")],
)
async def test_an_expected_nothing(source: str, name: str) -> None:
    """Where nothing is to be printed, a program that fails is wrong all the same."""
    assert (await judged(problem(("", "")), source)).name == name


async def test_prelude() -> None:
    """The usual imports are there where they are asked for, and only there."""
    source = "print(sqrt(16))"
    assert (await judged(problem(("", "4.0")), source, prelude="from math import *")).name == "AC"
    assert (await judged(problem(("", "4.0")), source)).name == "RE"


BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextmanager
def crowded() -> Iterator[None]:
    """Keep one processor busy with programs that come between us and a cell, and run only there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    busy = ["nice", "-n", "9", sys.executable, "-S", "-c", BUSY]
    crowd = [subprocess.Popen(busy, start_new_session=True) for _ in range(20)]
    for process in crowd:
        with suppress(OSError):  # where the kernel shares a machine out between sessions
            Path(f"/proc/{process.pid}/autogroup").write_text("9")
    try:
        yield
    finally:
        for process in crowd:
            process.kill()
            process.wait()
        os.sched_setaffinity(0, before)


@pytest.mark.slow
async def test_starvation_is_not_a_verdict() -> None:
    """A program that others keep from running is not scored; one that sleeps is idle."""
    limits = CellLimits(cpu_limit_seconds=5, wall_limit_seconds=1.5)
    busy = "import time\nwhile time.process_time() < 1: pass"
    with crowded():
        with pytest.raises(NotScored, match="overloaded"):
            await judged(problem(("", "")), busy, limits=limits)
        idle = await judged(problem(("", "")), "import time; time.sleep(1e9)", limits=limits)
    assert idle.name == "ILE"
