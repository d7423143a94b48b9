"""What a program may have left behind: processes, descriptors, files, memory groups.

The test process is made the reaper of all that its descendants leave, so that no process of a test,
whatever it does, can leave the tree below it: what remains there is a leak of ours and of nobody
else's on the machine.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from envhost.process import descendants

__all__ = ["nothing_left", "wait_for_no_descendants"]

_PR_SET_CHILD_SUBREAPER = 36
_BOUND_SECONDS = 20.0
_PLACES = ("/tmp", "/run", "/dev/shm")


@contextmanager
def nothing_left(uid: int = 65534) -> Iterator[None]:
    """Assert that what runs inside leaves no process, descriptor or file; programs' are `uid`'s."""
    libc = ctypes.CDLL(None)
    before = descendants(os.getpid())
    files, descriptors = _files(uid), _descriptors()
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
        wait_for_no_descendants(before)
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    assert _descriptors() == descriptors
    assert not _files(uid) - files


def wait_for_no_descendants(known: list[int]) -> None:
    """Wait, with a generous bound, until all processes below this one have ended; reap them."""
    deadline = time.monotonic() + _BOUND_SECONDS
    for pid in set(descendants(os.getpid())).difference(known):
        _wait_for_end(pid, deadline - time.monotonic())
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    left = set(descendants(os.getpid())).difference(known)
    if left and time.monotonic() < deadline:  # what those left came to us meanwhile
        wait_for_no_descendants(known)


def _wait_for_end(pid: int, seconds: float) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poller = select.poll()
        poller.register(pidfd, select.POLLIN)
        assert poller.poll(max(0.0, seconds) * 1000), f"still alive: {pid}: {_command(pid)}"
    finally:
        os.close(pidfd)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:300]


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _files(uid: int) -> set[str]:
    """Return what is ours or a cell's in the places where programs can write."""
    found = set()
    for place in _PLACES:
        for entry in os.scandir(place):
            with suppress(FileNotFoundError):
                if f"-{os.getpid()}-" in entry.name or entry.stat().st_uid == uid:
                    found.add(entry.path)
    return found
