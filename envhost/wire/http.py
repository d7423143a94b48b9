"""HTTP on the server's port: the request head, plain replies, the hand-over to the WebSocket.

Owns h11 and the limits on a request's head. A stream's first bytes are parsed here once; if they
ask for a WebSocket, it gets those bytes with the stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import h11
import trio
from attrs import field, frozen

from .codec import dump_json

__all__ = ["BadRequest", "HttpReply", "RequestHead", "read_head", "send_reply"]

_RECEIVE_BYTES = 64 * 1024
_LINGER_SECONDS = 1.0


class BadRequest(Exception):
    """The client's first bytes are no HTTP request that we take."""

    def __init__(self, reply: HttpReply) -> None:
        super().__init__(reply.status)
        self.reply = reply


@frozen(kw_only=True)
class RequestHead:
    """A request's first lines; header names are lower case, a repeated header's last value wins."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    @property
    def is_websocket(self) -> bool:
        """Whether the client asks for the WebSocket protocol."""
        return self.headers.get("upgrade", "").lower() == "websocket"


@frozen(kw_only=True)
class HttpReply:
    """A whole HTTP answer; the connection closes after it."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = field(default=())

    @classmethod
    def text(cls, status: int, text: str, *headers: tuple[str, str]) -> HttpReply:
        """Return one line of plain text."""
        return cls(status=status, body=f"{text}\n".encode(), headers=headers)

    @classmethod
    def json(cls, value: object, status: int = 200) -> HttpReply:
        """Return a JSON document."""
        return cls(status=status, body=dump_json(value), content_type="application/json")


async def read_head(stream: trio.abc.Stream, *, max_bytes: int) -> tuple[RequestHead, bytes] | None:
    """Read a request's head; return it with every byte read so far, or None at a clean end.

    Raises:
        BadRequest: No HTTP, or too long; its reply says which.
    """
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=max_bytes)
    received = bytearray()
    while True:
        try:
            data = await stream.receive_some(_RECEIVE_BYTES)
        except trio.BrokenResourceError:
            return None
        if not data and not received:
            return None
        received += data
        try:
            connection.receive_data(bytes(data))
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            status = error.error_status_hint if len(received) > max_bytes else 400
            raise BadRequest(HttpReply.text(status, f"bad request: {error}")) from None
        if isinstance(event, h11.Request):
            return _head(event), bytes(received)
        if event is not h11.NEED_DATA:
            return None


def _head(event: h11.Request) -> RequestHead:
    path, _, query = event.target.decode("latin-1").partition("?")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
    return RequestHead(
        method=event.method.decode("latin-1"), path=path, query=query, headers=headers
    )


async def send_reply(stream: trio.abc.Stream, reply: HttpReply, *, body: bool = True) -> None:
    """Send a reply and end the stream; a client that has gone away is no error."""
    reason = HTTPStatus(reply.status).phrase
    lines = [
        f"HTTP/1.1 {reply.status} {reason}",
        f"Content-Type: {reply.content_type}",
        f"Content-Length: {len(reply.body)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in reply.headers),
    ]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    try:
        await stream.send_all(head + (reply.body if body else b""))
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
            # Closing over unread bytes would reset the connection, and the reply with it.
            with trio.move_on_after(_LINGER_SECONDS):
                while await stream.receive_some(_RECEIVE_BYTES):
                    pass
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return
