"""How long a running program's processes outlive its session's socket.

Owns finding those processes: the descendants of the server that were not there before the step and
have used some CPU time, once there are four of them, as many as the program forks.
"""

from __future__ import annotations

import os
import select
import sys
import time

import psutil

from .servers import ROOT, Target, running

sys.path.insert(0, str(ROOT / "tests"))

from rawclient import RawClient

__all__ = ["kill_times"]

_PROGRAM = "```python\nimport os\nos.fork()\nos.fork()\nwhile True:\n    pass\n```"
_PATIENCE_SECONDS = 30.0


def kill_times(times: int) -> dict[str, float]:
    """Return how long the processes of a running program outlive their session's socket."""
    argv = [sys.executable, "-m", "envhost", "serve", "--port", "0", "--log-level", "warning"]
    with running(argv) as target:
        assert target.pid is not None
        server = psutil.Process(target.pid)
        seconds = [_one_kill(target, server) for _ in range(times)]
    ordered = sorted(seconds)
    return {
        "times": times,
        "p50_ms": 1000 * ordered[len(ordered) // 2],
        "p99_ms": 1000 * ordered[int(len(ordered) * 0.99)],
        "worst_ms": 1000 * ordered[-1],
    }


def _one_kill(target: Target, server: psutil.Process) -> float:
    before = {child.pid for child in server.children(recursive=True)}
    client = RawClient(int(target.url.rpartition(":")[2]))
    client.reset(seed=1)
    client.send({"type": "step", "data": {"message": _PROGRAM}})
    started = time.monotonic()
    while not (programs := _at_work(server, before)):
        if time.monotonic() - started > _PATIENCE_SECONDS:
            raise SystemExit(f"the program did not start within {_PATIENCE_SECONDS:g} s")
        time.sleep(0.01)
    descriptors = [os.pidfd_open(process.pid) for process in programs]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    closed_at = time.perf_counter()
    client.drop()
    left = set(descriptors)
    while left:
        ended = poll.poll(1000 * _PATIENCE_SECONDS)
        if not ended:
            raise SystemExit(f"{len(left)} processes are left after {_PATIENCE_SECONDS:g} s")
        for descriptor, _ in ended:
            poll.unregister(descriptor)
            left.discard(descriptor)
    gone_at = time.perf_counter()
    for descriptor in descriptors:
        os.close(descriptor)
    return gone_at - closed_at


def _at_work(server: psutil.Process, before: set[int]) -> list[psutil.Process]:
    """Return the new processes once a forked program of theirs has used some CPU."""
    new = [child for child in server.children(recursive=True) if child.pid not in before]
    try:
        spinning = [child for child in new if sum(child.cpu_times()[:2]) > 0.05]
    except psutil.NoSuchProcess:
        return []
    # Not all that is new: a warm pool that refills starts processes of its own, which stay.
    return spinning if len(spinning) >= 4 else []
