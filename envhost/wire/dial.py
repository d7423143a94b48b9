"""The client's end of a WebSocket.

Owns trio_websocket and hides its sharp edges (0.12.2, each measured): `aclose()` has no limit; the
socket stays open after a remote close; a handshake that the server abandons waits for ever.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import cast

import trio
import trio_websocket
from wsproto.utilities import LocalProtocolError

from .websocket import Disconnected

__all__ = ["ClientWebSocket", "HandshakeRefused", "connect"]

_RECEIVE_BYTES = 64 * 1024  # 4 KiB, the default, costs half the throughput of large messages
_CLOSE_SECONDS = 2.0


class HandshakeRefused(Exception):
    """The server answered the handshake with a plain HTTP status."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"HTTP {status}: {body}" if body else f"HTTP {status}")
        self.status = status


class ClientWebSocket:
    """An open WebSocket to a server."""

    def __init__(self, connection: trio_websocket.WebSocketConnection) -> None:
        self._connection = connection

    async def receive(self) -> str | bytes:
        """Return the next message.

        Raises:
            Disconnected: The connection is over.
        """
        try:
            message: str | bytes = await self._connection.get_message()
        except trio_websocket.ConnectionClosed as closed:
            raise _disconnected(closed) from None
        return message

    async def send(self, text: bytes) -> None:
        """Send one text message, UTF-8; cancelling it in the middle breaks the connection.

        Raises:
            Disconnected: The connection is over.
        """
        try:
            await self._connection.send_message(text.decode())
        except trio_websocket.ConnectionClosed as closed:
            raise _disconnected(closed) from None
        except LocalProtocolError:  # a close has been sent or received in the meantime
            raise Disconnected(None) from None

    async def close(self) -> None:
        """Close with a handshake within two seconds, else without; never raises for the peer."""
        with trio.move_on_after(_CLOSE_SECONDS, shield=True), suppress(LocalProtocolError):
            await self._connection.aclose()


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
        except Exception:  # noqa: BLE001, S110 - whatever ends the reader ends this connection only
            pass
        finally:
            self._handshake.cancel()


def _disconnected(closed: trio_websocket.ConnectionClosed) -> Disconnected:
    if closed.reason is None:
        return Disconnected(None)
    return Disconnected(closed.reason.code, closed.reason.reason)


@asynccontextmanager
async def connect(
    stream: trio.abc.Stream,
    *,
    host_header: str,
    resource: str,
    headers: list[tuple[bytes, bytes]],
    max_message_bytes: int,
) -> AsyncIterator[ClientWebSocket]:
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
) -> ClientWebSocket:
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
        return ClientWebSocket(connection)
    if reader.rejection is not None:
        body = (reader.rejection.body or b"").decode("utf-8", "replace").strip()
        raise HandshakeRefused(reader.rejection.status_code, body)
    raise Disconnected(None, "closed during the handshake")
