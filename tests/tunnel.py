"""`scripts/tunnel.sh` as a process, for tests."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rawclient import wait_until
from sshd import Sshd

__all__ = ["SCRIPT", "Tunnel", "opened", "run_tunnel"]

SCRIPT = Path(__file__).parent.parent / "scripts" / "tunnel.sh"


def run_tunnel(*arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run the script to its end; nobody is at a terminal."""
    return subprocess.run(
        ["setsid", "--wait", SCRIPT, *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )


class Tunnel:
    """A running tunnel."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self.process = process
        self._output = output

    def said(self) -> str:
        """Return what it has printed."""
        return self._output.read_text()

    def wait_for(self, words: str, *, count: int = 1) -> None:
        """Wait until it has said something so often."""
        wait_until(lambda: self.said().count(words) >= count)

    def stop(self, with_signal: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        return self.process.wait(30)


@contextmanager
def opened(
    sshd: Sshd, folder: Path, *arguments: str, local_port: int, remote_port: int
) -> Iterator[Tunnel]:
    """Keep a tunnel until the context ends."""
    output = folder / f"tunnel-{remote_port}.log"
    with output.open("wb") as stdout:
        process = subprocess.Popen(
            [
                *(SCRIPT, "gpu", "-F", sshd.client),
                *("--local-port", str(local_port), "--remote-port", str(remote_port)),
                *arguments,
            ],
            stdout=stdout,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    tunnel = Tunnel(process, output)
    try:
        yield tunnel
    finally:
        tunnel.stop()
