"""One remote session under Trio: hostile servers, cancellation at any moment, nothing left."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
import trio
from peer import Script, text

from envhost.config import Limits, ServerConfig
from envhost.errors import (
    ConfigError,
    EnvhostError,
    EnvironmentFailed,
    ProtocolError,
    ServerBusy,
    SessionLost,
)
from envhost.remote import Remote, RemoteSession, retried
from envhost.server import Server
from envhost.wire.http import read_head
from envhost.wire.websocket import Disconnected, WebSocket

PATIENCE_SECONDS = 60.0
Handler = Callable[[trio.SocketStream], Awaitable[None]]


@contextlib.asynccontextmanager
async def served_by(handler: Handler) -> AsyncIterator[RemoteSession]:
    """Serve a handler on a free port and hold a session with it that retries nothing."""
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            serve = await nursery.start(trio.serve_tcp, handler, 0)
            port = serve[0].socket.getsockname()[1]
            async with trio.open_nursery() as holding:
                session = _session(f"http://127.0.0.1:{port}", holding)
                yield session
                session.drop()
            nursery.cancel_scope.cancel()


def _session(url: str, nursery: trio.Nursery, **settings: float) -> RemoteSession:
    given = {"request_timeout_seconds": 10.0, "retry_seconds": 0.0, **settings}
    return RemoteSession(Remote.parse(url), nursery, action_field="message", **given)


async def _accept(stream: trio.SocketStream) -> WebSocket:
    found = await read_head(stream, max_bytes=10_000)
    assert found is not None
    websocket = WebSocket(stream, found[1], max_message_bytes=1 << 20)
    await websocket.accept()
    return websocket


def _saying(reply: bytes) -> Handler:
    """Return a handler that answers each request with bytes as they are."""

    async def handler(stream: trio.SocketStream) -> None:
        websocket = await _accept(stream)
        with contextlib.suppress(Disconnected, trio.BrokenResourceError):
            while True:
                await websocket.receive()
                await stream.send_all(reply)
        await stream.aclose()

    return handler


def _unmasked(frame: bytes) -> bytes:
    """Return a client's short frame as a server would send it."""
    return bytes([frame[0], frame[1] & 0x7F]) + frame[6:]


OBSERVATION = {"type": "observation", "data": {"observation": {"prompt": "p"}, "done": False}}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (_unmasked(text([])), ProtocolError),
        (_unmasked(text({"type": "hello", "data": {}})), ProtocolError),
        (_unmasked(text({"type": "state", "data": {}})), ProtocolError),
        (b"\x81\x01{", ProtocolError),
        (b"\x82\x02{}", ProtocolError),
        (b"\x81\x02\xff\xff", SessionLost),
        (b"\x88\x02\x03\xe8", SessionLost),
        (b"\x88\x00", SessionLost),
        (b"\x83\x00", SessionLost),
        (b"HTTP/1.1 500 Oh\r\n\r\n", SessionLost),
        (
            _unmasked(text({"type": "error", "data": {"code": "CAPACITY_REACHED"}})),
            ServerBusy,
        ),
        (
            _unmasked(text({"type": "error", "data": {"code": "EXECUTION_ERROR"}})),
            EnvironmentFailed,
        ),
        (_unmasked(text({"type": "error", "data": {"message": 3}})), EnvironmentFailed),
    ],
)
async def test_a_wrong_answer_is_an_error_of_its_kind(reply: bytes, error: type[Exception]) -> None:
    """Never another exception; and the session can be dropped and opened again."""
    async with served_by(_saying(reply)) as session:
        for _ in range(2):
            with pytest.raises(error):
                await session.reset({})


async def test_a_good_answer_is_one() -> None:
    """The proof that the handler above would be understood."""
    async with served_by(_saying(_unmasked(text(OBSERVATION)))) as session:
        assert (await session.reset({})).observation == {"prompt": "p"}
        assert (await session.step("a")).done is False
        assert session.is_open


async def test_random_answers_are_errors_or_replies(caplog: pytest.LogCaptureFixture) -> None:
    """Mutated frames from a server never bring down the thread that all sessions share."""
    random = Random(3)
    good = _unmasked(text(OBSERVATION))
    for _ in range(150):
        data = bytearray(good * random.randrange(1, 3))
        for _ in range(random.randrange(1, 4)):
            data[random.randrange(len(data))] = random.randrange(256)
        if random.random() < 0.3:
            data += random.randbytes(30)
        async with served_by(_saying(bytes(data))) as session:
            with trio.move_on_after(0.02), contextlib.suppress(EnvhostError):
                await session.reset({})
                await session.step("a")
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_an_unread_refusal_is_told_although_the_server_has_gone() -> None:
    """A server that refuses before the first request and closes at once, as OpenEnv's does."""

    async def refuse(stream: trio.SocketStream) -> None:
        await _accept(stream)
        refusal = {"type": "error", "data": {"code": "CAPACITY_REACHED", "message": "full"}}
        await stream.send_all(_unmasked(text(refusal)) + b"\x88\x02\x03\xe8")
        await stream.aclose()

    async with served_by(refuse) as session:
        with pytest.raises(ServerBusy, match="full"):
            await session.reset({})


async def test_a_cancelled_request_drops_the_socket() -> None:
    """Its late reply must answer nothing."""
    async with served_by(_saying(b"")) as session:
        with trio.move_on_after(0.05) as scope:
            await session.reset({})

        assert scope.cancelled_caught
        assert not session.is_open


async def test_cancellation_at_any_moment_leaves_nothing() -> None:
    """Descriptors and tasks are back to the start, at the client and at the server."""
    random = Random(5)
    server = Server(ServerConfig(port=0, max_concurrent_envs=200), Script())
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)

            async def visit(seconds: float) -> None:
                session = _session(server.url, nursery)
                with trio.move_on_after(seconds):
                    await session.reset({})
                    for _ in range(20):
                        await session.step("a")
                await session.close()

            await visit(10.0)
            while server.sessions:
                await trio.sleep(0.005)
            before = _left()

            for _ in range(4):
                async with trio.open_nursery() as visits:
                    for _ in range(50):
                        visits.start_soon(visit, random.expovariate(1 / 0.03))

            while _left() != before or server.sessions:
                await trio.sleep(0.005)
            assert server.slots.taken == 0
            nursery.cancel_scope.cancel()


def _left() -> tuple[int, int]:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return trio.lowlevel.current_statistics().tasks_living, descriptors


async def test_an_idle_limit_at_the_server_is_told_at_the_next_step() -> None:
    """SessionLost says why, and the next reset opens anew."""
    limits = Limits(idle_seconds=0.1)
    server = Server(ServerConfig(port=0, limits=limits), Script())
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            session = _session(server.url, nursery, retry_seconds=10.0)
            await session.reset({})
            while server.sessions:
                await trio.sleep(0.005)

            with pytest.raises(SessionLost, match="idle"):
                await session.step("a")
            assert (await session.reset({})).observation["prompt"]
            nursery.cancel_scope.cancel()


# -- retries ---------------------------------------------------------------------------------------


async def test_retries_end_in_time_and_with_the_last_error(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Pauses grow to two seconds; other errors are not retried."""
    times: list[float] = []

    async def attempt() -> None:
        times.append(trio.current_time())
        raise ServerBusy(f"attempt {len(times)}")

    with pytest.raises(ServerBusy, match=r"attempt \d+"):
        await retried(attempt, 30.0)

    pauses = [b - a for a, b in pairwise(times)]
    assert times[-1] - times[0] <= 30.0
    assert 0.05 <= pauses[0] <= 0.1
    assert all(pause <= 2.0 for pause in pauses)
    assert len(times) > 15

    async def wrong() -> None:
        times.append(0.0)
        raise ConfigError("no server there")

    count = len(times)
    with pytest.raises(ConfigError):
        await retried(wrong, 30.0)
    assert len(times) == count + 1


async def test_no_retry_time_is_one_attempt() -> None:
    """And its error comes out as it is."""
    attempts = 0

    async def attempt() -> None:
        nonlocal attempts
        attempts += 1
        raise SessionLost("gone")

    with pytest.raises(SessionLost):
        await retried(attempt, 0.0)
    assert attempts == 1


# -- URLs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://lab.example/", "http://lab.example:80"),
        ("https://lab.example/a/b/", "https://lab.example:443/a/b"),
        ("wss://lab.example", "https://lab.example:443"),
        ("ws://[::1]:80", "http://[::1]:80"),
        ("http://user:secret@h:1", "http://h:1"),
        ("http://h:1/t/secret", "http://h:1/t/…"),
        ("http://h:1/a b\u00e9?q", "http://h:1/a%20b%C3%A9"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, expected: str) -> None:
    """In text and in repr; ports and paths as they will be used."""
    remote = Remote.parse(url)

    assert str(remote) == expected
    assert "secret" not in repr(remote)


def test_an_explicit_token_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the URL's, then the environment's."""
    monkeypatch.setenv("ENVHOST_TOKEN", "third")

    assert Remote.parse("http://x:second@h", token="first").token == "first"
    assert Remote.parse("http://x:sec%2Fond@h").token == "sec/ond"
    assert Remote.parse("http://second@h").token == "second"
    assert Remote.parse("http://h").token == "third"
