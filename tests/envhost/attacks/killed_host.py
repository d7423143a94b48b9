"""A process that starts cells in children of its own and kills these at random moments.

`killed_host.py KIND TIMES`; exit status 0 once nothing is left of any. The children are forked when
all is imported, so that hundreds take seconds.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import sys
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trio
from leftovers import wait_for_no_descendants

from envhost.sandbox.bwrap import CELL_UID, find_interpreter
from envhost.sandbox.cells import Cells, bwrap_cells, plain_cells
from envhost.sandbox.limits import CellLimits, Program
from envhost.sandbox.memory import find_memory_groups
from envhost.sandbox.warm import warm_cells

# At the start, where the processes are not yet tied to each other, and while the program runs; warm
# cells are first proven, and are killed while that is done too.
DELAYS_SECONDS = {"bwrap": (0.015, 0.15), "plain": (0.015, 0.15), "warm": (0.015, 0.15, 0.5)}
KINDS = {"bwrap": bwrap_cells, "plain": plain_cells, "warm": warm_cells}
SOURCE = b"import os\nos.fork()\nos.setsid() if os.getpid() % 2 else 0\nwhile True: pass\n"


def opened(kind: str) -> AbstractAsyncContextManager[Cells]:
    """Return cells of a kind, to be entered."""
    return KINDS[kind](find_interpreter(None))


async def run_for_ever(kind: str, begun: int) -> None:
    """Say that a cell is about to start, and start it."""
    if kind == "warm":  # the first starts as they are opened
        os.write(begun, b"x")
    async with opened(kind) as cells:
        os.write(begun, b"x")
        await cells.run(Program(source=SOURCE, stdin=b""), CellLimits())


async def sweep(kind: str) -> None:
    """Open cells once more: that removes the groups and directories of killed hosts."""
    async with opened(kind):
        pass


def kill_one(kind: str) -> int:
    """Fork a host, and kill it shortly after it has started a cell; return its id."""
    begun, begun_end = os.pipe()
    child = os.fork()
    if not child:
        trio.run(run_for_ever, kind, begun_end)
        os._exit(0)
    os.close(begun_end)
    assert os.read(begun, 1) == b"x"
    os.close(begun)
    time.sleep(random.uniform(0, random.choice(DELAYS_SECONDS[kind])))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return child


def assert_nothing_left(kind: str, killed: list[int]) -> None:
    """Wait for the end of all processes, and look for files and groups of the killed hosts."""
    wait_for_no_descendants([])
    trio.run(sweep, kind)
    groups = find_memory_groups(CELL_UID if os.geteuid() == 0 else None)
    tops = [Path("/tmp"), Path("/run"), *(() if groups is None else groups._parents)]
    places = [path for top in tops for path in top.glob("envhost-*")]
    left = [path for path in places for pid in killed if f"-{pid}-" in path.name]
    assert not left, left


if __name__ == "__main__":
    random.seed(56)
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    assert_nothing_left(sys.argv[1], [kill_one(sys.argv[1]) for _ in range(int(sys.argv[2]))])
