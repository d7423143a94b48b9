"""AgileRL's RemoteEnvClient, replayed frame by frame: it speaks through OpenEnv 0.4's client."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rawclient import RawClient, wait_for_log

ECHO = f"{Path(__file__).parent / 'peers' / 'echo_env.py'}:make"
LIST_TOOLS = {"type": "step", "data": {"metadata": {}, "type": "list_tools"}}
CALL_TOOL = {
    "type": "step",
    "data": {"metadata": {}, "type": "call_tool", "tool_name": "search", "arguments": {"q": "x"}},
}

Start = Callable[..., Any]


def test_the_state_probe_marks_a_text_environment(start_server: Start) -> None:
    """State comes before the first reset and has `tools`, a list, and `dataset_size`."""
    server = start_server(ECHO)
    with RawClient(server.port) as client:
        reply = client.ask({"type": "state"})

        assert reply["type"] == "state"
        assert reply["data"]["tools"] == []
        assert reply["data"]["dataset_size"] == 512
        assert reply["data"]["episode_id"] is None
        assert reply["data"]["step_count"] == 0


def test_the_tools_probe_leaves_the_episode_untouched(start_server: Start) -> None:
    """`list_tools` and `call_tool` to a text environment are VALIDATION_ERROR, and no step."""
    server = start_server(ECHO)
    with RawClient(server.port) as client:
        assert client.ask(LIST_TOOLS)["data"]["code"] == "VALIDATION_ERROR"
        client.reset(seed=5)
        assert client.step("one")["data"]["metadata"] == {"steps": 1}

        for probe in (LIST_TOOLS, CALL_TOOL):
            assert client.ask(probe)["data"]["code"] == "VALIDATION_ERROR"

        assert client.step("two")["data"]["metadata"] == {"steps": 2}


def test_a_training_session_from_probe_to_close(start_server: Start) -> None:
    """Reset info stands in the top-level metadata, step info in both places; close ends cleanly."""
    server = start_server(ECHO)
    with RawClient(server.port) as client:
        client.ask({"type": "state"})
        first = client.reset(seed=11, row_index=None, evaluation=False, episode_id="e-1")

        assert first["metadata"]["system_prompt"] == "Be brief."
        assert first["metadata"] == first["observation"]["metadata"]
        assert first["done"] is False
        assert {"prompt", "truncated", "question", "answer"} <= first["observation"].keys()

        step = client.step("cut")["data"]
        assert step["done"] is True
        assert step["observation"]["truncated"] is True
        assert step["metadata"] == step["observation"]["metadata"] == {"steps": 1}
        assert client.ask({"type": "state"})["data"]["episode_id"] == "e-1"
        client.send({"type": "close"})
        assert client.close_code() == 1000

    wait_for_log(server, "^env.closed")


def test_many_sessions_on_one_url_are_apart(start_server: Start) -> None:
    """A rollout group's sessions share a seed and nothing else."""
    server = start_server(ECHO, "--max-concurrent-envs", "9")
    clients = [RawClient(server.port) for _ in range(9)]

    prompts = {client.reset(seed=42)["observation"]["prompt"] for client in clients}
    for count, client in enumerate(clients):
        for _ in range(count):
            client.step("again")

    assert prompts == {"say something, seed 42"}
    counts = [client.ask({"type": "state"})["data"]["step_count"] for client in clients]
    assert counts == list(range(9))
    for client in clients:
        client.close()
