"""Several environment servers behind the real HAProxy with the configuration of docs."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from balancer import CONFIG, Site, haproxy
from rawclient import wait_for_log, wait_until
from server_process import ServerProcess

from envhost.client import EnvClient, EnvPool
from envhost.errors import ServerBusy

# They need haproxy, which scripts/test.sh --fast does not install.
pytestmark = pytest.mark.slow


@pytest.fixture
def site(tmp_path: Path, echo_entrypoint: str) -> Iterator[Site]:
    """Return a site of echo environments, its servers not started."""
    with Site(tmp_path, echo_entrypoint).open() as site:
        yield site


def test_the_configuration_is_one() -> None:
    """HAProxy takes the file as it stands."""
    subprocess.run([haproxy(), "-c", "-f", CONFIG], check=True, capture_output=True)


def test_sessions_go_to_the_server_with_the_fewest(site: Site) -> None:
    """Eight sessions are four each; what closes on one is opened there again."""
    servers = {name: site.start(name) for name in ("one", "two")}
    clients = [EnvClient(site.balancer.url) for _ in range(8)]
    for seed, client in enumerate(clients):
        assert client.reset(seed=seed)[0] == f"hello {seed}"
    assert site.balancer.sessions() == {"one": 4, "two": 4}

    for client in clients[:8:2]:
        client.close()
    wait_until(lambda: sum(site.balancer.sessions().values()) == 4)
    before = site.balancer.sessions()
    for client in clients[:8:2]:
        client.reset(seed=1)
    assert site.balancer.sessions() == {"one": 4, "two": 4}, before
    for client in clients:
        client.close()
    assert all("session.opened" in server.log() for server in servers.values())


def test_a_full_server_gets_no_more(site: Site) -> None:
    """Its /readyz says so; with all of them full, a client is told and may wait."""
    site.start("one", "--max-concurrent-envs", "1")
    site.start("two", "--max-concurrent-envs", "2")
    with EnvPool(site.balancer.url, 3, retry_seconds=30) as pool:
        for slot in range(3):
            pool.submit_reset(slot, seed=slot)
        assert [result.error for result in pool.results()] == [None] * 3
        site.balancer.wait_for("one", "DOWN")
        site.balancer.wait_for("two", "DOWN")
        assert site.balancer.sessions() == {"one": 1, "two": 2}

        with pytest.raises(ServerBusy, match="503"):
            EnvClient(site.balancer.url, retry_seconds=0).reset()
        for slot in range(3):
            pool.submit(slot, "abc")
        assert [result.reward for result in pool.results()] == [3.0] * 3


def test_a_draining_server_hands_its_sessions_over(site: Site) -> None:
    """SIGTERM at a server: its sessions at rest end, and open on the other without an error."""
    servers = {name: site.start(name) for name in ("one", "two")}
    with EnvPool(site.balancer.url, 6) as pool:
        for slot in range(6):
            pool.submit_reset(slot, seed=slot)
        assert all(result.error is None for result in pool.results())
        assert site.balancer.sessions() == {"one": 3, "two": 3}

        assert servers["one"].stop(signal.SIGTERM) == 0
        for slot in range(6):
            pool.submit_reset(slot, seed=slot)

        assert [result.error for result in pool.results()] == [None] * 6
        assert site.balancer.sessions()["two"] == 6


def _activities(server: ServerProcess) -> list[str]:
    with urllib.request.urlopen(f"{server.url}/sessions") as reply:
        return [row["activity"] for row in json.load(reply)]


def test_a_refusal_before_the_check_is_not_seen(site: Site) -> None:
    """A server that has just begun to drain answers 503: HAProxy asks the other one at once."""
    one = site.start("one")
    with EnvPool(site.balancer.url, 1) as running:
        running.submit_reset(0)
        assert next(running.results()).error is None
        site.start("two")
        site.balancer.ask("set server environments/one state drain")
        others = [EnvClient(site.balancer.url) for _ in range(2)]
        for client in others:
            client.reset()
        site.balancer.ask("set server environments/one state ready")
        site.balancer.wait_for("one", "UP")
        assert site.balancer.sessions() == {"one": 1, "two": 2}
        running.submit(0, "sleep")  # the server waits for it, and so stays where it is
        wait_until(lambda: _activities(one) == ["step"])

        one.process.send_signal(signal.SIGTERM)
        wait_for_log(one, "server.draining")
        newcomer = EnvClient(site.balancer.url, retry_seconds=0)
        newcomer.reset()

        assert site.balancer.sessions() == {"one": 1, "two": 3}
        for client in (newcomer, *others):
            client.close()


def test_the_token_passes_through(site: Site, tmp_path: Path) -> None:
    """With a token the servers ask for no known Host, and the check needs none."""
    token = tmp_path / "token"
    token.write_text("secret-token")
    site.start("one", "--token-file", str(token))
    with EnvClient(site.balancer.url, token="secret-token") as client:
        assert client.reset(seed=2)[0] == "hello 2"
