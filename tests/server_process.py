"""Real servers as real processes, for tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class ServerProcess:
    """A `python -m envhost serve` of a test's own."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self._log = log

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def log(self) -> str:
        """Return what the server has written to standard error."""
        return self._log.read_text()

    def stop(self, with_signal: int = signal.SIGTERM, timeout: float = 30) -> int:
        """Send a signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        return self.process.wait(timeout)


@contextmanager
def serve(
    directory: Path, *arguments: str, python: str = sys.executable, cwd: Path | None = None
) -> Iterator[ServerProcess]:
    """Run a server on a free port until the context ends."""
    log = directory / f"server-{os.urandom(4).hex()}.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [python, "-m", "envhost", "serve", "--port", "0", *arguments],
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.match(r"Serving (\S+) \(up to \d+ concurrent sessions\)\n", line)
        assert match, f"no serving line but {line!r}; {log.read_text()}"
        yield ServerProcess(process, match[1], log)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
