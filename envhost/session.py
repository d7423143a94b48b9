"""One session: one socket, one environment, one nursery that owns everything in between.

The receive task reads all the time, so that a closed socket cancels the nursery at once, and with
it the step and every process of it; requests wait in a bounded queue. `episode` answers them.

Limits are plain numbers that the server's one watcher compares with the clock (`tend`): a cancel
scope with a deadline for each wait, request and reply costs a fifth of the throughput of small
messages, and a pinging task for each session a quarter of its memory.
"""

from __future__ import annotations

import logging
import math
import secrets
from collections import deque
from contextlib import suppress
from enum import Enum, auto
from typing import Any, NoReturn

import trio

from .admission import Slots
from .config import Limits
from .environment import Environment, EnvironmentFactory
from .episode import Episode, failure_reply, guarded, limit_reply, protocol_error_reply
from .errors import ProtocolError
from .telemetry import Telemetry, log_event, log_traceback, session_id
from .wire.codec import decode_request, encode_reply
from .wire.messages import (
    TERMINAL_CODES,
    CloseRequest,
    ErrorReply,
    Reply,
    Request,
    ResetRequest,
    StepRequest,
)
from .wire.websocket import (
    CLOSE_GOING_AWAY,
    CLOSE_NORMAL,
    CLOSE_POLICY,
    CLOSE_TOO_BIG,
    Disconnected,
    WebSocket,
)

__all__ = ["Session"]


class _Ended(Exception):
    """The session's own way out, with the close code and the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class _Phase(Enum):
    """What a session is at; each phase has its limit."""

    WAITING = auto()
    BUILDING = auto()
    IDLE = auto()
    ANSWERING = auto()
    SENDING = auto()
    CLOSING = auto()


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
        self._websocket = websocket
        self._factory = factory
        self._slots = slots
        self._limits = limits
        self._telemetry = telemetry
        self._episode: Episode | None = None
        self._frames: deque[str | bytes] = deque()
        self._queued_bytes = 0
        self._arrived = trio.Event()
        self._draining = False
        self._opened_at = trio.current_time()
        self._active_at = self._opened_at
        self._phase = _Phase.WAITING
        self._deadline = math.inf
        self._answer_seconds = 0.0
        self._patience = trio.CancelScope()
        self._pinged_at = self._opened_at
        self._nursery: trio.Nursery | None = None
        self._close_reason = ""

    @property
    def activity(self) -> str:
        """What the session is doing: waiting, building, idle, reset, step, state, … or closing."""
        if self._phase is _Phase.ANSWERING and self._episode is not None:
            return self._episode.activity
        return self._phase.name.lower()

    def row(self) -> dict[str, Any]:
        """Return one row of `GET /sessions`."""
        now = trio.current_time()
        episode = self._episode
        resting = self._phase is _Phase.IDLE
        still = round(now - self._active_at, 3)
        return {
            "id": self.id,
            "peer": self.peer,
            "age_seconds": round(now - self._opened_at, 3),
            "idle_seconds": still if resting else 0.0,
            "busy_seconds": 0.0 if resting else still,
            "episode_id": episode.episode_id if episode else None,
            "step_count": episode.step_count if episode else 0,
            "steps": episode.steps if episode else 0,
            "problem_id": episode.problem_id if episode else "",
            "last_verdict": episode.last_verdict if episode else "",
            "activity": self.activity,
        }

    async def run(self) -> None:
        """Serve the client; return when the socket and the environment are both closed."""
        session_id.set(self.id)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._receive, nursery.cancel_scope)
                await self._work()
                nursery.cancel_scope.cancel()
        finally:
            reason = self._close_reason or "cancelled"
            self._telemetry.sessions_closed.labels(reason).inc()
            log_event(
                "session.closed",
                reason=reason,
                seconds=trio.current_time() - self._opened_at,
                steps=self._episode.step_count if self._episode else 0,
            )

    # -- what the server calls ----------------------------------------------------------------

    def drain(self) -> None:
        """End as soon as no request is being answered."""
        self._draining = True
        self._arrived.set()

    def tend(self, now: float) -> None:
        """Cancel a phase that is over its limit, ping a silent peer, end with a dead one."""
        if now >= self._deadline:
            self._deadline = math.inf
            self._patience.cancel()
        interval = self._limits.ping_interval_seconds
        # A nursery that is being cancelled may close at any moment, and then takes no task.
        if not interval or self._nursery is None or self._nursery.cancel_scope.cancel_called:
            return
        silent_since = max(self._websocket.heard_at, self._opened_at)
        if now >= max(silent_since, self._pinged_at) + interval:
            self._pinged_at = now
            self._nursery.start_soon(self._ping)
        if now >= silent_since + interval + self._limits.ping_timeout_seconds:
            self._ends_for("ping timeout")
            self._nursery.cancel_scope.cancel()

    async def _ping(self) -> None:
        with suppress(Disconnected):  # the receive task learns of it too
            await self._websocket.ping()

    # -- the receiving side -------------------------------------------------------------------

    async def _receive(self, scope: trio.CancelScope) -> None:
        try:
            while True:
                frame = await self._websocket.receive()
                self._frames.append(frame)
                self._queued_bytes += len(frame)
                self._telemetry.received_bytes += len(frame)
                self._arrived.set()
                if len(self._frames) > self._limits.queued_requests:
                    raise await self._websocket.refuse(CLOSE_POLICY, "too many requests ahead")
                if self._queued_bytes > 2 * self._limits.message_bytes:
                    raise await self._websocket.refuse(CLOSE_TOO_BIG, "too many bytes ahead")
        except Disconnected as gone:
            reasons = {
                CLOSE_NORMAL: "client closed",
                CLOSE_POLICY: "too many requests ahead",
                CLOSE_TOO_BIG: "message too big",
            }
            self._ends_for(reasons.get(gone.code or 0, "disconnected"))
        scope.cancel()

    def _ends_for(self, reason: str) -> None:
        self._close_reason = self._close_reason or reason  # what came first is the cause

    async def _next_frame(self) -> str | bytes:
        limits = self._limits
        idle_at = trio.current_time() + (limits.idle_seconds or math.inf)
        old_at = self._opened_at + (limits.lifetime_seconds or math.inf)
        await self._enter(_Phase.IDLE, min(idle_at, old_at))
        while not self._frames and not self._draining:
            self._arrived = trio.Event()
            await self._arrived.wait()
        if self._draining:
            raise _Ended(CLOSE_GOING_AWAY, "server is shutting down")
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
                    await self._serve(Episode(environment, self._telemetry))
                finally:
                    await self._close_environment(environment)
            finally:
                self._slots.release()
        except _Ended as ended:
            self._ends_for(ended.reason)
            await self._websocket.close(ended.code, ended.reason)
        except Disconnected:
            await self._websocket.ended()  # the receive task knows why, and may still be telling it
            self._ends_for("disconnected")

    async def _take_slot(self) -> None:
        slots = self._slots
        if await slots.acquire(self._limits.admission_wait_seconds):
            self._telemetry.sessions_opened.inc()
            log_event("session.opened", peer=self.peer, open=f"{slots.taken}/{slots.total}")
            return
        self._telemetry.sessions_refused.inc()
        log_event("session.refused", logging.WARNING, peer=self.peer)
        message = (
            f"Server at capacity: {slots.taken}/{slots.total} sessions active. "
            "Raise --max-concurrent-envs on the server, or open fewer sessions."
        )
        extra = {"active_sessions": slots.taken, "max_sessions": slots.total}
        raise await self._refuse(ErrorReply("CAPACITY_REACHED", message, extra))

    async def _build(self) -> Environment:
        self._phase = _Phase.BUILDING
        limit = self._limits.construction_seconds
        with trio.move_on_after(limit) as scope:
            built = await guarded("construction", self._factory.build, object)
        if scope.cancelled_caught:
            built = limit_reply("construction", limit)
        if not isinstance(built, ErrorReply):
            return built
        name = self._factory.describe().name
        raise await self._refuse(ErrorReply("FACTORY_ERROR", built.message, {"factory_name": name}))

    async def _refuse(self, reply: ErrorReply) -> _Ended:
        with trio.move_on_after(self._limits.send_seconds):
            await self._send(reply)
        return await self._terminal(reply)

    async def _terminal(self, reply: ErrorReply) -> _Ended:
        """Hold the socket until the client's first frame, so that old clients read the error."""
        with trio.move_on_after(self._limits.refusal_hold_seconds):
            while not self._frames:
                self._arrived = trio.Event()
                await self._arrived.wait()
        return _Ended(CLOSE_NORMAL, reply.code)

    async def _serve(self, episode: Episode) -> NoReturn:
        self._episode = episode
        reply: Reply | None = None
        while True:
            # Only `tend` cancels this scope; one that has fired is replaced.
            with trio.CancelScope() as self._patience:
                await self._answer_all(episode, reply)
            if self._phase is _Phase.IDLE:
                raise _Ended(CLOSE_GOING_AWAY, "session reached its idle or lifetime limit")
            if self._phase is _Phase.SENDING:
                raise _Ended(CLOSE_GOING_AWAY, "client does not take its reply")
            reply = episode.limit_reached(self._answer_seconds)

    async def _answer_all(self, episode: Episode, reply: Reply | None) -> NoReturn:
        while True:
            if reply is not None:
                await self._send(reply)
                if isinstance(reply, ErrorReply) and reply.code in TERMINAL_CODES:
                    raise await self._terminal(reply)
            frame = await self._next_frame()
            self._active_at = now = trio.current_time()
            try:
                request = decode_request(frame)
            except ProtocolError as error:
                reply = protocol_error_reply(error)
                continue
            if isinstance(request, CloseRequest):
                raise _Ended(CLOSE_NORMAL, "client closed")
            self._answer_seconds = self._seconds_for(request)
            await self._enter(_Phase.ANSWERING, now + self._answer_seconds)
            reply = await episode.answer(request)

    def _seconds_for(self, request: Request) -> float:
        if isinstance(request, StepRequest):
            return self._limits.step_seconds
        if isinstance(request, ResetRequest):
            return self._limits.reset_seconds
        return self._limits.state_seconds

    async def _send(self, reply: Reply) -> None:
        if isinstance(reply, ErrorReply):
            self._telemetry.errors.labels(reply.code).inc()
        try:
            text = encode_reply(reply)
        except Exception as error:  # noqa: BLE001 - what an environment returned cannot be JSON
            text = encode_reply(failure_reply("encoding the reply", error))
        await self._enter(_Phase.SENDING, trio.current_time() + self._limits.send_seconds)
        await self._websocket.send(text)
        self._telemetry.sent_bytes += len(text)

    async def _enter(self, phase: _Phase, deadline: float) -> None:
        """Enter a phase that `tend` ends at the deadline."""
        if self._patience.cancel_called:  # the phase before ended just as its limit was reached
            await trio.lowlevel.checkpoint()
        self._phase = phase
        self._deadline = deadline

    async def _close_environment(self, environment: Environment) -> None:
        self._phase = _Phase.CLOSING
        self._deadline = math.inf
        limit = self._limits.close_seconds
        with trio.move_on_after(limit, shield=True) as scope:
            try:
                await environment.close()
            except trio.Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001 - as in an episode
                log_traceback("close.failed", error)
        if scope.cancel_called:
            self._telemetry.abandoned.inc()
            log_event("close.abandoned", logging.WARNING, limit_seconds=limit)
