"""Shared verdicts: one run for all who ask at once, cancelled when the last of them leaves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from attrs import evolve
from trio.testing import wait_all_tasks_blocked

from envhost.envs.code import make
from envhost.errors import NotScored
from envhost.judge import sharing
from envhost.judge.judging import JudgeRules, Verdict, VerdictName
from envhost.judge.opening import open_judge
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case
from envhost.judge.sharing import SharedVerdicts, shared_verdicts, verdict_key

PROBLEM = Problem(problem_id="p", text="", tests=(Case("1", "1"), Case("2", "2")))
RIGHT = Verdict(name="AC", tests_run=2, tests_passed=2, tests_total=2)


class FakeJudge:
    """Judges a program when told to; notes what was begun, ended and cancelled."""

    circumstances = "here"

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self._ends = trio.Event()
        self._outcome: Verdict | Exception = RIGHT

    async def judge(self, problem: Problem, code: str, *, max_tests: int) -> Verdict:
        self.begun.append(code)
        try:
            await self._ends.wait()
        except trio.Cancelled:
            self.cancelled.append(code)
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)  # its processes take a moment to die
            raise
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def end(self, outcome: Verdict | Exception) -> None:
        """Let all that runs, and all that will, end so."""
        self._outcome = outcome
        self._ends.set()


class Waiters:
    """Tasks that ask for a verdict, each of which can be cancelled."""

    def __init__(self, shared: SharedVerdicts, nursery: trio.Nursery) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.errors: dict[str, Exception] = {}
        self._shared = shared
        self._nursery = nursery
        self._scopes: dict[str, trio.CancelScope] = {}

    async def ask(self, name: str, code: str = "a", *, max_tests: int = 12) -> None:
        """Let one ask, and come to the point where it waits."""
        self._nursery.start_soon(self._ask, name, code, max_tests)
        await wait_all_tasks_blocked()

    async def _ask(self, name: str, code: str, max_tests: int) -> None:
        with trio.CancelScope() as self._scopes[name]:
            try:
                self.verdicts[name] = await self._shared.judge(PROBLEM, code, max_tests=max_tests)
            except Exception as error:  # noqa: BLE001 - what is raised is what is asked
                self.errors[name] = error

    async def leave(self, name: str) -> None:
        """Cancel one."""
        self._scopes[name].cancel()
        await wait_all_tasks_blocked(0.05)


@asynccontextmanager
async def waiters() -> AsyncIterator[tuple[FakeJudge, Waiters]]:
    """Give a judge, and tasks that share its verdicts."""
    judge = FakeJudge()
    async with shared_verdicts(judge) as shared, trio.open_nursery() as nursery:
        yield judge, Waiters(shared, nursery)
        nursery.cancel_scope.cancel()


async def test_one_run_for_all_who_wait() -> None:
    """Identical programs in flight share a run; all but the first are told so."""
    async with waiters() as (judge, asked):
        for name in ("first", "second", "third"):
            await asked.ask(name)
        await asked.ask("other", "b")
        assert judge.begun == ["a", "b"]
        judge.end(RIGHT)
        await wait_all_tasks_blocked()
        assert asked.verdicts == {
            "first": RIGHT,
            "second": evolve(RIGHT, is_shared=True),
            "third": evolve(RIGHT, is_shared=True),
            "other": RIGHT,
        }


async def test_the_first_may_leave() -> None:
    """The run goes on for those who joined it."""
    async with waiters() as (judge, asked):
        await asked.ask("first")
        await asked.ask("second")
        await asked.leave("first")
        assert judge.cancelled == []
        judge.end(RIGHT)
        await wait_all_tasks_blocked()
        assert asked.verdicts == {"second": evolve(RIGHT, is_shared=True)}


async def test_the_last_to_leave_cancels() -> None:
    """When nobody waits the run is cancelled, and gone before the last one has left."""
    async with waiters() as (judge, asked):
        await asked.ask("first")
        await asked.ask("second")
        await asked.leave("second")
        assert judge.cancelled == []
        await asked.leave("first")
        assert judge.cancelled == ["a"]
        # Who comes then has a run of its own.
        await asked.ask("third")
        assert judge.begun == ["a", "a"]
        judge.end(RIGHT)
        await wait_all_tasks_blocked()
        assert asked.verdicts == {"third": RIGHT}


async def test_who_comes_while_a_run_is_dying_starts_anew() -> None:
    """A run that nobody waits for any more is joined by nobody."""
    async with waiters() as (judge, asked):
        await asked.ask("first")
        asked._scopes["first"].cancel()
        await trio.lowlevel.checkpoint()
        assert judge.cancelled == ["a"] or judge.begun == ["a"]
        await asked.ask("second")
        assert judge.begun == ["a", "a"]
        judge.end(RIGHT)
        await wait_all_tasks_blocked(0.05)
        assert asked.verdicts == {"second": RIGHT}


@pytest.mark.parametrize("name", ["AC", "WA", "RE", "CE", "OLE"])
async def test_what_a_program_did_itself_is_kept(name: VerdictName) -> None:
    """A finished verdict answers who asks later."""
    async with waiters() as (judge, asked):
        judge.end(evolve(RIGHT, name=name))
        await asked.ask("first")
        await asked.ask("later")
        assert judge.begun == ["a"]
        assert asked.verdicts["later"] == evolve(RIGHT, name=name, is_shared=True)


@pytest.mark.parametrize("name", ["TLE", "ILE", "MLE"])
async def test_what_a_limit_ended_is_not_kept(name: VerdictName) -> None:
    """A limit may have been reached for the machine's sake: judged again, though shared at once."""
    async with waiters() as (judge, asked):
        await asked.ask("first")
        await asked.ask("second")
        judge.end(evolve(RIGHT, name=name))
        await wait_all_tasks_blocked()
        assert asked.verdicts["second"].is_shared
        await asked.ask("later")
        assert judge.begun == ["a", "a"]
        assert not asked.verdicts["later"].is_shared


@pytest.mark.parametrize("error", [NotScored("broken"), ValueError("a bug")])
async def test_a_failure_is_everybodys_and_kept_by_nobody(error: Exception) -> None:
    """All who wait get an exception of their own, the next one a new run, and others nothing."""
    async with waiters() as (judge, asked):
        for name in ("first", "second"):
            await asked.ask(name)
        judge.end(error)
        await wait_all_tasks_blocked()
        assert set(asked.errors) == {"first", "second"}
        assert asked.errors["first"] is not asked.errors["second"]
        for got in asked.errors.values():
            assert isinstance(got, NotScored) == isinstance(error, NotScored)
            assert got.__cause__ is error
        judge.end(RIGHT)
        await asked.ask("later")
        assert asked.verdicts == {"later": RIGHT}


async def test_the_end_of_serving_ends_all() -> None:
    """A run in flight is cancelled with the nursery, and who waits is told so."""
    judge = FakeJudge()
    errors: list[Exception] = []
    async with trio.open_nursery() as outer, shared_verdicts(judge) as shared:

        async def ask() -> None:
            try:
                await shared.judge(PROBLEM, "a", max_tests=12)
            except NotScored as error:
                errors.append(error)

        outer.start_soon(ask)
        await wait_all_tasks_blocked()
    assert judge.cancelled == ["a"]
    assert len(errors) == 1


async def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict that nobody asked for the longest goes first."""
    monkeypatch.setattr(sharing, "_MOST_KEPT", 2)
    async with waiters() as (judge, asked):
        judge.end(RIGHT)
        for number, code in enumerate("abac"):  # b is the oldest in use when c comes
            await asked.ask(str(number), code)
        assert judge.begun == ["a", "b", "c"]
        await asked.ask("a again", "a")
        assert judge.begun == ["a", "b", "c"]
        await asked.ask("b again", "b")
        assert judge.begun == ["a", "b", "c", "b"]


async def test_many_come_and_go() -> None:
    """A hundred who come and are cancelled at every moment leave no run behind, and lose none."""
    judge = FakeJudge()
    got: list[Verdict] = []
    async with shared_verdicts(judge) as shared, trio.open_nursery() as nursery:

        async def ask(number: int) -> None:
            with trio.move_on_after(0.0001 * number if number % 3 else 10):
                got.append(await shared.judge(PROBLEM, "ab"[number % 2], max_tests=12))

        for number in range(100):
            nursery.start_soon(ask, number)
            if number == 90:
                await trio.sleep(0.005)
        await wait_all_tasks_blocked()
        judge.end(RIGHT)
    assert shared._running == {}
    assert len(got) >= 34
    assert len(judge.begun) - len(judge.cancelled) == 2


KEY = verdict_key(PROBLEM, "a", 12, "here")
OTHERS: dict[str, tuple[dict[str, Any], str, int, str]] = {
    "program": ({}, "a ", 12, "here"),
    "circumstances": ({}, "a", 12, "elsewhere"),
    "fewer tests": ({}, "a", 1, "here"),
    "input": ({"tests": (Case("1", "1"), Case("3", "2"))}, "a", 12, "here"),
    "expected output": ({"tests": (Case("1", "1"), Case("2", "3"))}, "a", 12, "here"),
    "a number for its text": ({"tests": (Case("1", 1), Case("2", "2"))}, "a", 12, "here"),
    "split otherwise": ({"tests": (Case("11", ""), Case("2", "2"))}, "a", 12, "here"),
    "checker": ({"checker": ""}, "a", 12, "here"),
    "function": ({"fn_name": "f"}, "a", 12, "here"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_what_a_verdict_depends_on_is_in_the_key(case: str) -> None:
    """Another program, test, limit, checker or interpreter is another key."""
    changes, code, max_tests, circumstances = OTHERS[case]
    assert verdict_key(evolve(PROBLEM, **changes), code, max_tests, circumstances) != KEY


def test_what_no_verdict_depends_on_is_not() -> None:
    """The same tests under another name, with more tests allowed than there are, are the same."""
    again = evolve(PROBLEM, problem_id="q", text="other", solutions=("x",))
    assert verdict_key(again, "a", 12, "here") == KEY
    assert verdict_key(PROBLEM, "\ud800", 12, "here") != KEY  # and a lone surrogate is no failure


async def test_limits_checker_and_python_are_circumstances() -> None:
    """What a judge was opened with shows in what its verdicts are kept by."""
    seen = set()
    for rules in (JudgeRules(), JudgeRules(checker="exact"), JudgeRules(run_all=True)):
        async with open_judge(rules, kind="plain", python=None, hidden=()) as judge:
            seen.add(judge.circumstances)
            assert "python" in judge.circumstances
            assert "cpu_limit_seconds=10.0" in judge.circumstances
    assert len(seen) == 3


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Return a data set of one row to train on and one to evaluate on."""
    path = tmp_path / "rows.jsonl"
    tests = {"inputs": ["1\n"], "outputs": ["1\n"]}
    rows = [{"problem": split, "tests": tests, "split": split} for split in ("train", "test")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.mark.parametrize(
    ("options", "evaluation", "expected"),
    [
        ({"share_verdicts": True}, False, [None, True]),
        ({"share_verdicts": True}, True, [None, None]),
        ({}, False, [None, None]),
    ],
)
async def test_sharing_is_asked_for_and_never_in_evaluation(
    dataset: str, options: dict[str, Any], evaluation: bool, expected: list[bool | None]
) -> None:
    """The step's metadata says `shared: true`, in training, where the option is on."""
    factory = make(dataset=dataset, sandbox_type="none", unsafe_no_sandbox=True, **options)
    seen = []
    async with factory.serving():
        environment = await factory.build()
        for _ in range(2):
            await environment.reset(row_index=0, evaluation=evaluation)
            result = await environment.step({"message": "```python\nprint(input())\n```"})
            assert result.reward == 1.0
            seen.append(result.metadata.get("shared"))
    assert seen == expected
