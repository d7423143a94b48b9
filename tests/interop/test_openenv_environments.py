"""OpenEnv's environment classes on our server answer as they do on OpenEnv's own."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rawclient import RawClient, wait_until
from server_process import serve

PIN = "openenv==0.10.*"
ROOT = Path(__file__).parent.parent.parent
ENVIRONMENTS = Path(__file__).parent / "peers" / "openenv_envs.py"

pytestmark = pytest.mark.slow

Talk = Callable[..., list[dict[str, Any]]]


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


@contextmanager
def _theirs(python: str, name: str) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    process = subprocess.Popen([python, ENVIRONMENTS, str(port), name])
    try:
        wait_until(lambda: _answers(port))
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def talk(
    tmp_path: Path, peer_python: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> Talk:
    """Return a function that tells both servers the same; it returns theirs and our answers."""
    python = peer_python(PIN)
    (packages,) = Path(python).parent.parent.glob("lib/python*/site-packages")

    def both(name: str, *messages: dict[str, Any]) -> list[Any]:
        with _theirs(python, name) as port:
            theirs = _talk(port, messages)
        monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{packages}")
        # With run_in the server itself does not import it, which takes OpenEnv seconds.
        kept = ("--env-config", '{"run_in": "process"}') if name == "Tools" else ()
        with serve(tmp_path, f"{ENVIRONMENTS}:{name}", *kept) as server:
            ours = _talk(server.port, messages)
        return [theirs, ours]

    return both


def _talk(port: int, messages: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    client = RawClient(port)
    try:
        answers = []
        for message in messages:
            client.send(message)
            answers.append(client.receive())
        return answers
    finally:
        client.socket.close()


def _step(**action: Any) -> dict[str, Any]:
    return {"type": "step", "data": action}


def _without_metadata(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data["observation"].items() if key != "metadata"}


def test_typed_actions_and_their_state(talk: Talk) -> None:
    """Fields, reward, end, and the state's own numbers; a wrong action leaves the episode."""
    theirs, ours = talk(
        "Columns",
        {"type": "reset", "data": {"seed": 3, "episode_id": "mine"}},
        _step(column=4),
        _step(column="many"),
        _step(row=1),
        _step(column=9),
        {"type": "state"},
    )

    assert [answer["type"] for answer in ours] == [answer["type"] for answer in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        for part in ("reward", "done", "code"):
            assert mine["data"].get(part) == other["data"].get(part)
    for index in (1, 4):
        assert ours[index]["data"]["observation"] == theirs[index]["data"]["observation"]
        assert ours[index]["data"]["metadata"] == theirs[index]["data"]["metadata"]
    assert ours[0]["data"]["observation"]["start"] == theirs[0]["data"]["observation"]["start"]
    assert ours[2]["data"]["errors"][0]["loc"] == ["data", "column"]
    assert "Move: column: Input should be a valid integer" in ours[2]["data"]["message"]
    assert ours[5]["data"] == theirs[5]["data"]
    assert ours[5]["data"] == {"episode_id": "mine", "step_count": 2, "total": 13}


def test_tools_by_step_and_by_mcp(talk: Talk) -> None:
    """`list_tools` before any reset, `call_tool`, a tool that fails, and JSON-RPC."""
    call = {"type": "call_tool", "metadata": {}}
    rpc = {"jsonrpc": "2.0", "id": 5}
    add = {"name": "add", "arguments": {"a": 2, "b": 40}}
    theirs, ours = talk(
        "Tools",
        _step(type="list_tools", metadata={}),
        {"type": "reset"},
        _step(**call, tool_name="add", arguments={"a": 2, "b": 3}),
        _step(**call, tool_name="fail", arguments={}),
        _step(**call, tool_name="nothing", arguments={}),
        {"type": "mcp", "data": {**rpc, "method": "tools/list"}},
        {"type": "mcp", "data": {**rpc, "method": "tools/call", "params": add}},
        {"type": "mcp", "data": {**rpc, "method": "tools/eat"}},
        {"type": "state"},
    )

    assert [answer["type"] for answer in ours] == [answer["type"] for answer in theirs]
    assert [tool["name"] for tool in ours[0]["data"]["observation"]["tools"]] == ["add", "fail"]
    for index in (0, 2, 3, 4):
        mine, other = (answers[index]["data"] for answers in (ours, theirs))
        assert _without_metadata(mine) == _without_metadata(other)
        assert mine["done"] == other["done"]
    assert ours[2]["data"]["observation"]["result"]["data"] == 5
    assert ours[5]["data"] == theirs[5]["data"]
    assert ours[6]["data"]["result"]["data"] == 42
    assert ours[6]["data"] == theirs[6]["data"]
    assert ours[7]["data"]["error"]["code"] == theirs[7]["data"]["error"]["code"] == -32601
    assert "tools" not in ours[8]["data"]  # which would mark a text environment
