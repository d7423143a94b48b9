"""A WebSocket client of a few lines, for tests that need to see and break every frame.

Owns nothing of envhost: it shares no code, and so no mistake, with what it tests.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import struct
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

PATIENCE_SECONDS = 30.0  # generous: a full machine must not fail a test of something else


class Closed(Exception):
    """The server ended the connection; `code` None means without a close frame."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"closed with {code}")
        self.code = code


class RawClient:
    """One open WebSocket to a server's /ws.

    Args:
        port: The server's port on this machine.
        path: The request's target.
        headers: Further header lines.
    """

    def __init__(self, port: int, *, path: str = "/ws", headers: tuple[str, ...] = ()) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
        self._received = b""
        key = base64.b64encode(os.urandom(16)).decode()
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: 127.0.0.1:{port}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
            *headers,
        )
        self.socket.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        while b"\r\n\r\n" not in self._received:
            self._receive()
        head, end, self._received = self._received.partition(b"\r\n\r\n")
        self.head = head + end
        self.status = int(head.split()[1])

    def send(self, message: Any) -> None:
        """Send a message as JSON."""
        self.send_frame(0x1, json.dumps(message).encode())

    def send_frame(self, opcode: int, payload: bytes) -> None:
        """Send one masked frame; the mask is zero, which leaves the payload as it is."""
        length = len(payload)
        if length < 126:
            size = bytes([0x80 | length])
        elif length < 1 << 16:
            size = bytes([0x80 | 126]) + struct.pack("!H", length)
        else:
            size = bytes([0x80 | 127]) + struct.pack("!Q", length)
        self.socket.sendall(bytes([0x80 | opcode]) + size + bytes(4) + payload)

    def receive(self) -> dict[str, Any]:
        """Return the next message; pings are answered on the way.

        Raises:
            Closed: The server sent a close frame or ended the connection.
        """
        while True:
            opcode, payload = self._frame()
            if opcode == 0x8:
                raise Closed(struct.unpack("!H", payload[:2])[0] if payload else None)
            if opcode == 0x9:
                self.send_frame(0xA, payload)
            elif opcode == 0x1:
                message: dict[str, Any] = json.loads(payload)
                return message

    def ask(self, message: Any) -> dict[str, Any]:
        """Send a message and return the reply."""
        self.send(message)
        return self.receive()

    def reset(self, **options: Any) -> dict[str, Any]:
        """Begin an episode; return the reply's data."""
        reply = self.ask({"type": "reset", "data": options})
        assert reply["type"] == "observation", reply
        data: dict[str, Any] = reply["data"]
        return data

    def step(self, message: str) -> dict[str, Any]:
        """Send a text action; return the reply, which may be an error."""
        return self.ask({"type": "step", "data": {"message": message}})

    def close_code(self) -> int | None:
        """Read until the server ends the connection and return its close code."""
        try:
            while True:
                self.receive()
        except Closed as closed:
            return closed.code

    def drop(self) -> None:
        """Close the socket without a word."""
        self.socket.close()

    def close(self) -> None:
        """Say goodbye as OpenEnv's clients do, and close."""
        self.send({"type": "close"})
        self.close_code()
        self.drop()

    def _frame(self) -> tuple[int, bytes]:
        first, second = self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", self._exactly(8))
        return first & 0x0F, self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            self._receive()
        data, self._received = self._received[:size], self._received[size:]
        return data

    def _receive(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Closed(None)
        self._received += data

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.drop()


def wait_until(condition: Callable[[], Any], *, seconds: float = PATIENCE_SECONDS) -> Any:
    """Return a condition's first true value; what another process does can only be looked at."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {condition}"
        time.sleep(0.005)
    return value


def wait_for_log(server: Any, pattern: str, *, count: int = 1) -> list[str]:
    """Wait until a server's log has `count` lines in which the pattern is found; return them."""

    def found() -> list[str]:
        lines = [line for line in server.log().splitlines() if re.search(pattern, line)]
        return lines if len(lines) >= count else []

    try:
        lines: list[str] = wait_until(found)
    except AssertionError:
        raise AssertionError(f"no {count} lines with {pattern!r} in:\n{server.log()}") from None
    return lines
