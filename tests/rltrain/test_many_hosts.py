"""A training run against several servers, of which any may go and come."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from balancer import Site
from rawclient import wait_until
from server_process import ServerProcess

from envhost.client import EnvClient
from rltrain.metrics import read_records

Start = Callable[..., ServerProcess]

# It needs haproxy, which scripts/test.sh --fast does not install.
pytestmark = [pytest.mark.slow, pytest.mark.train]


def test_a_training_run_outlives_its_servers(
    tmp_path: Path, words_entrypoint: str, tiny_model: Path
) -> None:
    """One is drained, killed and started again, then the other is told to end: training goes on."""
    run = tmp_path / "run"
    with Site(tmp_path, words_entrypoint).open() as site:
        servers = {name: site.start(name) for name in ("one", "two")}
        manifest = _manifest(tmp_path, site.balancer.url, tiny_model)
        with (tmp_path / "train.log").open("wb") as log:
            training = subprocess.Popen(
                [sys.executable, "-m", "rltrain", manifest, "--output", run, "--device", "cpu"],
                stdout=log,
                stderr=log,
            )
        try:
            _wait_for_steps(run, training, 3)
            assert site.balancer.sessions() == {"one": 4, "two": 4}

            site.balancer.ask("set server environments/one state drain")
            with EnvClient(site.balancer.url) as newcomer:
                newcomer.reset(seed=1)
                assert site.balancer.sessions()["two"] == 5
            servers["one"].stop(signal.SIGKILL)
            _wait_for_steps(run, training, 5)
            assert site.balancer.sessions() == {"one": 0, "two": 8}

            site.balancer.ask("set server environments/one state ready")
            site.start("one")
            servers["two"].stop(signal.SIGTERM)
            _wait_for_steps(run, training, 5)
            assert site.balancer.sessions() == {"one": 8, "two": 0}

            training.send_signal(signal.SIGTERM)
            assert training.wait(60) == 0, (tmp_path / "train.log").read_text()
        finally:
            training.kill()
            training.wait()
    records = _records(run)
    assert [record["step"] for record in records] == list(range(1, len(records) + 1))
    # Only what ran on the killed server was lost, and lost once; nothing of it counts as 0.
    assert sum(record["unscored"] for record in records) <= 4 + 4
    assert records[-1]["unscored"] == 0


def test_a_list_of_servers_loses_one(
    tmp_path: Path, start_server: Start, words_entrypoint: str, tiny_model: Path
) -> None:
    """Killed in mid-run: its four sessions open on the other server, and every step is taken."""
    import torch

    from rltrain.launch import Launch
    from rltrain.manifest_file import read_manifest

    run = tmp_path / "run"
    servers = [start_server(words_entrypoint) for _ in range(2)]
    source = _manifest(tmp_path, [server.url for server in servers], tiny_model, max_steps=320)
    killer = threading.Thread(target=_kill_after, args=(servers[0], run, 3))
    killer.start()

    Launch(
        manifest=read_manifest(source)[0],
        source=source,
        folder=run,
        device=torch.device("cpu"),
        is_resumed=False,
    ).run()
    killer.join()

    records = _records(run)
    assert len(records) == 40
    assert sum(record["unscored"] for record in records) <= 4
    assert records[-1]["unscored"] == 0
    # One of the two was asked for its facts, in a session of its own.
    opened = [server.log().count("session.opened") for server in servers]
    assert opened[0] in {4, 5}
    assert opened[1] in {8, 9}


def _kill_after(server: ServerProcess, run: Path, steps: int) -> None:
    wait_until(lambda: len(_records(run)) >= steps, seconds=120)
    server.stop(signal.SIGKILL)


def _manifest(folder: Path, url: str | list[str], model: Path, max_steps: int = 10**6) -> Path:
    path = folder / "manifest.yaml"
    content = {
        "algorithm": {
            "name": "CISPO",
            "batch_size": 2,
            "group_size": 4,
            "lr": 1e-3,
            "max_output_tokens": 6,
        },
        "environment": {"env_url": url, "max_turns": 1, "max_reward": 1.0},
        "training": {"max_steps": max_steps, "evaluation_interval": 1_000_000, "eval_loop": 1},
        "network": {"pretrained_model_name_or_path": str(model)},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _records(run: Path) -> list[dict[str, Any]]:
    return read_records(run / "metrics.jsonl")  # which may be looked at in mid-write


def _wait_for_steps(run: Path, training: subprocess.Popen[bytes], count: int) -> None:
    """Wait until so many more steps have been taken."""
    wanted = len(_records(run)) + count

    def taken() -> bool:
        assert training.poll() is None, "the run has ended"
        return len(_records(run)) >= wanted

    wait_until(taken, seconds=120)
