"""A run's time: set back after a second, and no verdict changes by it."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio
from trio.testing import MockClock

from envhost.sandbox import watch
from envhost.sandbox.bwrap import Interpreter, find_interpreter
from envhost.sandbox.cells import Cells, bwrap_cells
from envhost.sandbox.limits import CPU, STARVED, WALL, CellLimits, Ending, Outcome, Program
from envhost.sandbox.warm import warm_cells

KINDS = pytest.mark.parametrize("open_cells", [bwrap_cells, warm_cells])
UNTIL_SET_BACK = "import os, time\nwhile os.getpriority(os.PRIO_PROCESS, 0) < 19: %s\nprint('back')"
COMPUTES = UNTIL_SET_BACK % "pass"
PROGRAMS = {
    "computes": COMPUTES,
    "sleeps": UNTIL_SET_BACK % "time.sleep(1)",
    "a child computes": f"import os\nif os.fork():\n os.wait()\nelse:\n exec({COMPUTES!r})",
    "a thread computes": (
        "import threading\n"
        f"one = threading.Thread(target=exec, args=({COMPUTES!r},))\n"
        "one.start(); one.join()"
    ),
}
Opener = Callable[[Interpreter], AbstractAsyncContextManager[Cells]]


async def run(open_cells: Opener, source: str, *, may: bool, **limits: float) -> Outcome:
    """Run a program that may be set back, or may not."""
    async with open_cells(find_interpreter(None)) as cells:
        program = Program(source=source.encode(), stdin=b"")
        return await cells.run(program, CellLimits(**limits), lambda: may)  # type: ignore[arg-type] # integers among them


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("program", PROGRAMS)
async def test_long_programs_are_set_back(
    open_cells: Opener, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever computes or sleeps for long, thread or child, runs at the lowest priority."""
    monkeypatch.setattr(watch, "_ASIDE_SECONDS", 0.2)
    outcome = await run(open_cells, PROGRAMS[program], may=True)
    assert outcome.stdout == b"back\n"


class Tree:
    """A program that computes, waits for a processor and sleeps in turn, by the clock of the test.

    `share` is what it gets of a processor while it wants one, and `lower_share` when it is set
    back; it wants one from `wakes_at` on.
    """

    def __init__(
        self, *, share: float, lower_share: float, wakes_at: float = 0.0, processes: int = 1
    ) -> None:
        self.set_niceness: list[tuple[float, int]] = []
        self._share = share
        self._lower_share = lower_share
        self._wakes_at = wakes_at
        self._processes = processes
        self._begun_at = trio.current_time()
        self._seen_at = self._used = self._waited = 0.0

    @property
    def now(self) -> float:
        """The seconds since its start."""
        return trio.current_time() - self._begun_at

    def _look(self) -> None:
        span = self.now - max(self._seen_at, self._wakes_at)
        if span > 0:
            is_set_back = bool(self.set_niceness) and self.set_niceness[-1][1] == 19
            share = self._lower_share if is_set_back else self._share
            self._used += share * span
            self._waited += (1 - share) * span
        self._seen_at = self.now

    def used(self, *_: object, own: bool = True) -> float:
        self._look()
        return self._used

    def waited(self, *_: object) -> float:
        self._look()
        return self._waited

    def set(self, _pid: int, niceness: int) -> None:
        self._look()
        self.set_niceness.append((self.now, niceness))

    def is_runnable(self, _pid: int) -> bool:
        return self.now >= self._wakes_at


async def ending_of(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, *, may: bool, **limits: float
) -> Ending:
    """Return which limit a program that never ends reaches."""
    monkeypatch.setattr(watch, "_programs", lambda *_: list(range(tree._processes)))
    monkeypatch.setattr(watch, "_used_seconds", tree.used)
    monkeypatch.setattr(watch, "cpu_seconds", tree.used)
    monkeypatch.setattr(watch, "run_delay_seconds", tree.waited)
    monkeypatch.setattr(watch, "longest_run_delay_seconds", tree.waited)
    monkeypatch.setattr(watch, "set_niceness", tree.set)
    monkeypatch.setattr(watch, "is_runnable", tree.is_runnable)
    monkeypatch.setattr(watch, "usable_processors", lambda: 2)
    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    given = CellLimits(**limits)  # type: ignore[arg-type] # there are integers among them
    return await watch.Watch(given, lambda: may).reach_limit(1, 0)


async def test_set_back_until_the_wall_limit(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a second of CPU it is set back, at the wall limit it comes forward; CPU ends it."""
    tree = Tree(share=1.0, lower_share=0.1)
    assert await ending_of(tree, monkeypatch, may=True) == CPU
    assert 1.0 <= tree.set_niceness[0][0] < 1.6
    assert {n for at, n in tree.set_niceness if at < 60} == {19}
    assert {n for at, n in tree.set_niceness if at > 61} == {10}
    # 60 s at a tenth leave about 3 of the 10 CPU seconds.
    assert 62 < tree.now < 64


@pytest.mark.parametrize("processes", [1, 3])
async def test_our_wait_is_nobodys_fault(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    """Set back, a busy program is too slow and never starved, however long it waited."""
    tree = Tree(share=1.0, lower_share=0.1, processes=processes)
    monkeypatch.setattr(watch, "_FORWARD", 19)  # not let forward, as without privileges
    ending = await ending_of(
        tree, monkeypatch, may=True, cpu_limit_seconds=60, wall_limit_seconds=5
    )
    assert ending == CPU
    assert tree.waited() > 2 * 5


async def test_without_a_place_aside_nothing_changes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that keeps its turn keeps its priority, and starves where others crowd it out."""
    tree = Tree(share=0.05, lower_share=0.0)
    assert await ending_of(tree, monkeypatch, may=False) == STARVED
    assert tree.set_niceness == []
    assert 100 < tree.now < 121


async def test_a_crowd_of_its_own_is_no_excuse(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program whose own processes crowd each other out ends at its wall limit, not starved."""
    tree = Tree(share=0.05, lower_share=0.0, processes=3)
    assert await ending_of(tree, monkeypatch, may=False) == WALL
    assert 60 <= tree.now < 61


async def test_busy_to_the_wall_is_no_idleness(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the wall limit is the lower one, a busy program is too slow, not idle."""
    tree = Tree(share=1.0, lower_share=1.0)
    ending = await ending_of(
        tree, monkeypatch, may=False, cpu_limit_seconds=60, wall_limit_seconds=0.7
    )
    assert ending == CPU
    assert 0.7 <= tree.now < 0.8


async def test_set_back_it_can_starve_too(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What gets next to nothing although it has come forward is given up, in the end."""
    tree = Tree(share=0.01, lower_share=0.0, wakes_at=2)
    assert await ending_of(tree, monkeypatch, may=True, cpu_limit_seconds=5) == STARVED
    assert 150 < tree.now < 260


async def test_asleep_it_is_set_back(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second of sleep suffices, and idleness stays idleness."""
    tree = Tree(share=1.0, lower_share=1.0, wakes_at=1e9)
    assert await ending_of(tree, monkeypatch, may=True, wall_limit_seconds=20) == WALL
    assert 1.0 <= tree.set_niceness[0][0] < 1.6
    assert 20 <= tree.now < 21


async def test_a_wait_for_a_processor_is_no_sleep(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that could run, and cannot because of others, keeps its turn."""
    tree = Tree(share=0.0, lower_share=0.0)
    assert await ending_of(tree, monkeypatch, may=True, wall_limit_seconds=5) == STARVED
    assert tree.set_niceness == []
