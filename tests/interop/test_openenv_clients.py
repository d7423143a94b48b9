"""OpenEnv's own clients, of every release that people use, work against our server unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rawclient import wait_for_log

import envhost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("pin", ["openenv-core==0.3.0", "openenv==0.4.2", "openenv==0.10.*"]),
]

CLASSICS = Path(envhost.__file__).parent / "problems" / "classics.jsonl"
ECHO = f"{Path(__file__).parent / 'peers' / 'echo_env.py'}:make"
Run = Callable[..., Any]


def test_an_episode_from_state_to_close(pin: str, start_server: Run, run_client: Run) -> None:
    """Each client sees prompts, rewards, ends, metadata, errors and states as it expects them."""
    server = start_server(ECHO)

    seen = run_client(pin, "episode", server.url)

    assert seen["state_first"] == {
        "dataset_size": 512,
        "tools": [],
        "episode_id": None,
        "step_count": 0,
    }
    assert seen["reset"]["observation"]["prompt"] == "say something, seed 7"
    assert seen["reset"]["reward"] is None
    assert seen["step"]["observation"]["prompt"] == 'echo hällo\n"x"'
    assert seen["step"]["reward"] == 9.0
    assert seen["state"]["step_count"] == 1
    assert isinstance(seen["state"]["episode_id"], str)
    assert [seen[name]["done"] for name in ("reset", "step", "end", "cut")] == [
        False,
        False,
        True,
        True,
    ]
    assert seen["cut"]["observation"]["truncated"] is True
    assert seen["alive"]["observation"]["prompt"] == "say something, seed 9"
    ended, typo, raised = seen["errors"]
    assert "reset first (code: EXECUTION_ERROR)" in ended
    assert "'message'" in typo
    assert typo.endswith("(code: VALIDATION_ERROR)")
    assert "LookupError: no such answer" in raised
    # 0.3.0 reads metadata inside the observation, later releases beside it too.
    assert seen["reset"]["observation"]["metadata"]["system_prompt"] == "Be brief."
    assert seen["reset"]["metadata"] in ({"seed": 7, "system_prompt": "Be brief."}, None)
    wait_for_log(server, "session.closed .*reason='client closed'")
    wait_for_log(server, "^env.closed")


def test_every_refusal_shows_its_code(pin: str, start_server: Run, run_client: Run) -> None:
    """A full server's refusal reaches the client as CAPACITY_REACHED, twenty times of twenty."""
    server = start_server(ECHO, "--max-concurrent-envs", "1", "--admission-wait", "0.05")

    seen = run_client(pin, "refused", server.url)

    assert len(seen["refusals"]) == 20
    for text in seen["refusals"]:
        assert "Server at capacity: 1/1 sessions active" in text
        assert "--max-concurrent-envs" in text
        assert "(code: CAPACITY_REACHED)" in text
    assert seen["after"]["observation"]["prompt"] == "say something, seed 1"


def test_a_timeout_in_mid_step_cancels_the_step(
    pin: str, start_server: Run, run_client: Run
) -> None:
    """A client that gives up on a step and drops its socket leaves nothing running."""
    server = start_server(ECHO)

    error = run_client(pin, "abort", server.url)

    assert "Timeout" in error or "timed out" in error
    wait_for_log(server, "^env.cancelled")
    wait_for_log(server, "^env.closed")
    wait_for_log(server, "session.closed")
    assert "Traceback" not in server.log()


def test_programs_are_judged(pin: str, start_server: Run, run_client: Run) -> None:
    """The bundled code environment scores a right, a flooding and no program."""
    server = start_server("--env-config", json.dumps({"dataset": "bundled:classics"}))
    flood = "```python\nwhile True:\n    print('x' * 1000)\n```"

    ((first, none),) = run_client(pin, "solve", server.url, json.dumps(["no program at all"]))
    name = first["observation"]["metadata"]["problem_id"]
    answers = [f"```python\n{_solution(name)}```", flood]
    (_, right), (again, wrong) = run_client(pin, "solve", server.url, json.dumps(answers))

    assert again["observation"]["prompt"] == first["observation"]["prompt"]
    assert [answer["reward"] for answer in (right, wrong, none)] == [1.0, 0.0, -0.1]
    assert [answer["done"] for answer in (right, wrong, none)] == [True, True, True]
    assert right["observation"]["metadata"]["verdict"] == "AC"
    assert wrong["observation"]["metadata"]["verdict"] == "OLE"


def _solution(problem_id: str) -> str:
    rows = map(json.loads, CLASSICS.read_text().splitlines())
    row = next(row for row in rows if row["problem_id"] == problem_id)
    solution: str = json.loads(row["solutions"])[0]
    return solution
