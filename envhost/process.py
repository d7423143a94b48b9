"""One child process in a group of its own: bounded output, true status, killed on every path.

Owns starting, reading and killing. The child is started from the calling thread, since a parent
death signal follows the thread that forked, and trio's own worker threads end when idle. Its end
is seen on a pidfd; its group is killed before it is reaped, so that the number cannot mean
somebody else.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress

import trio

__all__ = [
    "Child",
    "children",
    "cpu_seconds",
    "descendants",
    "is_runnable",
    "longest_run_delay_seconds",
    "read_at_once",
    "read_bounded",
    "read_tail",
    "run_delay_seconds",
    "set_niceness",
    "start_child",
    "take_bounded",
    "take_tail",
]

_REAP_SECONDS = 10.0
_KILL_ROUNDS = 20
_CHUNK_BYTES = 65536


class Child:
    """A running child; `start_child` makes it and ends it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process

    def kill(self) -> None:
        """Kill the whole group and all descendants at once; harmless when they are gone."""
        if self._process.returncode is not None:
            return
        # The descendants first, while the tree still shows them; they may have been forking.
        for _ in range(_KILL_ROUNDS):
            living = [pid for pid in descendants(self.pid) if not _is_dead(pid)]
            for pid in living:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            if not living:
                break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def give_way(self) -> None:
        """Let others run first, as far as the kernel allows."""
        _set_session_niceness(self.pid, 10)

    async def wait(self) -> None:
        """Wait for the child's end; it is not reaped before its group has been killed."""
        pidfd = os.pidfd_open(self.pid)
        try:
            await trio.lowlevel.wait_readable(pidfd)
        finally:
            trio.lowlevel.notify_closing(pidfd)
            os.close(pidfd)

    async def end(self) -> int:
        """Kill the group, reap the child and return its exit code, negative for a signal."""
        if self._process.returncode is not None:
            return self._process.returncode
        self.kill()
        with trio.move_on_after(_REAP_SECONDS, shield=True):
            await self.wait()
            return self._process.wait()
        raise RuntimeError(f"process {self.pid} cannot be killed: is it stuck in the kernel?")


@asynccontextmanager
async def start_child(
    argv: Sequence[str],
    *,
    stdin: int,
    stdout: int,
    stderr: int,
    pass_fds: Sequence[int],
    user: int | None,
    cwd: str,
    env: Mapping[str, str],
) -> AsyncIterator[Child]:
    """Start a child in a session of its own; on every way out its whole group is killed.

    The descriptors stay the caller's to close. `user` is a uid and gid to run as, None for ours.

    Raises:
        OSError: It cannot be started.
    """
    process = subprocess.Popen(  # noqa: ASYNC220 - see above: from this very thread
        argv,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
        start_new_session=True,
        env=env,
        cwd=cwd,
        user=user,
        group=user,
        extra_groups=None if user is None else (),
    )
    child = Child(process)
    try:
        yield child
    finally:
        await child.end()


async def read_bounded(
    fd: int, into: bytearray, limit_bytes: int, on_overflow: Callable[[], None]
) -> None:
    """Read a pipe to its end; above the limit call `on_overflow` and drop the rest.

    What was read before a cancellation stands in `into`.
    """
    async with trio.lowlevel.FdStream(os.dup(fd)) as stream:
        async for chunk in stream:
            take_bounded(chunk, into, limit_bytes, on_overflow)


def take_bounded(
    chunk: bytes | bytearray, into: bytearray, limit_bytes: int, on_overflow: Callable[[], None]
) -> None:
    """Add to what was read, as far as the limit allows, else call `on_overflow`."""
    room = limit_bytes - len(into)
    into += chunk[:room]
    if len(chunk) > room:
        on_overflow()


async def read_tail(fd: int, into: bytearray, limit_bytes: int) -> None:
    """Read a pipe to its end and keep its last bytes."""
    async with trio.lowlevel.FdStream(os.dup(fd)) as stream:
        async for chunk in stream:
            take_tail(chunk, into, limit_bytes)


def take_tail(chunk: bytes | bytearray, into: bytearray, limit_bytes: int) -> None:
    """Add to what was read, and keep the last bytes."""
    into += chunk
    del into[:-limit_bytes]


def read_at_once(fd: int, take: Callable[[bytes], None]) -> bool:
    """Take what a pipe holds, without waiting; return whether it has come to its end."""
    os.set_blocking(fd, False)
    try:
        while chunk := os.read(fd, _CHUNK_BYTES):
            take(chunk)
    except BlockingIOError:
        return False
    return True


_TICKS = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the ids of a process's live children."""
    found: list[int] = []
    for thread in _threads(pid):
        found += map(int, _read(f"/proc/{pid}/task/{thread}/children").split())
    return found


def _threads(pid: int) -> list[int]:
    try:
        return list(map(int, os.listdir(f"/proc/{pid}/task")))  # noqa: PTH208 - no Path for each poll
    except OSError:  # it has ended
        return []


def descendants(pid: int) -> list[int]:
    """Return the ids of all live descendants of a process."""
    found: list[int] = []
    waiting = children(pid)
    while waiting:
        found += waiting
        waiting = [grandchild for child in waiting for grandchild in children(child)]
    return found


def cpu_seconds(pid: int, *, own: bool) -> float:
    """Return the CPU time of a process's reaped children, and with `own` its own on top."""
    # The name, in parentheses, may hold blanks and parentheses itself.
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 15:
        return 0.0
    return sum(map(int, fields[11:15] if own else fields[13:15])) / _TICKS


def run_delay_seconds(pid: int) -> float:
    """Return how long a process's main thread could run and waited for a processor.

    A wait that still goes on is not in it.
    """
    fields = _read(f"/proc/{pid}/schedstat").split()
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def longest_run_delay_seconds(pid: int) -> float:
    """Return `run_delay_seconds` of that thread of a process that has waited longest."""
    return max((run_delay_seconds(thread) for thread in _threads(pid)), default=0.0)


def set_niceness(pid: int, niceness: int) -> None:
    """Set the niceness of a process and all below it, as far as the kernel lets us."""
    for one in (pid, *descendants(pid)):
        _set_session_niceness(one, niceness)
        for thread in _threads(one):
            with suppress(OSError):  # it has ended, or may not become less nice
                os.setpriority(os.PRIO_PROCESS, thread, niceness)


def _set_session_niceness(pid: int, niceness: int) -> None:
    """Weigh a process's session where the kernel groups processes by session (autogroup).

    There `nice` inside of a session says nothing about its weight among the others.
    """
    with suppress(OSError), open(f"/proc/{pid}/autogroup", "w") as file:  # noqa: PTH123
        file.write(str(niceness))


def is_runnable(pid: int) -> bool:
    """Whether a process's main thread runs, or waits for a processor at this moment."""
    return _state(pid) == b"R"


def _is_dead(pid: int) -> bool:
    """Whether a process has ended and only waits to be reaped."""
    return _state(pid) in {b"", b"Z", b"X"}


def _state(pid: int) -> bytes:
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].strip()[:1]


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - no Path for each poll
            return file.read()
    except OSError:  # it has ended
        return b""
