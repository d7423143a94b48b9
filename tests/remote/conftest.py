"""Fixtures of two machines that are one: a tunnel's both ends."""

from __future__ import annotations

from collections.abc import Iterator

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
