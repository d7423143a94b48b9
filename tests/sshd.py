"""A real sshd of a test's own: throw-away keys, a high port, nothing of the system's touched."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from ports import free_port, is_open
from rawclient import wait_until

__all__ = ["Sshd", "make_key", "running_sshd"]


def make_key(path: Path) -> Path:
    """Write a key pair."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", path]
    subprocess.run(command, check=True)
    return path


class Sshd:
    """A machine's ssh server; `client` is an ssh configuration that gets in.

    Args:
        folder: Where keys, configuration and logs lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.host_key = make_key(folder / "host_key")
        self.key = make_key(folder / "key")
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.write_text(
            f"[127.0.0.1]:{self.port} {self.host_key.with_suffix('.pub').read_text()}"
        )
        self.keys = folder / "authorized_keys"
        self.keys.write_text(self.key.with_suffix(".pub").read_text())
        self.client = folder / "ssh_config"
        self.client.write_text(
            f"Host gpu\n  HostName 127.0.0.1\n  Port {self.port}\n  IdentityFile {self.key}\n"
            f"  UserKnownHostsFile {self.known_hosts}\n  GlobalKnownHostsFile /dev/null\n"
            "  IdentitiesOnly yes\n  IdentityAgent none\n  BatchMode yes\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Listen; an option is a line of sshd_config, and wins over what stands here."""
        config = self.folder / "sshd_config"
        lines = (
            *options,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"AuthorizedKeysFile {self.keys}",
            f"PidFile {self.folder / 'pid'}",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin prohibit-password",
            "PasswordAuthentication no",
        )
        config.write_text("\n".join(lines) + "\n")
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its separated part lives there
        sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        assert sshd, "sshd is missing: apt-get install openssh-server"
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sshd, "-D", "-e", "-f", config], stderr=log, stdin=subprocess.DEVNULL
            )
        wait_until(lambda: is_open(self.port) or self._process is None or self._process.poll())
        assert self._process.poll() is None, self.log()

    def stop(self) -> None:
        """Kill it and every connection that it serves, as a crash of the machine would."""
        if self._process is None:
            return
        tree = [*psutil.Process(self._process.pid).children(recursive=True), self._process]
        for process in tree:
            process.kill()
        self._process.wait()
        psutil.wait_procs([p for p in tree if isinstance(p, psutil.Process)], timeout=10)
        self._process = None

    def restart(self, *options: str) -> None:
        """Stop it and start it with other options."""
        self.stop()
        self.start(*options)

    def log(self) -> str:
        """Return what it has said."""
        return (self.folder / "sshd.log").read_text()


@contextmanager
def running_sshd(folder: Path, *options: str) -> Iterator[Sshd]:
    """Run an sshd until the context ends."""
    sshd = Sshd(folder)
    try:
        sshd.start(*options)
        yield sshd
    finally:
        sshd.stop()
