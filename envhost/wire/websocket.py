"""One WebSocket, seen from either end: receive, send under a deadline, close, keepalive.

Owns trio_websocket and hides its sharp edges (0.12.2, each measured):
an unread message blocks its reader, so that a close goes unseen: somebody must always receive;
`ping()` never wakes when the connection ends; `aclose()` has no limit; `max_message_size` counts
characters; its client keeps the socket open after a remote close; a failed handshake may leave
its reader running. Everything here ends in `Disconnected` when the peer is gone.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import trio
import trio_websocket
from wsproto.utilities import LocalProtocolError, ProtocolError

__all__ = ["Disconnected", "HandshakeRefused", "WebSocket", "accept", "connect"]

_RECEIVE_BYTES = 64 * 1024  # 4 KiB, the default, costs half the throughput of large messages
_CLOSE_SECONDS = 2.0
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


class HandshakeRefused(Exception):
    """The server answered the handshake with a plain HTTP status."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}" if body else f"HTTP {status}")
        self.status = status


class WebSocket:
    """An open WebSocket; `receive` must be waited on at all times by exactly one task."""

    def __init__(
        self,
        connection: trio_websocket.WebSocketConnection,
        stream: trio.abc.Stream,
        *,
        max_message_bytes: int,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._max_message_bytes = max_message_bytes

    async def receive(self) -> str | bytes:
        """Return the next message.

        Raises:
            Disconnected: The connection is over; a message above the limit ends it with 1009.
        """
        try:
            message: str | bytes = await self._connection.get_message()
        except trio_websocket.ConnectionClosed as closed:
            gone = _disconnected(closed)
            if gone.code == CLOSE_TOO_BIG:
                await self._linger()
            raise gone from None
        # The library counts characters; only a text that could be longer in bytes is encoded.
        limit = self._max_message_bytes
        if (
            isinstance(message, str)
            and len(message) * 4 > limit
            and len(message.encode("utf-8", "surrogatepass")) > limit
        ):
            await self.close(CLOSE_TOO_BIG, f"message above {limit} bytes")
            raise Disconnected(CLOSE_TOO_BIG, f"message above {limit} bytes")
        return message

    async def send(self, text: str) -> None:
        """Send one text message; cancelling it in the middle breaks the connection.

        Raises:
            Disconnected: The connection is over.
        """
        try:
            await self._connection.send_message(text)
        except trio_websocket.ConnectionClosed as closed:
            raise _disconnected(closed) from None
        except LocalProtocolError:  # a close has been sent or received in the meantime
            raise Disconnected(None) from None

    async def close(self, code: int = CLOSE_NORMAL, reason: str = "") -> None:
        """Close with a handshake within two seconds, else without; never raises for the peer."""
        # 123 bytes is what a close frame holds.
        text = reason.encode()[:123].decode("utf-8", "ignore") or None
        with trio.move_on_after(_CLOSE_SECONDS, shield=True):
            with suppress(LocalProtocolError):
                await self._connection.aclose(code, text)

    async def _linger(self) -> None:
        """Read on for a moment, so that a peer that still sends sees our close, not a reset."""
        with trio.move_on_after(_CLOSE_SECONDS):
            try:
                while await self._stream.receive_some(_RECEIVE_BYTES):
                    pass
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                pass

    async def keep_alive(self, *, interval_seconds: float, timeout_seconds: float) -> None:
        """Ping the peer again and again; return when it has not answered in time.

        Cancel this when the connection ends: a ping in flight does not wake by itself.
        """
        while True:
            await trio.sleep(interval_seconds)
            with trio.move_on_after(timeout_seconds) as scope:
                try:
                    await self._connection.ping()
                except (trio_websocket.ConnectionClosed, LocalProtocolError):
                    return
            if scope.cancelled_caught:
                return


class _Reader:
    """Stands where trio_websocket expects a nursery for its reader, to learn when that ends.

    Without it a handshake that the peer abandons waits for ever, and whatever the reader raises
    hits the whole session.
    """

    def __init__(self, nursery: trio.Nursery, handshake: trio.CancelScope) -> None:
        self._nursery = nursery
        self._handshake = handshake
        self.rejection: trio_websocket.ConnectionRejected | None = None

    def start_soon(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        """Start the reader; the only method of a nursery that the library calls."""
        self._nursery.start_soon(self._run, task, args)

    async def _run(self, task: Callable[..., Awaitable[None]], args: tuple[object, ...]) -> None:
        try:
            await task(*args)
        except trio_websocket.ConnectionRejected as rejection:
            self.rejection = rejection
        except (trio_websocket.ConnectionClosed, ProtocolError, trio.ClosedResourceError):
            pass
        finally:
            self._handshake.cancel()


def _disconnected(closed: trio_websocket.ConnectionClosed) -> Disconnected:
    if closed.reason is None:
        return Disconnected(None)
    return Disconnected(closed.reason.code, closed.reason.reason)


async def accept(
    nursery: trio.Nursery, stream: trio.abc.Stream, *, max_message_bytes: int
) -> WebSocket:
    """Answer the WebSocket handshake waiting on a stream; its reader runs in the nursery.

    Raises:
        Disconnected: The client went away, or its handshake is malformed.
    """
    with trio.CancelScope() as handshake:
        try:
            request = await trio_websocket.wrap_server_stream(
                cast("trio.Nursery", _Reader(nursery, handshake)),
                stream,
                max_message_size=max_message_bytes,
                receive_buffer_size=_RECEIVE_BYTES,
            )
            connection = await request.accept()
        except (trio_websocket.ConnectionClosed, LocalProtocolError):
            raise Disconnected(None) from None
        return WebSocket(connection, stream, max_message_bytes=max_message_bytes)
    raise Disconnected(None)


@asynccontextmanager
async def connect(
    stream: trio.abc.Stream,
    *,
    host_header: str,
    resource: str,
    headers: list[tuple[bytes, bytes]],
    max_message_bytes: int,
) -> AsyncIterator[WebSocket]:
    """Open a WebSocket over a connected stream; leaving the context closes both on every path.

    Raises:
        HandshakeRefused: The server answered with an HTTP status.
        Disconnected: It closed during the handshake.
    """
    failure: HandshakeRefused | Disconnected | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                websocket = await _client_handshake(
                    nursery, stream, host_header, resource, headers, max_message_bytes
                )
            except (HandshakeRefused, Disconnected) as error:
                failure = error  # raised below, where no nursery wraps it in a group
            else:
                yield websocket
                await websocket.close()
            nursery.cancel_scope.cancel()
    finally:
        await trio.aclose_forcefully(stream)
    if failure is not None:
        raise failure


async def _client_handshake(
    nursery: trio.Nursery,
    stream: trio.abc.Stream,
    host_header: str,
    resource: str,
    headers: list[tuple[bytes, bytes]],
    max_message_bytes: int,
) -> WebSocket:
    with trio.CancelScope() as handshake:
        reader = _Reader(nursery, handshake)
        connection = await trio_websocket.wrap_client_stream(
            cast("trio.Nursery", reader),
            cast("trio.SocketStream", stream),  # any stream will do
            host_header,
            resource,
            extra_headers=headers,
            max_message_size=max_message_bytes,
            receive_buffer_size=_RECEIVE_BYTES,
        )
        return WebSocket(connection, stream, max_message_bytes=max_message_bytes)
    if reader.rejection is not None:
        body = (reader.rejection.body or b"").decode("utf-8", "replace").strip()
        raise HandshakeRefused(reader.rejection.status_code, body)
    raise Disconnected(None, "closed during the handshake")
