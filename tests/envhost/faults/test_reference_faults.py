"""The ten faults of the reference server, each with a test that such a server fails."""

from __future__ import annotations

import json
import re
import select
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from os import pidfd_open
from pathlib import Path
from typing import Any

import pytest
from rawclient import PATIENCE_SECONDS, Closed, RawClient, wait_for_log, wait_until

Start = Callable[..., Any]

FAULTY = Path(__file__).with_name("faulty_env.py")
ENVIRONMENT = f"{FAULTY}:Faulty"
FACTORY = f"{FAULTY}:FaultyFactory"


def _config(**options: Any) -> tuple[str, str]:
    return "--env-config", json.dumps(options)


def _get(server: Any, path: str) -> Any:
    with urllib.request.urlopen(server.url + path, timeout=PATIENCE_SECONDS) as response:
        return json.load(response)


def _refuses(server: Any) -> bool:
    try:
        urllib.request.urlopen(f"{server.url}/readyz", timeout=PATIENCE_SECONDS).close()
    except urllib.error.HTTPError as error:
        with error:
            return error.code == 503
    return False


def test_1_a_disconnect_in_mid_step_ends_the_step_and_its_program(start_server: Start) -> None:
    """A closed socket cancels the running step, kills its program and closes the environment."""
    server = start_server(ENVIRONMENT)
    client = RawClient(server.port)
    client.reset()
    client.send({"type": "step", "data": {"message": "run"}})
    (line,) = wait_for_log(server, "^env.program")
    program = pidfd_open(int(line.split()[1]))

    client.drop()

    assert select.select([program], [], [], PATIENCE_SECONDS)[0], "the program runs on"
    wait_for_log(server, "^env.closed")
    wait_until(lambda: _get(server, "/sessions") == [])


def test_1_queued_requests_do_not_hide_a_disconnect(start_server: Start) -> None:
    """A client that sent further requests ahead is seen to leave all the same."""
    server = start_server(ENVIRONMENT)
    client = RawClient(server.port)
    client.reset()
    client.send({"type": "step", "data": {"message": "run"}})
    for _ in range(20):
        client.send({"type": "state"})
    wait_for_log(server, "^env.program")

    client.drop()

    wait_for_log(server, "^env.closed")
    assert "env.state" not in server.log()


def test_2_the_idle_limit_ends_socket_and_environment_together(start_server: Start) -> None:
    """No step ever reaches an environment that the idle limit has closed."""
    server = start_server(ENVIRONMENT, "--idle-limit", "0.3")
    with RawClient(server.port) as client:
        client.reset()

        assert client.close_code() == 1001

        wait_for_log(server, "^env.closed")
        assert "env.step_after_close" not in server.log()


def test_2_a_step_at_work_is_not_idle(start_server: Start) -> None:
    """The idle limit does not run while a request is being answered."""
    server = start_server(ENVIRONMENT, "--idle-limit", "0.3", *_config(state_seconds=1.0))
    with RawClient(server.port) as client:
        reply = client.ask({"type": "state"})

        assert reply["type"] == "state"


def test_3_a_slot_is_held_until_the_environment_is_closed(start_server: Start) -> None:
    """However clients come and go, no more environments live than the cap allows."""
    server = start_server(
        ENVIRONMENT, "--max-concurrent-envs", "2", "--admission-wait", "30",
        *_config(close_seconds=0.3),
    )  # fmt: skip
    for _ in range(3):
        clients = [RawClient(server.port) for _ in range(2)]
        for client in clients:
            client.reset()
        for client in clients:
            client.drop()

    wait_for_log(server, "^env.closed", count=6)
    assert max(int(n) for n in re.findall(r"env.alive (\d+)", server.log())) <= 2


@pytest.mark.parametrize("failure", ["exit", "raise"])
def test_4_a_factory_that_fails_gives_its_slot_back(start_server: Start, failure: str) -> None:
    """SystemExit out of a factory ends that session with FACTORY_ERROR, and costs no slot."""
    server = start_server(FACTORY, "--max-concurrent-envs", "1", *_config(second=failure))
    with RawClient(server.port) as first:
        first.reset()
        first.close()

    with RawClient(server.port) as second:
        reply = second.ask({"type": "reset"})
        assert reply["data"]["code"] in {"FACTORY_ERROR", "SESSION_ERROR"}
        with pytest.raises(Closed):
            second.receive()

    with RawClient(server.port) as third:
        assert third.reset(seed=3)["observation"]["prompt"] == "hello 3"


def test_5_a_slow_construction_hinders_nobody(start_server: Start) -> None:
    """While one session's environment is being built, others open and step."""
    server = start_server(FACTORY, *_config(second="wait"))
    with RawClient(server.port) as first, RawClient(server.port) as second:
        first.reset()
        second.send({"type": "reset"})
        wait_for_log(server, "^env.failing")

        with RawClient(server.port) as third:
            third.reset()
            assert third.step("hello")["data"]["reward"] == 1.0
        assert first.step("hello")["data"]["reward"] == 1.0


def test_5_a_slow_state_hinders_nobody(start_server: Start) -> None:
    """While one session waits for its state, others open and step."""
    server = start_server(ENVIRONMENT, *_config(state_seconds=86400))
    with RawClient(server.port) as first, RawClient(server.port) as second:
        first.send({"type": "state"})
        wait_for_log(server, "^env.state")

        second.reset()
        assert second.step("hello")["data"]["reward"] == 1.0


def test_6_malformed_requests_leave_the_episode_as_it_was(start_server: Start) -> None:
    """JSON lists, scalars, binary frames and bad actions are answered; the episode goes on."""
    bad: list[tuple[int, bytes, str]] = [
        (0x1, b"[1, 2]", "VALIDATION_ERROR"),
        (0x1, b'"reset"', "VALIDATION_ERROR"),
        (0x1, b"null", "VALIDATION_ERROR"),
        (0x1, b"NaN", "VALIDATION_ERROR"),
        (0x1, b"{", "INVALID_JSON"),
        (0x1, b"", "INVALID_JSON"),
        (0x1, b"[" * 100_000, "INVALID_JSON"),
        (0x2, b'{"type": "reset"}', "VALIDATION_ERROR"),
        (0x1, b"{}", "UNKNOWN_TYPE"),
        (0x1, b'{"type": ["step"]}', "UNKNOWN_TYPE"),
        (0x1, b'{"type": "step", "data": [1]}', "VALIDATION_ERROR"),
        (0x1, b'{"type": "step"}', "VALIDATION_ERROR"),
        (0x1, b'{"type": "reset", "data": {}, "seed": 3}', "VALIDATION_ERROR"),
        (0x1, b'{"type": "reset", "data": {"seed": "three"}}', "VALIDATION_ERROR"),
    ]
    server = start_server(ENVIRONMENT)
    with RawClient(server.port) as client:
        client.reset(seed=1)
        client.step("hello")
        for opcode, payload, code in bad:
            client.send_frame(opcode, payload)
            assert client.receive()["data"]["code"] == code, payload[:60]

        assert client.step("hello")["data"]["reward"] == 1.0
        assert client.ask({"type": "state"})["data"]["step_count"] == 2


def test_6_a_validator_that_raises_leaves_the_episode_as_it_was(start_server: Start) -> None:
    """An environment's own validation error, even with objects no JSON can hold, is a reply."""
    server = start_server(ENVIRONMENT)
    with RawClient(server.port) as client:
        client.reset()

        reply = client.step("refuse")

        assert reply["data"]["code"] == "VALIDATION_ERROR"
        assert "even numbers only" in reply["data"]["message"]
        assert client.step("hello")["data"]["reward"] == 1.0


def test_7_an_exception_is_told_to_the_client_and_logged_for_the_host(start_server: Start) -> None:
    """The reply names type, message and a reference; the log has the traceback beside it."""
    server = start_server(ENVIRONMENT)
    with RawClient(server.port) as client:
        client.reset()

        data = client.step("raise")["data"]

        assert data["code"] == "EXECUTION_ERROR"
        assert "LookupError" in data["message"]
        assert "dictionary" in data["message"]
        reference = re.search(r"log reference (\w+)", data["message"])
        assert reference
        wait_for_log(server, f"ref={reference[1]}")
        wait_for_log(server, "Traceback")
        assert client.reset(seed=2)["observation"]["prompt"] == "hello 2"
        assert "\x1b" not in server.log()


def test_8_a_hung_step_does_not_hold_up_the_end(start_server: Start) -> None:
    """SIGTERM gives running steps the drain timeout, cancels them, and ends with status 0."""
    server = start_server(ENVIRONMENT, "--drain-timeout", "0.5")
    with RawClient(server.port) as client, RawClient(server.port) as idle:
        idle.reset()
        client.reset()
        client.send({"type": "step", "data": {"message": "run"}})
        wait_for_log(server, "^env.program")
        server.process.send_signal(signal.SIGTERM)

        assert idle.close_code() == 1001
        assert server.process.wait(PATIENCE_SECONDS) == 0
        wait_for_log(server, "^env.closed", count=2)


def test_8_a_second_signal_ends_the_server_at_once(start_server: Start) -> None:
    """While steps drain, /readyz says 503 and another signal does not wait for them."""
    server = start_server(ENVIRONMENT, "--drain-timeout", "86400")
    with RawClient(server.port) as client:
        client.reset()
        client.send({"type": "step", "data": {"message": "run"}})
        (line,) = wait_for_log(server, "^env.program")
        program = pidfd_open(int(line.split()[1]))
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: _refuses(server))
        started = time.monotonic()

        server.process.send_signal(signal.SIGTERM)

        server.process.wait(PATIENCE_SECONDS)
        assert time.monotonic() - started < PATIENCE_SECONDS
        assert select.select([program], [], [], PATIENCE_SECONDS)[0], "the program runs on"


def test_9_disconnects_of_every_kind_log_no_traceback(start_server: Start) -> None:
    """Clients that leave, politely or not, are everyday events."""
    server = start_server(ENVIRONMENT)
    polite, abrupt, working, half = (RawClient(server.port) for _ in range(4))
    for client in (polite, abrupt, working):
        client.reset()
    working.send({"type": "step", "data": {"message": "run"}})
    wait_for_log(server, "^env.program")

    polite.close()
    abrupt.drop()
    working.drop()
    half.socket.sendall(b"\x81\xff\x00")
    half.drop()

    wait_for_log(server, "session.closed", count=4)
    assert "Traceback" not in server.log()


def test_10_nobody_reaches_another_session_by_its_id(start_server: Start) -> None:
    """A session's id opens, steps and closes nothing, by whatever way it is offered."""
    server = start_server(ENVIRONMENT)
    with RawClient(server.port) as owner:
        owner.reset(seed=1, episode_id="mine")
        owner.step("hello")
        (row,) = _get(server, "/sessions")
        name = row["id"]
        ways = (f"/ws?session_id={name}", f"/ws/{name}", f"/mcp?session_id={name}", "/mcp")
        for way in ways:
            with RawClient(server.port, path=way, headers=(f"X-Session-Id: {name}",)) as thief:
                if thief.status != 101:
                    continue
                for method in ("openenv/session/create", "openenv/session/close", "tools/call"):
                    call = {"jsonrpc": "2.0", "id": 1, "method": method}
                    data = {**call, "params": {"session_id": name, "name": "step"}}
                    assert thief.ask({"type": "mcp", "data": data})["type"] == "error"
                state = thief.ask({"type": "state"})["data"]
                assert state["step_count"] == 0
                assert state["episode_id"] is None

        assert owner.step("hello")["data"]["reward"] == 1.0
        assert owner.ask({"type": "state"})["data"]["step_count"] == 2
