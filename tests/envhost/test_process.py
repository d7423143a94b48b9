"""A child process: its group, its output, its end."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio

from envhost.process import (
    Child,
    children,
    cpu_seconds,
    descendants,
    read_at_once,
    read_bounded,
    read_tail,
    run_delay_seconds,
    start_child,
)

TREE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    os.fork()
os.write(1, f"{os.getpid()}\\n".encode())
time.sleep(1e9)
"""


class Started:
    """A child that runs a Python text, and the pipe with its output."""

    def __init__(self, child: Child, output: int) -> None:
        self.child = child
        self.output = output


class start:
    """Start a Python text; its output is a pipe."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._stack = ExitStack()

    async def __aenter__(self) -> Started:
        output, output_end = os.pipe()
        self._stack.callback(os.close, output)
        self._context = start_child(
            [sys.executable, "-S", "-c", self._source],
            stdin=-3,  # DEVNULL
            stdout=output_end,
            stderr=2,
            pass_fds=(),
            user=None,
            cwd="/",
            env={},
        )
        child = await self._context.__aenter__()
        os.close(output_end)
        return Started(child, output)

    async def __aexit__(self, *error: object) -> None:
        await self._context.__aexit__(*error)
        self._stack.close()


def read_pids(output: int, count: int) -> list[int]:
    """Return the process ids that a tree has written."""
    text = b""
    while text.count(b"\n") < count:
        text += os.read(output, 100)
    return [int(word) for word in text.split()]


def has_ended(pid: int) -> bool:
    """Whether a process ends within a generous time."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    with os.fdopen(pidfd):
        return bool(select.select([pidfd], [], [], 30)[0])


async def test_the_status_is_the_childs() -> None:
    """A child that ended by itself keeps its exit code."""
    async with start("raise SystemExit(7)") as started:
        await started.child.wait()
        assert await started.child.end() == 7


async def test_all_descendants_are_killed() -> None:
    """Children that ignore signals and left the group are killed too."""
    async with start(TREE) as started:
        pids = read_pids(started.output, 3)
        assert set(descendants(started.child.pid)) == set(pids) - {started.child.pid}
        assert len(children(started.child.pid)) == 1
    assert all(map(has_ended, pids))


async def test_killed_on_cancellation() -> None:
    """A cancelled block leaves no process."""
    pids = []
    with trio.CancelScope() as scope:
        async with start(TREE) as started:
            pids = read_pids(started.output, 3)
            scope.cancel()
            await trio.sleep_forever()
    assert len(pids) == 3
    assert all(map(has_ended, pids))


async def test_killed_on_an_exception() -> None:
    """An exception in the block leaves no process, and is not changed."""
    pids = []
    with pytest.raises(KeyError):  # noqa: PT012 - the block is the subject
        async with start(TREE) as started:
            pids = read_pids(started.output, 3)
            raise KeyError
    assert all(map(has_ended, pids))


async def test_a_signal_is_a_negative_status() -> None:
    """A child that was killed says by which signal."""
    async with start("import os; os.kill(os.getpid(), 11)") as started:
        await started.child.wait()
        assert await started.child.end() == -signal.SIGSEGV


async def test_a_program_that_is_not_there() -> None:
    """What cannot be started is an OSError."""
    with pytest.raises(FileNotFoundError):
        async with start_child(
            ["/nothing"], stdin=0, stdout=1, stderr=2, pass_fds=(), user=None, cwd="/", env={}
        ):
            pass


async def test_output_beyond_the_limit_is_dropped() -> None:
    """Reading goes on above the limit, keeps nothing of it, and tells."""
    told: list[int] = []
    kept = bytearray()
    async with start("import os\nfor _ in range(100): os.write(1, b'x' * 5000)") as started:
        await read_bounded(started.output, kept, 12_345, lambda: told.append(1))
    assert kept == b"x" * 12_345
    assert told


async def test_output_at_the_limit_is_whole() -> None:
    """An output of exactly the limit is no overflow."""
    told: list[int] = []
    kept = bytearray()
    async with start("import os; os.write(1, b'x' * 5000)") as started:
        await read_bounded(started.output, kept, 5000, lambda: told.append(1))
    assert (len(kept), told) == (5000, [])


async def test_only_the_end_is_kept() -> None:
    """Of an endless error output the last bytes stay."""
    kept = bytearray()
    async with start("import os\nfor n in range(9): os.write(1, b'%d' % n * 5000)") as started:
        await read_tail(started.output, kept, 6000)
    assert kept == b"7" * 1000 + b"8" * 5000


async def test_what_was_read_survives_a_cancellation() -> None:
    """A reader that is cancelled has kept what came."""
    kept = bytearray()
    source = "import os, time; os.write(1, b'early'); time.sleep(1e9)"
    async with start(source) as started, trio.open_nursery() as nursery:
        nursery.start_soon(read_bounded, started.output, kept, 100, lambda: None)
        while not kept:
            await trio.sleep(0.001)
        nursery.cancel_scope.cancel()
    assert kept == b"early"


async def test_times_of_a_process() -> None:
    """CPU time and run delay are the kernel's, and 0 for a process that is not there."""
    source = "import os, time\nwhile time.process_time() < 0.1: pass\nos.write(1, b'1\\n')\ninput()"
    async with start(source.replace("input()", "time.sleep(1e9)")) as started:
        read_pids(started.output, 1)
        assert cpu_seconds(started.child.pid, own=True) >= 0.08  # counted in ticks of 10 ms
        assert cpu_seconds(started.child.pid, own=False) == 0
        assert run_delay_seconds(started.child.pid) >= 0
    assert cpu_seconds(started.child.pid, own=True) == 0
    assert run_delay_seconds(started.child.pid) == 0


async def test_gives_way() -> None:
    """Where the kernel groups by session, a child's group weighs less than ours."""
    async with start("import time; time.sleep(1e9)") as started:
        group = Path(f"/proc/{started.child.pid}/autogroup")
        if os.geteuid() != 0 or not group.exists():
            pytest.skip("no autogroup, or no right to set it at any time")
        started.child.give_way()
        assert group.read_text().split()[-2:] == ["nice", "10"]


def test_what_a_pipe_holds_is_read_without_waiting() -> None:
    """All that is there, in order, and whether the pipe has come to its end."""
    read_end, write_end = os.pipe()
    taken: list[bytes] = []
    os.write(write_end, b"a" * 65536)
    assert not read_at_once(read_end, taken.append)
    os.write(write_end, b"b")
    os.close(write_end)
    assert read_at_once(read_end, taken.append)
    os.close(read_end)
    assert b"".join(taken) == b"a" * 65536 + b"b"
