"""A run's time: what its processes have used of it, and when a limit ends the run.

Owns the polls of a program's process tree, and stepping aside: a program that has computed for a
second, or slept for one, may give its place to the next and go on with what the others leave.

Goals. Being set back changes no verdict. CPU limits are in CPU time, and the wall limit leaves out
how long a program waited for a processor: with a place of its own up to the limit once more, since
then others crowd this machine; set back as long as need be, since then we made it wait. It is set
back until its wall limit only, so that nobody waits for it for long.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import trio

from ..process import (
    children,
    cpu_seconds,
    descendants,
    is_runnable,
    longest_run_delay_seconds,
    run_delay_seconds,
    set_niceness,
)
from ..processors import usable_processors
from .limits import CPU, STARVED, WALL, CellLimits, Ending

__all__ = ["StepAside", "Watch", "stay"]

StepAside = Callable[[], bool]
"""Asks whether the program may give its place on; True once it has."""

_LEAST_PAUSE_SECONDS = 0.05
_PAUSE_SECONDS = 0.5
_ASIDE_SECONDS = 1.0
_SET_BACK, _FORWARD = 19, 10  # niceness, the second on top of our own
_MOST_DELAY = 20
"""Wall seconds for a CPU second of a program that is set back. At nice 19 it has a tenth of a
processor beside a program of ours that computes too; less means that others crowd the machine."""
_MEASURES_DELAY = Path("/proc/self/schedstat").exists()


def stay() -> bool:
    """Refuse every wish to step aside."""
    return False


class Watch:
    """Follows the time of one run; of its tree `depth` levels down from `pid` on are its own.

    `counted_seconds` is what is known of its CPU time beside the tree, which forgets children that
    nobody waited for, but for what was seen of them while they lived.
    """

    def __init__(
        self,
        limits: CellLimits,
        step_aside: StepAside,
        counted_seconds: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.cpu_seconds = 0.0
        self._counted_seconds = counted_seconds
        self._seen: dict[int, float] = {}
        self._limits = limits
        self._step_aside = step_aside
        self._is_aside = False
        self._is_late = False
        self._is_starved = False

    async def reach_limit(self, pid: int, depth: int) -> Ending:
        """Return which limit a run that begins now has reached, once it has."""
        limits = self._limits
        cores = usable_processors()
        begun_at = busy_at = trio.current_time()
        while True:
            wall_left = self._wall_left_seconds(begun_at, _programs(pid, depth))
            if wall_left <= 0:
                return self._ending_at_wall()
            cpu_left = limits.cpu_limit_seconds - self.cpu_seconds
            pause = min(cpu_left / cores, wall_left, _PAUSE_SECONDS)
            await trio.sleep(max(_LEAST_PAUSE_SECONDS, pause))
            before = self.cpu_seconds
            used = _used_seconds(pid, depth, self._seen)
            self.cpu_seconds = max(before, used, self._counted_seconds())
            if self.cpu_seconds > limits.cpu_limit_seconds:
                return CPU
            now = trio.current_time()
            if self.cpu_seconds > before or any(map(is_runnable, _programs(pid, depth))):
                busy_at = now
            if self.cpu_seconds >= _ASIDE_SECONDS or now - busy_at >= _ASIDE_SECONDS:
                self._go_aside(pid)

    def _go_aside(self, pid: int) -> None:
        """Give the place on, where we may, and set back all that runs, what is new among it too."""
        if _MEASURES_DELAY and (self._is_aside or self._step_aside()):
            self._is_aside = True
            forward = min(_SET_BACK, os.getpriority(os.PRIO_PROCESS, 0) + _FORWARD)
            set_niceness(pid, forward if self._is_late else _SET_BACK)

    def _wall_left_seconds(self, begun_at: float, programs: list[int]) -> float:
        """Return the seconds left; waiting for a processor adds some, as the module says."""
        wall = self._limits.wall_limit_seconds
        left = begun_at + wall - trio.current_time()
        if left > 0:
            return left
        self._is_late = True
        if self._is_aside:
            delay = max(map(longest_run_delay_seconds, programs), default=0.0)
            most = wall + _MOST_DELAY * self._limits.cpu_limit_seconds
            self._is_starved = not programs or delay > most
            return left + min(delay, most)
        # Only a program of one process is believed: a crowd of its own makes its own delay.
        delay = _delay_seconds(programs[0], begun_at) if len(programs) == 1 else 0.0
        self._is_starved = not programs or delay > wall / 2
        return left + min(delay, wall)

    def _ending_at_wall(self) -> Ending:
        if self._is_starved:
            return STARVED
        is_busy = self.cpu_seconds > self._limits.wall_limit_seconds / 2
        return CPU if is_busy else WALL


def _delay_seconds(pid: int, begun_at: float) -> float:
    """Return how long a program has waited for a processor: all along, where it waits now."""
    if is_runnable(pid):
        return trio.current_time() - begun_at - cpu_seconds(pid, own=True)
    return run_delay_seconds(pid)


def _programs(pid: int, depth: int) -> list[int]:
    """Return the program's processes, without bubblewrap's and the runner's own."""
    level = [pid]
    for _ in range(depth):
        level = [grandchild for pid in level for grandchild in children(pid)]
    return level + [pid for one in level for pid in descendants(one)]


def _used_seconds(pid: int, depth: int, seen: dict[int, float]) -> float:
    """Return the CPU seconds of the whole tree, without bubblewrap's and the runner's own.

    `seen` keeps what each process was last seen to have used; all of that was used too.
    """
    level, at, seconds = [pid], 0, 0.0
    while level:
        for one in level:
            waited_for = cpu_seconds(one, own=False)
            if at >= depth:
                own = cpu_seconds(one, own=True) - waited_for
                seen[one] = max(own, seen.get(one, 0.0))
                seconds += own
            if at:
                seconds += waited_for
        level = [grandchild for pid in level for grandchild in children(pid)]
        at += 1
    return max(seconds, sum(seen.values()))
