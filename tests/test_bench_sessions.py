"""The session benchmark measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parent.parent / "scripts" / "bench_sessions.py"


def _bench(tmp_path: Path, *arguments: str) -> Any:
    output = tmp_path / "bench.json"
    argv = [sys.executable, BENCH, *arguments, "--json", output]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    return json.loads(output.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("message_bytes", [10, 500, 200_000])
def test_every_step_is_answered_without_error(
    tmp_path: Path, start_server: Callable[..., Any], echo_entrypoint: str, message_bytes: int
) -> None:
    """A running server is measured by its URL, whatever the size of the messages."""
    server = start_server(echo_entrypoint)

    (report,) = _bench(
        tmp_path, server.url, "--sessions", "8", "--seconds", "0.2",
        "--message-bytes", str(message_bytes),
    )  # fmt: skip

    result = report["results"]["server"]
    assert result["steps"] >= 8
    assert result["errors"] == 0
    assert 0 < result["p50_ms"] <= result["p99_ms"]
    assert 0 < result["handshake_seconds"] <= result["open_seconds"]


@pytest.mark.slow
def test_a_rate_is_kept(
    tmp_path: Path, start_server: Callable[..., Any], echo_entrypoint: str
) -> None:
    """With a rate, as many steps are sent as it says, and no more."""
    server = start_server(echo_entrypoint)

    (report,) = _bench(tmp_path, server.url, "--sessions", "5", "--seconds", "1", "--rate", "100")

    assert 80 <= report["results"]["server"]["steps"] <= 105


def test_our_own_server_is_started_and_weighed(tmp_path: Path) -> None:
    """Without a URL the benchmark starts our server and tells its memory and CPU time."""
    (report,) = _bench(tmp_path, "--sessions", "20", "--seconds", "0.2", "--rounds", "1")

    result = report["results"]["envhost"]
    assert 0 < result["memory_kb_a_session"] < 200
    assert result["server_cpu_us_a_step"] > 0


@pytest.mark.slow
def test_processes_are_seen_to_go(tmp_path: Path) -> None:
    """The time from a closed socket to the last process gone is measured."""
    (report,) = _bench(tmp_path, "--kill", "2")

    assert 0 < report["kill"]["p50_ms"] <= report["kill"]["worst_ms"] < 30_000


@pytest.mark.slow
def test_a_look_at_the_status_page_is_measured() -> None:
    """Both paths, with their size and the server's CPU time."""
    argv = [sys.executable, BENCH.with_name("bench_status.py"), "--sessions", "3"]
    argv += ["--requests", "20"]
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()

    assert said[0] == "3 open sessions"
    assert [line.split()[0] for line in said[1:]] == ["/health", "/status.json"]
    assert said[1].endswith(" 20 bytes")
