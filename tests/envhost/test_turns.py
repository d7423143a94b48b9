"""Turns: first come, first served, and what computes or sleeps for long steps aside."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from envhost.judge.judging import Judge, JudgeRules
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case
from envhost.judge.turns import Turn, Turns
from envhost.sandbox import watch
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.limits import CellLimits
from envhost.sandbox.warm import warm_cells

QUICK = "print(42)"
PROBLEM = Problem(problem_id="p", text="", tests=(Case("", "42\n"),))


class Holders:
    """Tasks that wait for a turn and hold it until they are told to end."""

    def __init__(self, turns: Turns, nursery: trio.Nursery) -> None:
        self.order: list[int] = []
        self.turns: dict[int, Turn] = {}
        self._of = turns
        self._nursery = nursery
        self._ends: dict[int, trio.Event] = {}

    async def come(self, *names: int) -> None:
        """Let some more come, one after the other."""
        for name in names:
            self._ends[name] = trio.Event()
            self._nursery.start_soon(self._hold, name)
            await wait_all_tasks_blocked()

    async def _hold(self, name: int) -> None:
        async with self._of.turn() as self.turns[name]:
            self.order.append(name)
            await self._ends[name].wait()

    async def end(self, name: int) -> None:
        """Let one end."""
        self._ends[name].set()
        await wait_all_tasks_blocked()


async def test_first_come_first_served() -> None:
    """As many as there are processors have a turn; whoever waits longest is next."""
    async with trio.open_nursery() as nursery:
        holders = Holders(Turns(2), nursery)
        await holders.come(0, 1, 2, 3)
        assert holders.order == [0, 1]
        await holders.end(1)
        assert holders.order == [0, 1, 2]
        nursery.cancel_scope.cancel()


async def test_aside_the_next_has_the_turn() -> None:
    """What steps aside goes on, and its end gives no second turn away."""
    async with trio.open_nursery() as nursery:
        holders = Holders(Turns(1), nursery)
        await holders.come(0, 1, 2)
        assert holders.turns[0].step_aside()
        assert holders.turns[0].step_aside()
        await wait_all_tasks_blocked()
        assert holders.order == [0, 1]
        await holders.end(0)
        assert holders.order == [0, 1]
        await holders.end(1)
        assert holders.order == [0, 1, 2]
        nursery.cancel_scope.cancel()


async def test_two_for_each_processor_are_aside() -> None:
    """A third keeps its turn until one of them has ended, or was cancelled."""
    async with trio.open_nursery() as nursery:
        turns = Turns(1)
        holders = Holders(turns, nursery)
        async with trio.open_nursery() as cancelled:
            others = Holders(turns, cancelled)
            await others.come(0)
            assert others.turns[0].step_aside()
            await holders.come(1, 2, 3)
            assert holders.turns[1].step_aside()
            await wait_all_tasks_blocked()
            assert not holders.turns[2].step_aside()
            await wait_all_tasks_blocked()
            assert holders.order == [1, 2]
            cancelled.cancel_scope.cancel()
        assert holders.turns[2].step_aside()
        await wait_all_tasks_blocked()
        assert holders.order == [1, 2, 3]
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("long", ["while True: pass", "import time; time.sleep(1e9)"])
async def test_long_programs_do_not_hold_up_quick_ones(long: str) -> None:
    """Forty quick programs behind two long ones, on two turns, are judged before those end."""
    ended: list[str] = []
    async with warm_cells(find_interpreter(None), size=2) as cells:
        judge = Judge(cells, JudgeRules(), processors=2)

        async def judged(source: str) -> None:
            verdict = await judge.judge(PROBLEM, source, max_tests=1)
            assert verdict.name == "AC"
            ended.append(source)

        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(judged, long)
                await wait_all_tasks_blocked()
            async with trio.open_nursery() as quick:
                for _ in range(40):
                    quick.start_soon(judged, QUICK)
            assert ended == [QUICK] * 40
            nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_aside_limits_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two long programs on one turn: the endless one gets TLE, the right one AC."""
    monkeypatch.setattr(watch, "_ASIDE_SECONDS", 0.2)
    names: dict[str, list[str]] = {}
    right = "import time\nwhile time.process_time() < 0.5: pass\nprint(42)"
    async with warm_cells(find_interpreter(None), size=1) as cells:
        rules = JudgeRules(limits=CellLimits(cpu_limit_seconds=1.0))
        judge = Judge(cells, rules, processors=1)

        async def judged(source: str) -> None:
            verdict = await judge.judge(PROBLEM, source, max_tests=1)
            names.setdefault(source, []).append(verdict.name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(judged, right)
            nursery.start_soon(judged, "while True: pass")
    assert names == {right: ["AC"], "while True: pass": ["TLE"]}
