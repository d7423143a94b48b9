"""The HAProxy of docs/deploy/haproxy.cfg in front of two servers of a test's own."""

from __future__ import annotations

import csv
import io
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ports import free_port
from rawclient import wait_until
from server_process import ServerProcess, serve

__all__ = ["CONFIG", "Site", "haproxy"]

CONFIG = Path(__file__).parent.parent / "docs" / "deploy" / "haproxy.cfg"


def haproxy() -> str:
    """Return the path of the program."""
    found = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    assert found, "haproxy is missing: apt-get install haproxy"
    return found


class Balancer:
    """A running HAProxy."""

    def __init__(self, port: int, control: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._control = control

    def ask(self, command: str) -> str:
        """Send a command to its admin socket and return the answer."""
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(10)
            client.connect(str(self._control))
            client.sendall(command.encode() + b"\n")
            answer = b""
            while part := client.recv(1 << 16):
                answer += part
        return answer.decode()

    def rows(self) -> dict[str, dict[str, str]]:
        """Return its statistics of each server."""
        table = csv.DictReader(io.StringIO(self.ask("show stat").removeprefix("# ")))
        return {
            row["svname"]: row
            for row in table
            if row["pxname"] == "environments" and row["svname"] != "BACKEND"
        }

    def sessions(self) -> dict[str, int]:
        """Return how many connections each server has."""
        return {name: int(row["scur"]) for name, row in self.rows().items()}

    def wait_for(self, name: str, status: str) -> None:
        """Wait until a server's checks have brought it to a status: UP, DOWN, DRAIN."""
        wait_until(lambda: self.rows()[name]["status"].startswith(status))


@contextmanager
def balanced(port: int, one: int, two: int) -> Iterator[Balancer]:
    """Run HAProxy on a port in front of two servers' ports until the context ends."""
    with tempfile.TemporaryDirectory() as name:  # short: a socket's path has 107 bytes
        folder = Path(name)
        control = folder / "admin.sock"
        text = CONFIG.read_text()
        for old, new in (
            ("bind 127.0.0.1:8000", f"bind 127.0.0.1:{port}"),
            ("server one 10.0.0.11:8000\n", f"server one 127.0.0.1:{one}\n"),
            ("server two 10.0.0.12:8000\n", f"server two 127.0.0.1:{two}\n"),
            ("stats socket /run/haproxy/admin.sock", f"stats socket {control}"),
            # These need root; nothing else of the file is changed.
            ("    user haproxy\n    group haproxy\n", ""),
        ):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        config = folder / "haproxy.cfg"
        config.write_text(text)
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [haproxy(), "-db", "-f", config], stdout=output, stderr=output
            )
        try:
            wait_until(lambda: control.exists() or process.poll() is not None)
            assert process.poll() is None, log.read_text()
            yield Balancer(port, control)
        finally:
            process.kill()
            process.wait()


class Site:
    """Two servers on fixed ports, and what stands in front of them."""

    def __init__(self, folder: Path, entrypoint: str) -> None:
        self.ports = {"one": free_port(), "two": free_port()}
        self.front = free_port()
        self.balancer: Balancer
        self._folder = folder
        self._entrypoint = entrypoint
        self._stack = ExitStack()

    def start(self, name: str, *options: str) -> ServerProcess:
        """Start a server and wait until HAProxy knows."""
        port = str(self.ports[name])
        server = self._stack.enter_context(
            serve(self._folder, self._entrypoint, "--port", port, *options)
        )
        self.balancer.wait_for(name, "UP")
        return server

    @contextmanager
    def open(self) -> Iterator[Site]:
        """Run HAProxy; the servers end with it."""
        with balanced(self.front, **self.ports) as self.balancer, self._stack:
            yield self
