"""The head of a request, in whatever pieces it comes, and plain replies."""

from __future__ import annotations

import contextlib
from itertools import pairwise

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from envhost.wire.http import BadRequest, HttpReply, RequestHead, read_head, send_reply

HEAD = b"GET /a/b?c=d%20e HTTP/1.1\r\nHost: localhost\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n"


async def _read(*pieces: bytes, ends: bool = True) -> tuple[RequestHead, bytes] | None:
    client, server = trio.testing.memory_stream_pair()
    for piece in pieces:
        await client.send_all(piece)
    if ends:
        await client.send_eof()
    return await read_head(server, max_bytes=1000)


async def test_a_head_is_read_with_every_byte() -> None:
    """The bytes are handed on to whoever speaks next, with what came behind the head."""
    found = await _read(HEAD + b"more")

    assert found is not None
    head, received = found
    assert (head.method, head.path, head.query) == ("GET", "/a/b", "c=d%20e")
    assert head.headers == {"host": "localhost", "x-twice": "2"}
    assert not head.is_websocket
    assert received == HEAD + b"more"


@given(st.lists(st.integers(min_value=0, max_value=len(HEAD)), max_size=5))
def test_a_head_may_come_in_any_pieces(cuts: list[int]) -> None:
    """One byte at a time or all at once."""
    edges = [0, *sorted(cuts), len(HEAD)]
    pieces = [HEAD[a:b] for a, b in pairwise(edges) if a < b]

    found = trio.run(lambda: _read(*pieces))

    assert found is not None
    assert found[1] == HEAD


@given(st.binary(max_size=300))
def test_any_bytes_are_a_head_or_a_bad_request(data: bytes) -> None:
    """Or a client that left; never another exception."""
    with contextlib.suppress(BadRequest):
        found = trio.run(lambda: _read(data))
        assert found is None or found[1] == data


async def test_a_head_above_its_size_is_refused() -> None:
    """431, before the whole of it has come."""
    with pytest.raises(BadRequest) as caught:
        await _read(b"GET / HTTP/1.1\r\nX: " + b"x" * 1100, ends=False)

    assert caught.value.reply.status == 431


async def test_a_client_that_leaves_is_no_error() -> None:
    """With nothing sent, or with half a head."""
    assert await _read() is None
    with pytest.raises(BadRequest):
        await _read(HEAD[:20])


async def test_a_reply_is_whole_and_ends_the_connection() -> None:
    """Length, type and the further headers; a client that has gone is no error."""
    client, server = trio.testing.memory_stream_pair()
    reply = HttpReply.text(405, "no", ("Allow", "GET"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_reply, server, reply)
        received = b""
        while not received.endswith(b"no\n"):
            received += await client.receive_some()
        await client.aclose()

    assert received.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: GET\r\n" in received
    assert b"\r\nContent-Length: 3\r\n" in received
    assert b"\r\nConnection: close\r\n" in received
    await send_reply(server, reply)


async def test_a_json_reply_holds_what_json_can() -> None:
    """Whatever a name or an id contains."""
    assert (
        HttpReply.json({"a": float("nan"), "b": "<\ud800>"}).body
        == b'{"a": null, "b": "<\\ud800>"}'
    )
