"""A client over any Trio stream, and an environment that does as a test tells it.

For tests inside one process, with memory streams and a mock clock. Frames are made by hand, so
that no mistake is shared with what is tested.
"""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import trio
import trio.testing

from envhost.admission import Slots
from envhost.config import Limits
from envhost.environment import Description, Observation, StepResult, text_observation
from envhost.session import Session
from envhost.telemetry import Telemetry
from envhost.wire.websocket import WebSocket

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
PATIENCE_SECONDS = 3000.0  # of a mock clock: a test that hangs fails

Act = Callable[[], Awaitable[Any]]
Pair = tuple[trio.abc.Stream, trio.abc.Stream]


class Closed(Exception):
    """The server ended the connection; `code` None means without a close frame."""

    def __init__(self, code: int | None, reason: str = "") -> None:
        super().__init__(f"closed with {code} {reason}")
        self.code = code


def frame(opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    """Return one masked frame; the mask is zero."""
    length = len(payload)
    if length < 126:
        size = bytes([0x80 | length])
    elif length < 1 << 16:
        size = bytes([0x80 | 126]) + struct.pack("!H", length)
    else:
        size = bytes([0x80 | 127]) + struct.pack("!Q", length)
    return bytes([(0x80 if final else 0) | opcode]) + size + bytes(4) + payload


def text(message: Any) -> bytes:
    """Return a message as one text frame."""
    return frame(0x1, json.dumps(message).encode())


class Peer:
    """The client's end of one WebSocket."""

    def __init__(self, stream: trio.abc.Stream, *, answers_pings: bool = True) -> None:
        self.stream = stream
        self.pings = 0
        self.pongs: list[bytes] = []
        self._answers_pings = answers_pings
        self._received = b""

    async def handshake(self) -> int:
        """Read the server's answer to the handshake; return its status."""
        while b"\r\n\r\n" not in self._received:
            await self._receive()
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        return int(head.split()[1])

    async def send(self, *messages: Any) -> None:
        """Send messages in one piece."""
        await self.stream.send_all(b"".join(text(message) for message in messages))

    async def receive(self) -> dict[str, Any]:
        """Return the next message.

        Raises:
            Closed: The server ended the connection; a close frame is answered.
        """
        while True:
            opcode, payload = await self._frame()
            if opcode == 0x8:
                with contextlib.suppress(trio.BrokenResourceError):
                    await self.stream.send_all(frame(0x8, payload[:2]))
                code = struct.unpack("!H", payload[:2])[0] if payload else None
                raise Closed(code, payload[2:].decode())
            if opcode == 0x9:
                self.pings += 1
                if self._answers_pings:
                    await self.stream.send_all(frame(0xA, payload))
            elif opcode == 0xA:
                self.pongs.append(payload)
            else:
                message: dict[str, Any] = json.loads(payload)
                return message

    async def ask(self, message: Any) -> dict[str, Any]:
        """Send a message and return the reply."""
        await self.send(message)
        return await self.receive()

    async def reset(self, **options: Any) -> dict[str, Any]:
        """Begin an episode; return the reply, which may be an error."""
        return await self.ask({"type": "reset", "data": options})

    async def step(self, message: str = "go") -> dict[str, Any]:
        """Send a text action; return the reply, which may be an error."""
        return await self.ask({"type": "step", "data": {"message": message}})

    async def close_code(self) -> int | None:
        """Read until the server ends the connection and return its close code."""
        try:
            while True:
                await self.receive()
        except Closed as closed:
            return closed.code

    async def drop(self) -> None:
        """Close the stream without a word."""
        await trio.aclose_forcefully(self.stream)

    async def _frame(self) -> tuple[int, bytes]:
        first, second = await self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self._exactly(8))
        return first & 0x0F, await self._exactly(length)

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            await self._receive()
        data, self._received = self._received[:size], self._received[size:]
        return data

    async def _receive(self) -> None:
        try:
            data = await self.stream.receive_some(1 << 16)
        except trio.BrokenResourceError:
            data = b""
        if not data:
            raise Closed(None)
        self._received += data


class Script:
    """A factory whose environments do what `acts` says, and note what happens to them.

    Acts are called by the name of the method: `build`, `reset`, `step`, `state`, `close`. What an
    act returns, if not None, is returned instead of the usual result.
    """

    def __init__(self, **acts: Act) -> None:
        self.acts = acts
        self.events: list[str] = []
        self.living = 0
        self.most = 0

    async def act(self, name: str) -> Any:
        self.events.append(name)
        if name not in self.acts:
            return None
        try:
            return await self.acts[name]()
        except trio.Cancelled:
            self.events.append(f"{name} cancelled")
            raise

    def describe(self) -> Description:
        return Description(name="script", description="Does as it is told.")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        yield

    async def build(self) -> Any:
        instead = await self.act("build")
        self.living += 1
        self.most = max(self.most, self.living)
        return instead or _Scripted(self)


class _Scripted:
    def __init__(self, script: Script) -> None:
        self._script = script

    async def reset(self, *, seed: int | None = None) -> Any:
        instead = await self._script.act("reset")
        return instead or Observation(text_observation(f"hello {seed}"), {"seed": seed})

    async def step(self, action: Mapping[str, Any]) -> Any:
        instead = await self._script.act("step")
        usual = StepResult(observation=text_observation(""), reward=1.0, terminated=False)
        return instead or usual

    async def state(self) -> Any:
        return await self._script.act("state") or {}

    async def close(self) -> None:
        try:
            await self._script.act("close")
        finally:
            self._script.living -= 1


class Bench:
    """What a server gives its sessions, in one nursery, without a server."""

    def __init__(self, nursery: trio.Nursery, script: Script, *, slots: int = 4, **limits: Any):
        self.nursery = nursery
        self.script = script
        self.slots = Slots(slots)
        self.limits = Limits(**limits)
        self.telemetry = Telemetry()
        self.sessions: list[Session] = []
        nursery.start_soon(self._tend)

    async def _tend(self) -> None:
        while True:
            await trio.sleep(0.1)
            for session in self.sessions:
                session.tend(trio.current_time())

    async def connect(
        self,
        make_pair: Callable[[], Pair] = trio.testing.memory_stream_pair,
        *,
        answers_pings: bool = True,
    ) -> Peer:
        """Open a session and return its client."""
        client, server = make_pair()
        websocket = WebSocket(server, HANDSHAKE, max_message_bytes=self.limits.message_bytes)
        peer = Peer(client, answers_pings=answers_pings)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(websocket.accept)
            assert await peer.handshake() == 101
        session = Session(
            websocket,
            self.script,
            slots=self.slots,
            limits=self.limits,
            telemetry=self.telemetry,
            peer="test",
        )
        self.sessions.append(session)
        self.nursery.start_soon(self._run, session, server)
        return peer

    async def _run(self, session: Session, stream: trio.abc.Stream) -> None:
        try:
            await session.run()
        finally:
            self.sessions.remove(session)
            await trio.aclose_forcefully(stream)

    async def settle(self, event: str = "") -> None:
        """Wait until everything has come to rest; then the script has seen the event."""
        await trio.testing.wait_all_tasks_blocked()
        assert not event or event in self.script.events, self.script.events

    def closed_for(self, reason: str) -> int:
        """Return how many sessions have ended for a reason."""
        labels = {"reason": reason}
        return int(
            self.telemetry.registry.get_sample_value("envhost_sessions_closed_total", labels) or 0
        )


@contextlib.asynccontextmanager
async def bench(script: Script | None = None, **settings: Any) -> AsyncIterator[Bench]:
    """Hold a bench; at the end all its sessions must have given back everything."""
    made: Bench
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            made = Bench(nursery, script or Script(), **settings)
            yield made
            nursery.cancel_scope.cancel()
    assert made.slots.taken == 0
    assert made.script.living == 0
    assert not made.sessions
