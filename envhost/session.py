"""One session: one socket, one environment, one nursery that owns everything in between.

The receive task runs all the time, so that a closed socket cancels the nursery at once, and with
it the step and every process of it; requests wait in a bounded queue. `episode` answers them.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from typing import Any

import trio

from .admission import Slots
from .config import Limits
from .environment import Environment, EnvironmentFactory
from .episode import Episode, failure_reply, guarded, protocol_error_reply
from .errors import ProtocolError
from .telemetry import Telemetry, log_event, log_traceback, session_id
from .wire.codec import decode_request, encode_reply
from .wire.messages import TERMINAL_CODES, CloseRequest, ErrorReply, Reply
from .wire.websocket import (
    CLOSE_GOING_AWAY,
    CLOSE_NORMAL,
    CLOSE_POLICY,
    CLOSE_TOO_BIG,
    Disconnected,
    WebSocket,
)

__all__ = ["Session"]


class _Ended(Exception):  # the session's own way out, with the close code and the reason
    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Session:
    """Drive one environment for one client until either side ends it.

    Args:
        websocket: The client's open socket.
        factory: Makes the environment.
        slots: The server's capacity; the session holds one slot from before the environment is
            built until after it is closed.
        limits: How long each part may take.
        telemetry: Where counts and times go.
        peer: The client's address, for the log.
    """

    def __init__(
        self,
        websocket: WebSocket,
        factory: EnvironmentFactory,
        *,
        slots: Slots,
        limits: Limits,
        telemetry: Telemetry,
        peer: str,
    ) -> None:
        self.id = secrets.token_hex(4)
        self.peer = peer
        self._opened_at = trio.current_time()
        self._active_at = self._opened_at
        self._phase = "waiting"
        self._episode: Episode | None = None
        self._websocket = websocket
        self._factory = factory
        self._slots = slots
        self._limits = limits
        self._telemetry = telemetry
        self._frames: deque[str | bytes] = deque()
        self._queued_bytes = 0
        self._arrived = trio.Event()
        self._draining = False
        self._idle_scope: trio.CancelScope | None = None
        self._close_reason = "cancelled"

    @property
    def activity(self) -> str:
        """What the session is doing: waiting, building, idle, reset, step, state or closing."""
        if self._phase == "serving" and self._episode is not None:
            return self._episode.activity
        return self._phase

    def row(self) -> dict[str, Any]:
        """Return one row of `GET /sessions`."""
        now = trio.current_time()
        episode = self._episode
        return {
            "id": self.id,
            "peer": self.peer,
            "age_seconds": round(now - self._opened_at, 3),
            "idle_seconds": round(now - self._active_at, 3) if self.activity == "idle" else 0.0,
            "episode_id": episode.episode_id if episode else None,
            "step_count": episode.step_count if episode else 0,
            "activity": self.activity,
        }

    def drain(self) -> None:
        """End as soon as no request is being answered."""
        self._draining = True
        if self._idle_scope is not None:
            self._idle_scope.cancel()

    async def run(self) -> None:
        """Serve the client; return when the socket and the environment are both closed."""
        session_id.set(self.id)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._receive, nursery.cancel_scope)
                if self._limits.ping_interval_seconds > 0:
                    nursery.start_soon(self._keep_alive, nursery.cancel_scope)
                await self._work()
                nursery.cancel_scope.cancel()
        finally:
            self._telemetry.sessions_closed.labels(self._close_reason).inc()
            log_event(
                "session.closed",
                reason=self._close_reason,
                seconds=trio.current_time() - self._opened_at,
                steps=self._episode.step_count if self._episode else 0,
            )

    # -- the receiving side -------------------------------------------------------------------

    async def _receive(self, scope: trio.CancelScope) -> None:
        try:
            while True:
                frame = await self._websocket.receive()
                self._frames.append(frame)
                self._queued_bytes += len(frame)
                self._arrived.set()
                self._telemetry.received_bytes.inc(len(frame))
                if len(self._frames) > self._limits.queued_requests:
                    await self._refuse_flood(CLOSE_POLICY, "too many requests ahead of replies")
                    break
                if self._queued_bytes > 2 * self._limits.message_bytes:
                    await self._refuse_flood(CLOSE_TOO_BIG, "too many bytes ahead of replies")
                    break
        except Disconnected as gone:
            self._close_reason = "client closed" if gone.code == CLOSE_NORMAL else "disconnected"
        scope.cancel()

    async def _refuse_flood(self, code: int, reason: str) -> None:
        self._close_reason = "flood"
        await self._websocket.close(code, reason)

    async def _keep_alive(self, scope: trio.CancelScope) -> None:
        await self._websocket.keep_alive(
            interval_seconds=self._limits.ping_interval_seconds,
            timeout_seconds=self._limits.ping_timeout_seconds,
        )
        self._close_reason = "ping timeout"
        scope.cancel()

    async def _next_frame(self) -> str | bytes:
        limits = self._limits
        old_at = self._opened_at + (limits.lifetime_seconds or float("inf"))
        idle_at = trio.current_time() + (limits.idle_seconds or float("inf"))
        with trio.CancelScope(deadline=min(idle_at, old_at)) as scope:
            self._idle_scope = scope
            while not self._frames and not self._draining:
                self._arrived = trio.Event()
                await self._arrived.wait()
        self._idle_scope = None
        if self._draining:
            raise _Ended(CLOSE_GOING_AWAY, "server is shutting down")
        if trio.current_time() >= old_at:
            raise _Ended(CLOSE_GOING_AWAY, "session reached its lifetime limit")
        if not self._frames:
            raise _Ended(CLOSE_GOING_AWAY, "session reached its idle limit")
        frame = self._frames.popleft()
        self._queued_bytes -= len(frame)
        return frame

    # -- the working side ---------------------------------------------------------------------

    async def _work(self) -> None:
        try:
            await self._take_slot()
            try:
                environment = await self._build()
                try:
                    await self._answer_all(environment)
                finally:
                    await self._close_environment(environment)
            finally:
                self._slots.release()
        except _Ended as ended:
            self._close_reason = ended.reason
            await self._websocket.close(ended.code, ended.reason)
        except Disconnected:
            self._close_reason = "disconnected"

    async def _take_slot(self) -> None:
        if await self._slots.acquire(self._limits.admission_wait_seconds):
            self._telemetry.sessions_opened.inc()
            log_event(
                "session.opened", peer=self.peer, open=f"{self._slots.taken}/{self._slots.total}"
            )
            return
        self._telemetry.sessions_refused.inc()
        log_event("session.refused", logging.WARNING, peer=self.peer)
        taken, total = self._slots.taken, self._slots.total
        reply = ErrorReply(
            "CAPACITY_REACHED",
            f"Server at capacity: {taken}/{total} sessions active. "
            "Raise --max-concurrent-envs on the server, or open fewer sessions.",
            {"active_sessions": taken, "max_sessions": total},
        )
        await self._send(reply)
        raise await self._terminal(reply)

    async def _build(self) -> Environment:
        self._phase = "building"
        limit = self._limits.construction_seconds
        environment, error = await guarded("construction", limit, self._factory.build)
        if error is None:
            assert environment is not None
            return environment
        name = self._factory.describe().name
        reply = ErrorReply("FACTORY_ERROR", error.message, {"factory_name": name})
        await self._send(reply)
        raise await self._terminal(reply)

    async def _answer_all(self, environment: Environment) -> None:
        self._phase = "serving"
        self._episode = Episode(environment, limits=self._limits, telemetry=self._telemetry)
        while True:
            frame = await self._next_frame()
            self._active_at = trio.current_time()
            try:
                request = decode_request(frame)
            except ProtocolError as error:
                await self._send(protocol_error_reply(error))
                continue
            if isinstance(request, CloseRequest):
                raise _Ended(CLOSE_NORMAL, "client closed")
            reply = await self._episode.answer(request)
            await self._send(reply)
            if isinstance(reply, ErrorReply) and reply.code in TERMINAL_CODES:
                raise await self._terminal(reply)

    async def _send(self, reply: Reply) -> None:
        if isinstance(reply, ErrorReply):
            self._telemetry.errors.labels(reply.code).inc()
        try:
            text = encode_reply(reply)
        except Exception as error:  # noqa: BLE001 - what an environment returned cannot be JSON
            text = encode_reply(failure_reply("encoding the reply", error))
        with trio.move_on_after(self._limits.send_seconds) as scope:
            await self._websocket.send(text)
        if scope.cancelled_caught:
            raise Disconnected(None, f"did not take a reply in {self._limits.send_seconds:g} s")
        self._telemetry.sent_bytes.inc(len(text))

    async def _terminal(self, reply: ErrorReply) -> _Ended:
        """Hold the socket until the client's first frame, so that old clients read the error."""
        with trio.move_on_after(self._limits.refusal_hold_seconds):
            while not self._frames:
                self._arrived = trio.Event()
                await self._arrived.wait()
        return _Ended(CLOSE_NORMAL, reply.code)

    async def _close_environment(self, environment: Environment) -> None:
        self._phase = "closing"
        limit = self._limits.close_seconds
        with trio.move_on_after(limit, shield=True) as scope:
            try:
                await environment.close()
            except trio.Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001 - as in an episode
                log_traceback("close.failed", error)
        if scope.cancelled_caught:
            self._telemetry.abandoned.inc()
            log_event("close.abandoned", logging.WARNING, limit_seconds=limit)
