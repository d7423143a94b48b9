"""The quickstart with its environment on another machine: a tunnel, a token and TLS in between."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ports import free_port
from server_process import ServerProcess
from sshd import Sshd
from tunnel import opened

ROOT = Path(__file__).parent.parent.parent

pytestmark = [pytest.mark.slow, pytest.mark.train]


def test_the_quickstart_trains_through_a_tunnel(
    gpu: Sshd,
    start_server: Callable[..., ServerProcess],
    certificate: tuple[Path, Path],
    quickstart_model: Path,
    tmp_path: Path,
) -> None:
    """The model of scripts/make_tiny_model.py, three steps of 16 × 8: every answer is scored."""
    cert, key = map(str, certificate)
    token = tmp_path / "token"
    token.write_text("of-the-tunnel\n")
    server = start_server(
        *("--max-concurrent-envs", "129", "--env-config", '{"max_tests": 4}'),
        *("--tls-cert", cert, "--tls-key", key, "--token-file", str(token)),
    )
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    run = tmp_path / "run"
    with opened(gpu, tmp_path, local_port=server.port, remote_port=port) as tunnel:
        tunnel.wait_for(f"tunnel: up: {url} on gpu")

        access = ("--token-file", str(token), "--ca-file", cert)
        probe = ("probe", url, "--sessions", "8", "--steps", "1", *access)
        subprocess.run([sys.executable, "-m", "envhost", *probe], check=True, cwd=ROOT)
        settings = {
            "environment.entrypoint": "null",
            "environment.env_config": "{}",
            "environment.env_url": url,
            "environment.env_token_file": token,
            "environment.env_ca_file": cert,
            "network.pretrained_model_name_or_path": quickstart_model,
            "training.max_steps": 384,
            "training.eval_loop": 8,
        }
        changes = [word for name in settings for word in ("--set", f"{name}={settings[name]}")]
        train = ("rltrain", "scripts/quickstart.yaml", "--device", "cpu", "--output", run)
        subprocess.run([sys.executable, "-m", *train, *changes], check=True, cwd=ROOT)

    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [(record["episodes"], record["unscored"]) for record in records] == [(128, 0)] * 3
    assert all(record["solved"] > 0 for record in records)
    assert server.log().count("session.opened") >= 128 + 1
    assert "of-the-tunnel" not in server.log() + tunnel.said()
