"""A cell whose host is killed after it was started and before it has come to anything.

`orphaned_cell.py KIND with|without`: with the lifeline, nothing may be left; without it, the cell
must be there, or the lifeline would be a guard against nothing. Exit status 0 if that is so.

The host dies while the started process waits for that, so that bubblewrap's own tie to its parent,
made later, is to somebody else. A lifeline is taken away by a process that holds all the host's
descriptors: nobody sees the end of them then.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from killed_host import assert_nothing_left, run_for_ever
from leftovers import wait_for_no_descendants
from rawclient import wait_until

from envhost.process import Child, descendants, start_child
from envhost.sandbox import run, warm

HOST_LIVES = 9  # a shell knows one-digit descriptors only
WHEN_IT_IS_DEAD = f'read nothing <&{HOST_LIVES}; exec {HOST_LIVES}<&-; exec "$@"'
# What a cell consists of once it stands: a program of two processes and the runner, or two parents.
MEMBERS = {"bwrap": ("/cell/runner.py", 3), "warm": ("/cell/warm_parent.py", 2)}


def members(kind: str) -> int:
    """Return how many processes of a cell there are, without bubblewrap's."""
    name, _ = MEMBERS[kind]
    count = 0
    for pid in descendants(os.getpid()):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        count += b"bwrap" not in words[0] and name.encode() in words
    return count


def orphan(kind: str, *, is_held: bool) -> tuple[int, int]:
    """Fork a host that starts a cell and dies; return its id and that of the holder, 0 for none."""
    holder, holder_end = os.pipe()
    host = os.fork()
    if not host:
        lives, lives_end = os.pipe()
        os.dup2(lives, HOST_LIVES)

        @asynccontextmanager
        async def start_and_die(argv: list[str], **more: Any) -> AsyncIterator[Child]:
            pid = os.fork() if is_held else 0
            if is_held and not pid:
                os.close(lives_end)
                signal.pause()
            os.write(holder_end, b"%d" % pid)
            more["pass_fds"] = [*more["pass_fds"], HOST_LIVES]
            late = ["sh", "-c", WHEN_IT_IS_DEAD, "sh", *argv]
            async with start_child(late, **more) as child:
                os.kill(os.getpid(), signal.SIGKILL)
                yield child

        run.start_child = warm.start_child = start_and_die
        trio.run(run_for_ever, kind, os.open("/dev/null", os.O_WRONLY))
    os.close(holder_end)
    os.waitpid(host, 0)
    return host, int(os.read(holder, 20))


def main(kind: str, *, is_held: bool) -> None:
    """See what becomes of an orphaned cell."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    host, holder = orphan(kind, is_held=is_held)
    if is_held:
        wait_until(lambda: members(kind) == MEMBERS[kind][1])
        assert holder in descendants(os.getpid())
        os.kill(holder, signal.SIGKILL)  # and with it the lifeline
    wait_for_no_descendants([])
    assert_nothing_left(kind, [host])


if __name__ == "__main__":
    main(sys.argv[1], is_held=sys.argv[2] == "without")
