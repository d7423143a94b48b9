"""The servers that the benchmark starts: ours, and OpenEnv's with the same environment.

Owns starting them and ending them; each is a process of its own that is killed at the end.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from attrs import frozen

__all__ = ["PEERS", "PEER_PIN", "ROOT", "Case", "Serve", "Target", "ours", "running"]

ROOT = Path(__file__).resolve().parent.parent.parent
PEER_PIN = "openenv==0.4.2"
_ENVIRONMENTS = ROOT / "tests" / "interop" / "peers"
_START_SECONDS = 60.0


@frozen(kw_only=True)
class Case:
    """One load to measure; a rate of 0 steps as fast as replies come."""

    sessions: int
    message_bytes: int
    seconds: float
    rate: float
    log_level: str


@frozen
class Target:
    """A server under test; `pid` is None where it runs elsewhere."""

    url: str
    pid: int | None


@contextmanager
def ours(case: Case) -> Iterator[Target]:
    """Serve the echo environment with envhost."""
    argv = [sys.executable, "-m", "envhost", "serve", f"{_ENVIRONMENTS / 'echo_env.py'}:make"]
    argv += ["--port", "0", "--max-concurrent-envs", str(case.sessions)]
    with running([*argv, "--log-level", case.log_level]) as target:
        yield target


@contextmanager
def _openenv(case: Case, *, kind: str) -> Iterator[Target]:
    """Serve the same with OpenEnv's server, which logs nothing a step."""
    maker = [str(ROOT / "scripts" / "interop_venv.sh"), PEER_PIN]
    python = subprocess.run(maker, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    argv = [python, str(_ENVIRONMENTS / "openenv_server.py"), str(port), str(case.sessions), kind]
    with running(argv) as target:
        yield target


@contextmanager
def running(argv: list[str]) -> Iterator[Target]:
    """Run a server that prints `Serving URL` until the context ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Path(os.devnull).open("w") as log:
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("Serving "):
            raise SystemExit(f"no server came up: {' '.join(argv)}")
        url = line.split()[1]
        _wait_for_port(url)
        yield Target(url, process.pid)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def _wait_for_port(url: str) -> None:
    host, _, port = url.rpartition("//")[2].partition(":")
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            socket.create_connection((host, int(port)), 5).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


Serve = Callable[[Case], AbstractContextManager[Target]]

PEERS: dict[str, Serve] = {
    # Its environments are synchronous and run in a thread, as its own echo environment does.
    "openenv": partial(_openenv, kind="sync"),
    "openenv-async": partial(_openenv, kind="async"),
}
