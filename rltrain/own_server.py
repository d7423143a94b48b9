"""An environment server of the run's own: a child process that never outlives the run.

Owns starting `python -m envhost serve`, reading where it listens, and stopping it: at the end of
the context, and by the kernel's hand where the trainer is killed and can do nothing more.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .errors import SetupError
from .manifest import Environment

__all__ = ["own_server"]

_START_SECONDS = 300.0
_STOP_SECONDS = 15.0

# The kernel sends SIGTERM when the parent dies; the second look is for a parent that died before.
# A program of its own, since code between fork and exec is unsafe in a process with threads.
_TIED_TO_PARENT = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 15)
except (OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit("the trainer is gone")
os.execv(sys.executable, [sys.executable, "-m", "envhost", "serve", *sys.argv[2:]])
"""


@contextmanager
def own_server(environment: Environment, *, sessions: int, log: Path) -> Iterator[str]:
    """Serve the manifest's entrypoint on a free loopback port; give its URL.

    Args:
        environment: Its entrypoint and env_config are served.
        sessions: How many sessions the server allows.
        log: File that takes the server's log.

    Raises:
        SetupError: The server did not start; the message ends with what it said.
    """
    assert environment.entrypoint is not None
    arguments = [environment.entrypoint, "--port", "0", "--max-concurrent-envs", str(sessions)]
    if environment.env_config:
        arguments += ["--env-config", json.dumps(dict(environment.env_config))]
    with log.open("w") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-c", _TIED_TO_PARENT, str(os.getpid()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log_file,
            start_new_session=True,  # Ctrl-C is the trainer's; it stops the server itself
        )
        try:
            assert process.stdout is not None
            line = _first_line(process.stdout)
            found = re.match(r"Serving (https?://\S+)", line)
            if found is None:
                raise SetupError(
                    f"environment.entrypoint: the server for {environment.entrypoint} did not "
                    f"start: {_last_line(log) or line or 'it said nothing'}"
                )
            yield found[1]
        finally:
            _stop(process)


def _first_line(stream: IO[bytes]) -> str:
    """Return the first line; empty where the process ended or the time is over before it."""
    give_up_at = time.monotonic() + _START_SECONDS
    line = b""
    while not line.endswith(b"\n"):
        left = give_up_at - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            return ""
        byte = os.read(stream.fileno(), 1)
        if not byte:
            return ""
        line += byte
    return line.decode(errors="replace").strip()


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server: SIGTERM twice (it lets running steps finish only at the first), SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(number)
            try:
                process.wait(1.0 if number == signal.SIGTERM else _STOP_SECONDS)
            except subprocess.TimeoutExpired:
                continue
    if process.stdout is not None:
        process.stdout.close()
