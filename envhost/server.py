"""The server: listeners, routes, admission of sockets, drain and shutdown.

Owns what happens to a connection before and after its session. Sessions live in an outer nursery
and accepting in an inner one; ending the server first lets running steps finish (`drain`), then
cancels what is left.
"""

from __future__ import annotations

import errno
import logging
import ssl
import time
from functools import partial

import trio
from attrs import fields

from .admission import Slots
from .config import Limits, ServerConfig
from .environment import EnvironmentFactory
from .errors import ConfigError
from .pages import OPEN_PATHS, Pages
from .session import Session
from .status_page import StatusPage
from .telemetry import Telemetry, log_event, log_traceback
from .wire.auth import AccessRules, fits_header, is_loopback
from .wire.http import BadRequest, HttpReply, RequestHead, read_head, send_reply
from .wire.websocket import Disconnected, WebSocket

__all__ = ["Server"]

_BACKLOG = 1024
_FAREWELL_SECONDS = 1.0
_TEND_SECONDS = 0.1  # the precision of a session's limits; 1,000 sessions cost 1 ms of it


class Server:
    """Serve one environment factory to many clients.

    Args:
        config: Addresses, capacity, limits and access rules.
        factory: Makes each session's environment.

    Raises:
        ConfigError: The settings contradict each other, or would let strangers in.
    """

    def __init__(self, config: ServerConfig, factory: EnvironmentFactory) -> None:
        _check(config)
        self._tls = _tls_context(config)
        self.config = config
        self.telemetry = Telemetry(keeps_programs=config.record_dir is not None)
        self.slots = Slots(config.max_concurrent_envs)
        self.telemetry.sessions_open.set_function(lambda: self.slots.taken)
        self.sessions: dict[str, Session] = {}
        self.started = False
        self.draining = False
        self.finished = trio.Event()
        self._factory = factory
        self._rules = AccessRules(
            token=config.token,
            hosts=frozenset(name.lower() for name in (*config.allow_host, config.host)),
            origins=frozenset(config.allow_origin),
        )
        self._max_connections = config.max_connections or 4 * config.max_concurrent_envs + 64
        self._pages = Pages(
            factory=factory,
            slots=self.slots,
            sessions=self.sessions,
            telemetry=self.telemetry,
            action_field=config.action_field,
            is_draining=lambda: self.draining,
            status_page=StatusPage(
                config=config,
                factory=factory,
                slots=self.slots,
                sessions=self.sessions,
                telemetry=self.telemetry,
                is_draining=lambda: self.draining,
                started_at=time.monotonic(),
            ),
        )
        self._connections = 0
        self._handshakes: dict[object, trio.CancelScope] = {}
        self._stop = trio.Event()
        self._session_left = trio.Event()
        self._port = config.port

    @property
    def url(self) -> str:
        """The base URL that clients are given."""
        scheme = "https" if self.config.tls_cert else "http"
        host = self.config.host
        host = f"[{host}]" if ":" in host else host
        return f"{scheme}://{host}:{self._port}"

    def stop(self) -> None:
        """Begin to end: drain the sessions, then return from `run`."""
        self._stop.set()

    def notes(self) -> tuple[str, ...]:
        """What the environment wants said at start."""
        return self._factory.describe().notes

    def running_requests(self) -> int:
        """How many sessions are at work on something."""
        return sum(session.activity != "idle" for session in self.sessions.values())

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until `stop`, or until cancelled, which ends everything at once.

        `task_status` starts when the port is open and clients are served.

        Raises:
            ConfigError: The port is taken, or the factory refuses to be served.
        """
        listeners = await self._listen()
        try:
            async with self._factory.serving():
                self.started = True
                task_status.started()
                await self._serve(listeners)
        finally:
            self.finished.set()
            for listener in listeners:
                await trio.aclose_forcefully(listener)

    async def _listen(self) -> list[trio.abc.Listener[trio.SocketStream]]:
        config = self.config
        where = f"{config.host}:{config.port}"
        try:
            sockets = await trio.open_tcp_listeners(config.port, host=config.host, backlog=_BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise ConfigError(
                    f"{where} is in use: stop the other server, or choose another port with "
                    "--port (0 takes a free one)"
                ) from None
            raise ConfigError(f"cannot listen on {where}: {error}") from None
        self._port = sockets[0].socket.getsockname()[1]
        return list(sockets)

    async def _serve(self, listeners: list[trio.abc.Listener[trio.SocketStream]]) -> None:
        async with trio.open_nursery() as sessions:
            sessions.start_soon(self._tend_sessions)
            async with trio.open_nursery() as accepting:
                accepting.start_soon(
                    partial(
                        trio.serve_listeners, self._connection, listeners, handler_nursery=sessions
                    )
                )
                await self._stop.wait()
                # Still accepting: a load balancer must be able to read 503 from /readyz.
                await self._drain()
                accepting.cancel_scope.cancel()
            sessions.cancel_scope.cancel()

    async def _tend_sessions(self) -> None:
        while True:
            await trio.sleep(_TEND_SECONDS)
            now = trio.current_time()
            self.telemetry.history.tick(now)
            for session in self.sessions.values():
                session.tend(now)

    async def _drain(self) -> None:
        self.draining = True
        limit = self.config.limits.drain_seconds
        log_event("server.draining", running=self.running_requests(), limit_seconds=limit)
        with trio.move_on_after(limit):
            for session in list(self.sessions.values()):
                session.drain()
            while self.sessions:
                self._session_left = trio.Event()
                await self._session_left.wait()

    # -- one connection -----------------------------------------------------------------------

    async def _connection(self, stream: trio.SocketStream) -> None:
        self._connections += 1
        try:
            if self._make_room():
                await self._greet(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client has gone: no fault of anybody's
        except Exception as error:  # noqa: BLE001 - one connection must never end the server
            log_traceback("connection.failed", error)
        finally:
            self._connections -= 1
            stream.socket.close()  # at once, and without the checkpoint that aclose needs

    def _make_room(self) -> bool:
        if self._connections <= self._max_connections:
            return True
        oldest = next(iter(self._handshakes.values()), None)
        log_event("connections.full", logging.WARNING, max=self._max_connections)
        if oldest is None:
            return False
        oldest.cancel()
        return True

    async def _greet(self, raw: trio.SocketStream) -> None:
        """Read a request's head, then answer it or begin a session."""
        stream: trio.abc.Stream = raw
        if self._tls is not None:
            stream = trio.SSLStream(raw, self._tls, server_side=True, https_compatible=True)
        limits = self.config.limits
        key = object()
        found: tuple[RequestHead, bytes] | None = None
        opened: tuple[WebSocket, str] | None = None
        # One scope for all that comes before a session: each more is felt when hundreds come.
        with trio.CancelScope(deadline=trio.current_time() + limits.head_seconds) as scope:
            self._handshakes[key] = scope
            try:
                found = await read_head(stream, max_bytes=limits.head_bytes)
                if found is not None:
                    opened = await self._answer(raw, stream, *found)
            except BadRequest as error:
                await send_reply(stream, error.reply)
            except Disconnected:
                return  # a handshake that is none
            finally:
                del self._handshakes[key]
        if opened is not None:
            await self._session(*opened)
        elif found is None and scope.cancelled_caught and trio.current_time() >= scope.deadline:
            await self._tell_too_slow(stream)

    async def _answer(
        self, raw: trio.SocketStream, stream: trio.abc.Stream, head: RequestHead, received: bytes
    ) -> tuple[WebSocket, str] | None:
        """Answer a plain request, or open the WebSocket and return it with the peer's address."""
        try:
            local_address, peer = raw.socket.getsockname()[0], raw.socket.getpeername()
        except OSError:
            return None  # the client has gone
        reply: HttpReply | None = None
        if head.path not in OPEN_PATHS:
            head, reply = self._rules.check(head, local_address)
        if reply is not None:
            sign_in = self._pages.sign_in(head) if reply.status == 401 else None
            if sign_in is None:
                log_event("request.refused", logging.WARNING, peer=peer[0], status=reply.status)
            reply = sign_in or reply
        elif not head.is_websocket:
            reply = self._pages.answer(head)
        elif head.path.rstrip("/") != "/ws":
            reply = HttpReply.text(404, "the WebSocket is at /ws")
        elif self.draining:
            reply = HttpReply.text(503, "the server is shutting down")
        if reply is not None:
            await send_reply(stream, reply, body=head.method != "HEAD")
            if isinstance(stream, trio.SSLStream):
                with trio.move_on_after(_FAREWELL_SECONDS):
                    await stream.unwrap()  # says that this is the end, and nobody has cut it short
            return None
        limit = self.config.limits.message_bytes
        websocket = WebSocket(stream, received, max_message_bytes=limit)
        await websocket.accept()
        return websocket, f"{peer[0]}:{peer[1]}"

    async def _tell_too_slow(self, stream: trio.abc.Stream) -> None:
        seconds = self.config.limits.head_seconds
        with trio.move_on_after(_FAREWELL_SECONDS):
            await send_reply(stream, HttpReply.text(408, f"no request within {seconds:g} s"))

    async def _session(self, websocket: WebSocket, peer: str) -> None:
        session = Session(
            websocket,
            self._factory,
            slots=self.slots,
            limits=self.config.limits,
            telemetry=self.telemetry,
            peer=peer,
        )
        self.sessions[session.id] = session
        if self.draining:  # since this handshake began
            session.drain()
        try:
            await session.run()
        finally:
            del self.sessions[session.id]
            self._session_left.set()


def _check(config: ServerConfig) -> None:
    for attribute in fields(Limits):
        value = getattr(config.limits, attribute.name)
        if not value >= 0:  # NaN is not
            raise ConfigError(f"{attribute.metadata['option']}: expected 0 or more, got {value}")
    if config.max_connections < 0:
        raise ConfigError(f"--max-connections: expected 0 or more, got {config.max_connections}")
    if config.max_concurrent_envs < 1:
        raise ConfigError(
            f"--max-concurrent-envs: expected at least 1, got {config.max_concurrent_envs}"
        )
    if not 0 <= config.port <= 65535:
        raise ConfigError(f"--port: expected 0 to 65535, got {config.port}")
    if config.token is not None and not fits_header(config.token):
        raise ConfigError("the server's token: expected printable ASCII without spaces")
    if config.token is None and not is_loopback(config.host) and not config.insecure_no_token:
        raise ConfigError(
            f"--host {config.host} can be reached from other machines: give --token-file FILE, or "
            "say --insecure-no-token if everyone who can reach it may run programs here"
        )
    if bool(config.tls_cert) != bool(config.tls_key):
        raise ConfigError("--tls-cert and --tls-key go together: give both or neither")


def _tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    if not config.tls_cert or not config.tls_key:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"cannot load --tls-cert {config.tls_cert} with --tls-key {config.tls_key}: {error}"
        ) from None
    return context
