"""A whole server on a loopback socket in this process: its pages, its drain, what it survives."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing
from peer import HANDSHAKE, Peer, Script, text

from envhost.config import Limits, ServerConfig
from envhost.environment import Description, StepResult
from envhost.errors import ConfigError
from envhost.server import Server

PATIENCE_SECONDS = 30.0
RESET = {"type": "reset"}
STEP = {"type": "step", "data": {"message": "go"}}


class Running:
    """A server at work, and ways to reach it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = int(server.url.rpartition(":")[2])
        self.streams: list[trio.SocketStream] = []

    async def open(self, data: bytes = b"") -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.streams.append(stream)
        await stream.send_all(data)
        return stream

    async def connect(self) -> Peer:
        peer = Peer(await self.open(HANDSHAKE))
        assert await peer.handshake() == 101
        return peer

    async def get(self, path: str, method: str = "GET") -> tuple[int, bytes, bytes]:
        """Return status, head and body."""
        stream = await self.open(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        reply = b""
        async for data in stream:
            reply += data
        await stream.aclose()
        head, _, body = reply.partition(b"\r\n\r\n")
        return int(head.split()[1]), head, body

    async def until(self, sessions: int) -> None:
        while len(self.server.sessions) != sessions:
            await trio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(
    script: Script | None = None, limits: Limits | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """Run a server until the end of the context; nothing may be left of it."""
    config = ServerConfig(port=0, limits=limits or Limits(), **settings)
    server = Server(config, script or Script())
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            made = Running(server)
            yield made
            nursery.cancel_scope.cancel()
    for stream in made.streams:
        stream.socket.close()
    assert server.slots.taken == 0
    assert server.sessions == {}
    assert server._connections == 0
    assert server._handshakes == {}


# -- pages -----------------------------------------------------------------------------------------


async def test_each_page_answers() -> None:
    """Status, type and the facts that clients read."""
    async with running(max_concurrent_envs=3) as at:
        assert json.loads((await at.get("/health"))[2]) == {"status": "healthy"}
        assert (await at.get("/readyz"))[0] == 200
        metadata = json.loads((await at.get("/metadata"))[2])
        assert metadata["name"] == "script"
        assert metadata["max_concurrent_envs"] == 3
        schema = json.loads((await at.get("/schema"))[2])
        assert schema["action"]["required"] == ["message"]
        assert json.loads((await at.get("/sessions"))[2]) == []
        status, head, body = await at.get("/metrics")
        assert (status, b"text/plain" in head) == (200, True)
        assert b"envhost_sessions_open 0.0" in body
        assert (await at.get("/"))[0] == 200


async def test_what_is_no_page_is_told() -> None:
    """404 with a hint where OpenEnv has a page, 405 for a wrong method, HEAD without a body."""
    async with running() as at:
        assert (await at.get("/nowhere"))[0] == 404
        status, _, body = await at.get("/reset", "POST")
        assert (status, b"/ws" in body) == (404, True)
        assert (await at.get("/health", "POST"))[0] == 405
        status, head, body = await at.get("/health", "HEAD")
        assert (status, body) == (200, b"")
        assert b"Content-Length: 20" in head


async def test_replies_forbid_sniffing_and_caching() -> None:
    """Every page says so."""
    async with running() as at:
        for path in ("/", "/metrics", "/nowhere"):
            _, head, _ = await at.get(path)
            assert b"X-Content-Type-Options: nosniff" in head
            assert b"Cache-Control: no-store" in head


async def test_a_session_is_a_row_while_it_lives() -> None:
    """Id, peer, episode, steps and what it is doing."""
    async with running(Script(step=trio.sleep_forever)) as at:
        peer = await at.connect()
        await peer.ask({"type": "reset", "data": {"episode_id": "<b>mine</b>"}})
        (row,) = json.loads((await at.get("/sessions"))[2])
        assert (row["episode_id"], row["activity"], row["step_count"]) == ("<b>mine</b>", "idle", 0)
        assert row["peer"].startswith("127.0.0.1:")
        await peer.send(STEP)
        await trio.testing.wait_all_tasks_blocked()
        (row,) = json.loads((await at.get("/sessions"))[2])
        assert (row["activity"], row["idle_seconds"]) == ("step", 0.0)

        await peer.drop()

        await at.until(sessions=0)
        assert json.loads((await at.get("/sessions"))[2]) == []


async def test_the_metrics_count_what_happened() -> None:
    """Sessions, errors by code, verdicts and bytes."""
    judged = StepResult(
        observation={}, reward=1.0, terminated=True, metadata={"verdict": "AC", "wall_seconds": 1}
    )

    async def judge() -> StepResult:
        return judged

    async with running(Script(step=judge)) as at:
        peer = await at.connect()
        await peer.reset()
        await peer.step()
        await peer.step()
        await peer.send({"type": "close"})
        assert await peer.close_code() == 1000
        await at.until(sessions=0)

        body = (await at.get("/metrics"))[2].decode()

    assert "envhost_sessions_opened_total 1.0" in body
    assert 'envhost_sessions_closed_total{reason="client closed"} 1.0' in body
    assert 'envhost_errors_total{code="EXECUTION_ERROR"} 1.0' in body
    assert 'envhost_verdicts_total{verdict="AC"} 1.0' in body
    assert "envhost_step_seconds_count 1.0" in body
    assert "envhost_received_bytes_total 0.0" not in body


# -- the end ---------------------------------------------------------------------------------------


async def test_a_draining_server_takes_nobody_in() -> None:
    """/readyz and new sessions get 503; the running step is answered; then run returns."""
    gate = trio.Event()
    async with running(Script(step=gate.wait)) as at:
        peer = await at.connect()
        await peer.reset()
        await peer.send(STEP)
        await trio.testing.wait_all_tasks_blocked()

        at.server.stop()
        await trio.testing.wait_all_tasks_blocked()

        assert (await at.get("/readyz"))[0] == 503
        newcomer = Peer(await at.open(HANDSHAKE))
        assert await newcomer.handshake() == 503
        gate.set()
        assert (await peer.receive())["data"]["reward"] == 1.0
        assert await peer.close_code() == 1001
        await at.server.finished.wait()


async def test_a_step_that_outlasts_the_drain_is_cancelled() -> None:
    """And its environment is closed."""
    script = Script(step=trio.sleep_forever)
    async with running(script, Limits(drain_seconds=0.2)) as at:
        peer = await at.connect()
        await peer.reset()
        await peer.send(STEP)
        await trio.testing.wait_all_tasks_blocked()

        at.server.stop()
        await at.server.finished.wait()

        assert script.events[-2:] == ["step cancelled", "close"]


async def test_a_handshake_that_ends_during_the_drain_holds_nobody_up() -> None:
    """A session that opens while the server drains is closed like the others."""
    gate = trio.Event()
    async with running(Script(build=gate.wait), Limits(drain_seconds=1000.0)) as at:
        early = await at.connect()
        at.server.stop()
        await trio.testing.wait_all_tasks_blocked()
        gate.set()

        assert await early.close_code() == 1001
        await at.server.finished.wait()


# -- what it survives --------------------------------------------------------------------------


def _reset_connection(stream: trio.SocketStream) -> None:
    """Close with a reset instead of an orderly end."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        HANDSHAKE[:50],
        HANDSHAKE,
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: evil\r\n\r\n",
        b"bad\r\n\r\n",
        HANDSHAKE + text(RESET) + text(STEP),
    ],
)
async def test_a_reset_connection_is_an_everyday_event(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it comes, nothing is logged as an error and nothing is left."""
    async with running() as at:
        for _ in range(30):
            _reset_connection(await at.open(data))
        peer = await at.connect()
        assert (await peer.reset())["type"] == "observation"
        await at.until(sessions=1)
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_silent_sockets_make_room_for_the_next() -> None:
    """At the cap of connections the oldest unfinished handshake goes first."""
    async with running(max_connections=5) as at:
        silent = [await at.open() for _ in range(5)]
        await trio.testing.wait_all_tasks_blocked()

        peer = await at.connect()

        assert await silent[0].receive_some() == b""
        assert (await peer.reset())["type"] == "observation"


async def test_open_sessions_are_never_dropped_for_newcomers() -> None:
    """With every connection a session's, the newcomer goes."""
    async with running(max_connections=2, max_concurrent_envs=2) as at:
        peers = [await at.connect() for _ in range(2)]
        for peer in peers:
            await peer.reset()

        newcomer = await at.open(HANDSHAKE)

        with contextlib.suppress(trio.BrokenResourceError):
            assert await newcomer.receive_some() == b""
        for peer in peers:
            assert (await peer.step())["data"]["reward"] == 1.0


async def test_a_slow_reader_of_a_page_is_left() -> None:
    """A client that takes no page is closed within the head's limit."""
    script = Script()
    long = Description(name="long", description="x" * 50_000_000)
    script.describe = lambda: long  # type: ignore[method-assign]
    async with running(script, Limits(head_seconds=0.2)) as at:
        stream = await at.open(b"GET /metadata HTTP/1.1\r\nHost: localhost\r\n\r\n")
        while at.server._connections == 0:
            await trio.sleep(0.005)
        while at.server._connections:
            await trio.sleep(0.005)

        received = bytearray()
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in stream:
                received += data
        assert received.startswith(b"HTTP/1.1 200 OK")
        assert received.endswith(b"x")  # cut off, with no second answer in the middle of the first


# -- settings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "--token-file"),
        ({"host": "::"}, "--token-file"),
        ({"host": "lab.example"}, "--token-file"),
        ({"max_concurrent_envs": 0}, "--max-concurrent-envs"),
        ({"port": -1}, "--port"),
        ({"limits": Limits(step_seconds=-1.0)}, "--step-limit"),
        ({"limits": Limits(send_seconds=float("nan"))}, "--send-limit"),
        ({"tls_key": "key.pem"}, "go together"),
        ({"host": "0.0.0.0", "token": ""}, "token: expected printable ASCII"),
        ({"token": "two words"}, "token: expected printable ASCII"),
        ({"token": "caf\u00e9"}, "token: expected printable ASCII"),
        ({"token": "line\nbreak"}, "token: expected printable ASCII"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], words: str) -> None:
    """At construction, before anything is opened."""
    with pytest.raises(ConfigError, match=words):
        Server(ServerConfig(**settings), Script())


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9", "::1"])
def test_loopback_needs_no_token(host: str) -> None:
    """Every address that this machine alone can reach."""
    Server(ServerConfig(host=host), Script())


def test_the_token_is_in_no_repr() -> None:
    """A configuration may be printed."""
    assert "secret" not in repr(ServerConfig(token="secret"))
