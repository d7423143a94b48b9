"""The server's end of a WebSocket: receive, send, pings, close.

Owns the Sans-I/O protocol of `websockets`; here are the reads and writes around it. It parses and
unmasks four times as fast as wsproto, and the session's receive task reads the socket itself:
trio-websocket, which our client uses (`dial`), puts a task, a channel and a lock in between, and
an unread message in its channel hides that the peer has gone.

Known weak point: a pong waits while a long reply is being sent, and with it the receive task; the
limit on sending bounds that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import trio
from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

__all__ = ["Disconnected", "WebSocket"]

_SUBPROTOCOL = Subprotocol("envhost")
_RECEIVE_BYTES = 64 * 1024
_CLOSE_SECONDS = 1.0

CLOSE_NORMAL = 1000
CLOSE_GOING_AWAY = 1001
CLOSE_POLICY = 1008
CLOSE_TOO_BIG = 1009


class Disconnected(Exception):
    """The peer has closed or lost the connection."""

    def __init__(self, code: int | None, reason: str | None = None) -> None:
        super().__init__(f"closed with {code}" + (f": {reason}" if reason else ""))
        self.code = code
        self.reason = reason


class WebSocket:
    """A client's WebSocket; exactly one task must be in `receive` at all times.

    Args:
        stream: The client's stream, TLS done.
        request: The bytes of the handshake, already read from the stream.
        max_message_bytes: A larger message ends the connection with 1009.
    """

    def __init__(self, stream: trio.abc.Stream, request: bytes, *, max_message_bytes: int) -> None:
        self.heard_at = trio.current_time()
        """When the peer last sent anything: its sign of life."""
        self._stream = stream
        self._request = request
        self._protocol = ServerProtocol(
            max_size=max_message_bytes, select_subprotocol=_select_subprotocol
        )
        self._frames: list[Frame] = []  # received and not yet given out, in reverse
        self._parts = bytearray()  # of a fragmented message; a list would grow with empty ones
        self._is_text = True
        self._sending = trio.Lock()
        self._is_torn = False  # in the middle of a frame: nothing may follow
        self._ended = trio.Event()

    async def accept(self) -> None:
        """Answer the handshake.

        Raises:
            Disconnected: It is malformed, or the client has gone.
        """
        protocol = self._protocol
        protocol.receive_data(self._request)
        events = protocol.events_received()
        if not events or not isinstance(events[0], Request):
            raise Disconnected(None, f"expected a WebSocket handshake: {protocol.handshake_exc}")
        protocol.send_response(protocol.accept(events[0]))
        self._take(events[1:])
        await self._flush()
        if protocol.handshake_exc is not None:
            raise Disconnected(None, f"bad WebSocket handshake: {protocol.handshake_exc}")

    async def receive(self) -> str | bytes:
        """Return the next message; pings are answered meanwhile.

        Raises:
            Disconnected: The connection is over.
        """
        try:
            while True:
                while self._frames:
                    message = await self._collect(self._frames.pop())
                    if message is not None:
                        return message
                if self._protocol.parser_exc is not None:
                    raise await self._broken()
                await self._read()
        except Disconnected:
            self._ended.set()
            raise

    async def send(self, text: bytes) -> None:
        """Send one text message, UTF-8; cancelling it in the middle breaks the connection.

        Raises:
            Disconnected: The connection is over.
        """
        try:
            self._protocol.send_text(text)
        except InvalidState as error:  # a close has been sent or received in the meantime
            raise Disconnected(None, str(error)) from None
        await self._flush()

    async def ping(self) -> None:
        """Ask the peer for a sign of life; see `heard_at`.

        Raises:
            Disconnected: The connection is over.
        """
        try:
            self._protocol.send_ping(b"")
        except InvalidState as error:
            raise Disconnected(None, str(error)) from None
        await self._flush()

    async def close(self, code: int, reason: str) -> None:
        """Send a close frame and wait a second at most for the peer's; never raises for the peer.

        The task in `receive` sees the peer's answer.
        """
        with trio.move_on_after(_CLOSE_SECONDS, shield=True), suppress(Disconnected):
            await self._send_close(code, reason)
            await self._ended.wait()

    async def ended(self) -> None:
        """Wait a second at most until the task in `receive` has come to the end."""
        with trio.move_on_after(_CLOSE_SECONDS):
            await self._ended.wait()

    async def refuse(self, code: int, reason: str) -> Disconnected:
        """Close from the receiving task itself, and return the end to raise."""
        with trio.move_on_after(_CLOSE_SECONDS), suppress(Disconnected):
            await self._send_close(code, reason)
        await self._linger()
        return Disconnected(code, reason)

    async def _broken(self) -> Disconnected:
        """Return the end that a frame against the protocol brought; the close has been sent."""
        await self._linger()
        sent = self._protocol.close_sent
        return Disconnected(sent.code if sent else None, str(self._protocol.parser_exc))

    async def _send_close(self, code: int, reason: str) -> None:
        # A close frame holds 123 bytes of reason.
        text = reason.encode()[:123].decode("utf-8", "ignore")
        with suppress(InvalidState):
            self._protocol.send_close(code, text)
        await self._flush()

    async def _collect(self, frame: Frame) -> str | bytes | None:
        """Take one frame; return the message that it ends, if it does."""
        if frame.opcode is Opcode.CLOSE:
            received = self._protocol.close_rcvd
            assert received is not None
            raise Disconnected(received.code, received.reason)
        if frame.opcode in {Opcode.PING, Opcode.PONG}:
            return None  # answered by the protocol, or our sign of life
        if frame.opcode is not Opcode.CONT:
            self._is_text = frame.opcode is Opcode.TEXT
        if frame.fin and not self._parts:
            data = bytes(frame.data)
        else:
            self._parts += frame.data
            if not frame.fin:
                return None
            data = bytes(self._parts)
            self._parts.clear()
        if not self._is_text:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise await self.refuse(1007, "text frames hold UTF-8") from None

    async def _read(self) -> None:
        try:
            data = await self._stream.receive_some(_RECEIVE_BYTES)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Disconnected(None) from None
        if not data:
            raise Disconnected(None)
        self.heard_at = trio.current_time()
        protocol = self._protocol
        protocol.receive_data(data)
        self._take(protocol.events_received())
        if protocol.writes:  # a pong, or a close
            await self._flush()

    def _take(self, events: Sequence[object]) -> None:
        frames = [event for event in events if isinstance(event, Frame)]
        self._frames[:0] = reversed(frames)

    async def _linger(self) -> None:
        """Read on for a moment, so that a peer that still sends sees our close, not a reset."""
        with trio.move_on_after(_CLOSE_SECONDS):
            try:
                while await self._stream.receive_some(_RECEIVE_BYTES):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    async def _flush(self) -> None:
        """Send all that the protocol has to say, in its order."""
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            await self._sending.acquire()
        try:
            data = b"".join(self._protocol.data_to_send())
            if self._is_torn:
                raise Disconnected(None, "a reply was cut off")
            if data:
                await self._stream.send_all(data)
        except trio.Cancelled:
            self._is_torn = True
            raise
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise Disconnected(None) from None
        finally:
            self._sending.release()


def _select_subprotocol(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Take our own name where it is offered, as a browser wants; never its token (see `auth`)."""
    return _SUBPROTOCOL if _SUBPROTOCOL in offered else None
