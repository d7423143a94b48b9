"""Load for session servers: many WebSocket sessions in one process, for as few cycles as possible.

Goals: cheaper than any server under test, so that the server is what is measured; nothing of
envhost is used. Frames are built once and sent raw, replies are counted by their length and only
their first bytes are looked at, one epoll loop drives everything.

Talks to its parent by lines of JSON: prints `opened` when every session's first reset is answered,
waits for a line on stdin, steps, prints `stepped`, waits again, closes.

Known weak point: a reply split over several WebSocket frames counts at its last one, and a header
split over two reads is kept until the rest is there.
"""

from __future__ import annotations

import argparse
import base64
import errno
import heapq
import json
import os
import resource
import select
import socket
import struct
import sys
import time
from array import array
from urllib.parse import urlsplit

_CHUNK = 1 << 18
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10
_GIVE_UP_SECONDS = 300.0


def frame(opcode: int, payload: bytes) -> bytes:
    """Return a client's frame; its mask is zero, which leaves the payload as it is."""
    length = len(payload)
    if length < 126:
        size = bytes([0x80 | length])
    elif length < 1 << 16:
        size = bytes([0x80 | 126]) + struct.pack("!H", length)
    else:
        size = bytes([0x80 | 127]) + struct.pack("!Q", length)
    return bytes([0x80 | opcode]) + size + bytes(4) + payload


def text_frame(message: object) -> bytes:
    """Return a message's JSON as one text frame."""
    return frame(_TEXT, json.dumps(message).encode())


class Session:
    """One socket: what is still to be sent, and how much of a reply is still to come."""

    __slots__ = ("missing", "pending", "rest", "sent_at", "socket")

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pending: memoryview = memoryview(b"")
        self.rest = b""  # a header that came in part
        self.missing = 0  # bytes of a payload that have not come
        self.sent_at = 0.0
        self.socket.connect_ex(address)


class Load:
    """Drive the sessions of one server.

    Args:
        url: The server's base URL.
        count: How many sessions.
        message_bytes: Length of each action's text.
    """

    def __init__(self, url: str, *, count: int, message_bytes: int) -> None:
        parts = urlsplit(url)
        address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._step = text_frame({"type": "step", "data": {"message": "x" * message_bytes}})
        self._reset = text_frame({"type": "reset", "data": {"seed": 1}})
        self._handshake = (
            f"GET {parts.path.rstrip('/')}/ws HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
            "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\n\r\n"
        ).encode()
        self._epoll = select.epoll()
        self._address = address
        self._count = count
        self._sessions: dict[int, Session] = {}
        self.errors = 0
        self.pings = 0
        self.latencies = array("d")

    def open(self) -> dict[str, float]:
        """Open all sessions at once; return the seconds to the last 101 and the last reset."""
        started = time.perf_counter()
        for _ in range(self._count):
            session = Session(self._address)
            self._sessions[session.socket.fileno()] = session
            session.pending = memoryview(self._handshake)
            self._epoll.register(session.socket.fileno(), select.EPOLLOUT)
        shaken, answered = 0, 0
        last_shaken = started
        while answered < self._count:
            for number, events in self._wait(started):
                session = self._sessions[number]
                if events & select.EPOLLOUT:
                    self._flush(number, session)
                elif session.sent_at == 0.0:
                    if self._shaken(session):
                        shaken += 1
                        last_shaken = time.perf_counter()
                        self._send(number, session, self._reset, last_shaken)
                else:
                    answered += self._receive(session)
        ended = time.perf_counter()
        return {"handshake_seconds": last_shaken - started, "open_seconds": ended - started}

    def run(self, seconds: float, rate: float) -> dict[str, float]:
        """Step for some seconds: each session at once after its reply, or all at a total rate."""
        started = time.perf_counter()
        cpu = time.process_time()
        until = started + seconds
        running = self._all_at_once(until) if rate == 0 else self._paced(until, rate)
        elapsed = running - started
        times = sorted(self.latencies)
        return {
            "steps": len(times),
            "steps_per_second": len(times) / elapsed,
            "p50_ms": 1000 * times[len(times) // 2],
            "p99_ms": 1000 * times[int(len(times) * 0.99)],
            "errors": self.errors,
            "pings": self.pings,
            "load_cpu_share": (time.process_time() - cpu) / elapsed,
        }

    def close(self) -> None:
        """Close every socket."""
        for session in self._sessions.values():
            session.socket.close()
        self._epoll.close()

    def _all_at_once(self, until: float) -> float:
        clock = time.perf_counter
        for number, session in self._sessions.items():
            self._send(number, session, self._step, clock())
        outstanding = len(self._sessions)
        while outstanding:
            for number, events in self._epoll.poll(_GIVE_UP_SECONDS):
                session = self._sessions[number]
                if events & select.EPOLLOUT:
                    self._flush(number, session)
                elif self._receive(session):
                    now = clock()
                    self.latencies.append(now - session.sent_at)
                    if now < until:
                        self._send(number, session, self._step, now)
                    else:
                        outstanding -= 1
        return clock()

    def _paced(self, until: float, rate: float) -> float:
        """Send at fixed times, whatever the replies do; late sends count from when they were due.

        Else a server that stalls would hide the requests that it kept from being sent.
        """
        clock = time.perf_counter
        gap = len(self._sessions) / rate
        begun = clock()
        due = [(begun + i * gap / self._count, n) for i, n in enumerate(self._sessions)]
        heapq.heapify(due)
        busy: set[int] = set()
        while due or busy:
            now = clock()
            while due and due[0][0] <= now:
                at, number = heapq.heappop(due)
                busy.add(number)
                self._send(number, self._sessions[number], self._step, at)
            timeout = max(0.0, due[0][0] - clock()) if due else _GIVE_UP_SECONDS
            for number, events in self._epoll.poll(timeout):
                session = self._sessions[number]
                if events & select.EPOLLOUT:
                    self._flush(number, session)
                elif self._receive(session):
                    self.latencies.append(clock() - session.sent_at)
                    busy.discard(number)
                    if (following := session.sent_at + gap) < until:
                        heapq.heappush(due, (following, number))
        return clock()

    def _wait(self, started: float) -> list[tuple[int, int]]:
        if time.perf_counter() - started > _GIVE_UP_SECONDS:
            raise SystemExit(f"not open after {_GIVE_UP_SECONDS:g} s")
        return self._epoll.poll(1.0)

    def _send(self, number: int, session: Session, data: bytes, at: float) -> None:
        session.sent_at = at
        try:
            sent = session.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            session.pending = memoryview(data)[sent:]
            self._epoll.modify(number, select.EPOLLOUT)

    def _flush(self, number: int, session: Session) -> None:
        try:
            sent = session.socket.send(session.pending)
        except BlockingIOError:
            return
        except OSError as error:
            raise SystemExit(f"cannot connect: {error}") from None
        session.pending = session.pending[sent:]
        if not session.pending:
            self._epoll.modify(number, select.EPOLLIN)

    def _shaken(self, session: Session) -> bool:
        session.rest += self._read(session)
        head, end, session.rest = session.rest.partition(b"\r\n\r\n")
        if not end:
            session.rest = head
            return False
        if head.split(b" ", 2)[1] != b"101":
            raise SystemExit(f"refused: {head[:60]!r}")
        return True

    def _read(self, session: Session) -> bytes:
        try:
            data = session.socket.recv(_CHUNK)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return b""
            raise SystemExit(f"connection lost: {error}") from None
        if not data:
            raise SystemExit("the server closed a session")
        return data

    def _receive(self, session: Session) -> int:
        """Take in what has come; return how many replies it completes."""
        data = self._read(session)
        if session.missing:
            if len(data) < session.missing:
                session.missing -= len(data)
                return 0
            data = data[session.missing :]
            session.missing = 0
            return 1 + (self._frames(session, data) if data else 0)
        return self._frames(session, session.rest + data if session.rest else data)

    def _frames(self, session: Session, data: bytes) -> int:
        replies = 0
        session.rest = b""
        while data:
            head = 2
            size = data[1] & 127 if len(data) > 1 else 0
            head += 2 if size == 126 else 8 if size == 127 else 0
            if len(data) < head:
                session.rest = data
                break
            if size > 125:
                size = int.from_bytes(data[2:head], "big")
            opcode = data[0] & 15
            body = data[head : head + 32]
            if opcode >= _CLOSE:
                if len(data) < head + size:
                    session.rest = data
                    break
                self._control(session, opcode, data[head : head + size])
            else:
                self.errors += b'"error"' in body
                if len(data) < head + size:
                    session.missing = head + size - len(data)
                    break
                replies += 1
            data = data[head + size :]
        return replies

    def _control(self, session: Session, opcode: int, payload: bytes) -> None:
        if opcode == _PING:
            self.pings += 1
            session.socket.send(frame(_PONG, payload))
        elif opcode == _CLOSE:
            raise SystemExit(f"the server closed a session with {payload[:2].hex()}")


def main() -> None:
    """Open, step and close when told to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--sessions", type=int, required=True)
    parser.add_argument("--message-bytes", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True)
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load = Load(asked.url, count=asked.sessions, message_bytes=asked.message_bytes)
    print(json.dumps({"opened": load.open()}), flush=True)
    sys.stdin.readline()
    print(json.dumps({"stepped": load.run(asked.seconds, asked.rate)}), flush=True)
    sys.stdin.readline()
    load.close()


if __name__ == "__main__":
    main()
