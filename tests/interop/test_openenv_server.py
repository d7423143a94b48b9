"""Our client works against OpenEnv's own server."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ports import free_port
from rawclient import PATIENCE_SECONDS, wait_until

from envhost.client import EnvClient, EnvPool
from envhost.errors import EnvironmentFailed, ProtocolError, ServerBusy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("pin", ["openenv-core==0.3.0", "openenv==0.4.2", "openenv==0.10.*"]),
]

SERVER = Path(__file__).parent / "peers" / "openenv_server.py"
SESSIONS = 4


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS).close()
    except OSError:
        return False
    return True


@pytest.fixture
def openenv_url(pin: str, peer_python: Callable[[str], str]) -> Iterator[str]:
    """Run OpenEnv's server for a test."""
    port = free_port()
    process = subprocess.Popen([peer_python(pin), SERVER, str(port), str(SESSIONS), "sync"])
    try:
        wait_until(lambda: _answers(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def test_an_episode(pin: str, openenv_url: str) -> None:
    """Reset, step, state and the end come out as from our own server."""
    with EnvClient(openenv_url) as client:
        prompt, info = client.reset(seed=7)
        assert prompt == "say something, seed 7"
        # 0.3.0's server drops the metadata of an observation.
        metadata_expected = pin != "openenv-core==0.3.0"
        assert info.get("seed") == (7 if metadata_expected else None)

        text, reward, terminated, truncated, info = client.step("hello")
        assert (text, reward, terminated, truncated) == ("echo hello", 5.0, False, False)
        assert info.get("steps") == (1 if metadata_expected else None)
        assert client.state()["step_count"] == 1
        assert client.step("end")[2] is True


def test_errors(openenv_url: str) -> None:
    """Its errors become the same exceptions, and the session goes on."""
    with EnvClient(openenv_url) as client:
        client.reset()

        with pytest.raises(EnvironmentFailed, match="no such answer"):
            client.step("raise")
        assert client.step("hello")[1] == 5.0

    with EnvClient(openenv_url, action_field="massage") as client:
        client.reset()
        with pytest.raises(ProtocolError):
            client.step("hello")


def test_a_full_server(openenv_url: str) -> None:
    """A refusal is ServerBusy, and a slot that comes free in time is taken by the retry."""
    holders = [EnvClient(openenv_url) for _ in range(SESSIONS)]
    for holder in holders:
        holder.reset()

    with EnvClient(openenv_url, retry_seconds=0.5) as late, pytest.raises(ServerBusy):
        late.reset()

    for holder in holders:
        holder.close()
    with EnvClient(openenv_url) as late:
        assert late.reset(seed=1)[0] == "say something, seed 1"


def test_a_pool(openenv_url: str) -> None:
    """A pool's slots are sessions of their own."""
    with EnvPool(openenv_url, SESSIONS) as pool:
        for slot in range(SESSIONS):
            pool.submit_reset(slot, seed=slot)
            pool.submit(slot, "x" * (slot + 1))

        rewards = {r.slot: r.reward for r in pool.results() if r.kind == "step"}

    assert rewards == {slot: slot + 1.0 for slot in range(SESSIONS)}
