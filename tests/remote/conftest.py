"""Fixtures of two machines that are one: a tunnel's both ends."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sshd import Sshd, running_sshd


@pytest.fixture(scope="session")
def far_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """Hold an sshd for all tests of a session; one that changes it uses `restart`."""
    with running_sshd(tmp_path_factory.mktemp("sshd")) as sshd:
        yield sshd


@pytest.fixture
def gpu(far_side: Sshd) -> Sshd:
    """Return the sshd, listening with its usual options."""
    far_side.restart()
    return far_side


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """Return a certificate that is its own authority, and its key, for 127.0.0.1."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key
