"""An environment on another machine, for Trio programs: one session, request by request.

Owns URLs, connecting with retries, and the translation of replies and lost connections into
exceptions. `client` wraps this for ordinary synchronous programs.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

import trio
from attrs import frozen

from .errors import (
    AuthenticationFailed,
    ConfigError,
    EnvhostError,
    EnvironmentFailed,
    ProtocolError,
    RequestTimedOut,
    ServerBusy,
    SessionLost,
)
from .wire.auth import fits_header
from .wire.codec import decode_reply, encode_request
from .wire.dial import ClientWebSocket, HandshakeRefused, connect
from .wire.messages import (
    CloseRequest,
    ErrorReply,
    ObservationReply,
    Reply,
    Request,
    ResetRequest,
    StateReply,
    StateRequest,
    StepRequest,
)
from .wire.websocket import Disconnected

__all__ = ["IS_IT_UP", "Remote", "RemoteSession", "retried", "server_facts"]

T = TypeVar("T")

IS_IT_UP = "; is the server up, and the tunnel?"
"""How a message ends that a server could not be reached."""

_MESSAGE_BYTES = 100 * 1024 * 1024
_CONNECT_SECONDS = 15.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0


@frozen
class Remote:
    """Where a server is and how to get in; the token never shows in a repr.

    Args:
        url: `http(s)://host:port/prefix`, or `ws(s)://`; userinfo in it is taken as the token.
        token: Bearer token; else the URL's, else the variable ENVHOST_TOKEN.
        ca_file: PEM file of the authority that signed the server's certificate.

    Raises:
        ConfigError: The URL or the file cannot be used.
    """

    host: str
    port: int
    path: str
    is_tls: bool
    token: str | None
    ca_file: str | None

    @classmethod
    def parse(cls, url: str, *, token: str | None = None, ca_file: str | None = None) -> Remote:
        """Return the server that a URL names."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"environment URL {_without_secret(url)}: {error}") from None
        if parts.scheme not in {"http", "https", "ws", "wss"} or not parts.hostname:
            raise ConfigError(
                f"environment URL {_without_secret(url)}: expected http://host:port or https://"
            )
        is_tls = parts.scheme in {"https", "wss"}
        token = token or _userinfo(parts) or os.environ.get("ENVHOST_TOKEN") or None
        if token is not None and not fits_header(token):
            raise ConfigError(
                f"environment URL {_without_secret(url)}: expected a token of printable ASCII "
                "without spaces"
            )
        return cls(
            host=parts.hostname,
            port=port or (443 if is_tls else 80),
            path=quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~"),
            is_tls=is_tls,
            token=token,
            ca_file=ca_file,
        )

    def __repr__(self) -> str:
        return f"Remote({self})"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = "/t/…" if self.path.startswith("/t/") else self.path
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}{path}"

    @property
    def host_header(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers that let us in."""
        if self.token is None:
            return []
        return [(b"Authorization", f"Bearer {self.token}".encode())]

    def tls_context(self) -> ssl.SSLContext | None:
        """Return the TLS settings of an https URL, None for http."""
        return _tls_context(self.ca_file) if self.is_tls else None


@cache  # reading the system's authorities takes as long as opening a dozen sessions
def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"CA file {ca_file}: {error}") from None


def _userinfo(parts: SplitResult) -> str | None:
    secret = parts.password or parts.username
    return unquote(secret) if secret else None


def _without_secret(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return ascii(f"{scheme}{separator}{rest.rpartition('@')[2]}")


class RemoteSession:
    """One session on a server; opened at the first request, opened again at a reset if lost.

    Args:
        remote: The server.
        nursery: Where the socket's reader lives; it must outlive the session.
        request_timeout_seconds: Bound of each request, connecting included; 0 is none.
        retry_seconds: How long a reset keeps trying while the server is full or away.
        action_field: Name of the action's text field.
    """

    def __init__(
        self,
        remote: Remote,
        nursery: trio.Nursery,
        *,
        request_timeout_seconds: float,
        retry_seconds: float,
        action_field: str,
    ) -> None:
        self.remote = remote
        self._nursery = nursery
        self._timeout_seconds = request_timeout_seconds or float("inf")
        self._retry_seconds = retry_seconds
        self._action_field = action_field
        self._websocket: ClientWebSocket | None = None
        self._drop = trio.Event()

    @property
    def is_open(self) -> bool:
        """Whether there is a socket, as far as is known."""
        return self._websocket is not None

    async def reset(self, options: dict[str, Any]) -> ObservationReply:
        """Begin an episode, connecting first where there is no live socket.

        Raises:
            ServerBusy: Still full after the retries.
            SessionLost: Still not reachable after the retries.
            RequestTimedOut, EnvironmentFailed, AuthenticationFailed, ProtocolError: As they say.
        """

        async def reset() -> ObservationReply:
            return _observed(await self.request(ResetRequest(options)))

        return await retried(reset, self._retry_seconds)

    async def step(self, text: str) -> ObservationReply:
        """Send an answer; never retried, since the server may have seen it.

        Raises:
            SessionLost: There is no live session, or it was lost: reset first.
        """
        if self._websocket is None:
            raise SessionLost(f"{self.remote}: no session is open: reset first")
        return _observed(await self.request(StepRequest({self._action_field: text})))

    async def state(self) -> dict[str, Any]:
        """Return the environment's state, connecting first where there is no live socket."""
        reply = await self.request(StateRequest())
        if not isinstance(reply, StateReply):
            raise ProtocolError("UNKNOWN_TYPE", f"expected a state, got {type(reply).__name__}")
        return dict(reply.state)

    async def close(self) -> None:
        """End the session politely if it is alive; never raises."""
        if self._websocket is not None:
            with trio.move_on_after(1.0):
                with suppress(Disconnected):
                    await self._websocket.send(encode_request(CloseRequest()))
        self.drop()

    def drop(self) -> None:
        """Close the socket at once."""
        self._websocket = None
        self._drop.set()

    async def request(self, request: Request) -> Reply:
        """Send one request and return its reply; any failure to get one drops the socket."""
        seconds = self._timeout_seconds
        try:
            with trio.fail_after(seconds):
                reply = await self._exchange(request)
        except trio.TooSlowError:
            self.drop()
            kind = type(request).__name__.removesuffix("Request").lower()
            raise RequestTimedOut(
                f"{self.remote}: no reply to {kind} within {seconds:g} s; the session is dropped; "
                "raise request_timeout_s if the environment needs longer"
            ) from None
        except (EnvhostError, trio.Cancelled):
            self.drop()
            raise
        if isinstance(reply, ErrorReply):
            raise self._error(reply)
        return reply

    async def _exchange(self, request: Request) -> Reply:
        try:
            websocket = self._websocket or await self._open()
            with suppress(Disconnected):  # a refusal may lie unread: OpenEnv closes right after it
                await websocket.send(encode_request(request))
            return decode_reply(await websocket.receive())
        except Disconnected as gone:
            raise SessionLost(f"{self.remote}: the connection was lost: {gone}") from None

    async def _open(self) -> ClientWebSocket:
        self._drop = trio.Event()
        try:
            websocket: ClientWebSocket = await self._nursery.start(self._hold, self._drop)
        except HandshakeRefused as refused:
            raise self._refusal(refused) from None
        except trio.TooSlowError:
            raise self._unreachable(f"no connection within {_CONNECT_SECONDS:g} s") from None
        except (OSError, trio.BrokenResourceError) as error:
            reason = error.__cause__ or error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise _untrusted(self.remote, reason) from None
            raise self._unreachable(reason) from None
        self._websocket = websocket
        return websocket

    async def _hold(
        self, drop: trio.Event, *, task_status: trio.TaskStatus[ClientWebSocket]
    ) -> None:
        """Keep the socket open until it is dropped."""
        remote = self.remote
        with trio.fail_after(_CONNECT_SECONDS):
            stream = await _open_stream(remote)
        async with connect(
            stream,
            host_header=remote.host_header,
            resource=f"{remote.path}/ws",
            headers=remote.headers(),
            max_message_bytes=_MESSAGE_BYTES,
        ) as websocket:
            task_status.started(websocket)
            await drop.wait()

    def _unreachable(self, reason: object) -> SessionLost:
        return SessionLost(f"{self.remote}: cannot connect: {reason}{IS_IT_UP}")

    def _refusal(self, refused: HandshakeRefused) -> EnvhostError:
        if refused.status in {401, 403}:
            return AuthenticationFailed(f"{self.remote}: {refused}")
        if refused.status in {429, 502, 503, 504}:
            return ServerBusy(f"{self.remote}: {refused}")
        return ConfigError(f"{self.remote}: expected an environment server, got {refused}")

    def _error(self, reply: ErrorReply) -> EnvhostError:
        message = f"{reply.message} (code: {reply.code})"
        if reply.code == "CAPACITY_REACHED":
            self.drop()
            return ServerBusy(f"{self.remote}: {message}")
        if reply.code in {"FACTORY_ERROR", "SESSION_ERROR"}:
            self.drop()
        if reply.code in {"VALIDATION_ERROR", "INVALID_JSON", "UNKNOWN_TYPE"}:
            return ProtocolError(reply.code, message, reply.extra.get("errors"))
        return EnvironmentFailed(message)


async def retried(attempt: Callable[[], Awaitable[T]], retry_seconds: float) -> T:
    """Return an attempt's result; while a server is busy or away, try again for a while."""
    give_up_at = trio.current_time() + retry_seconds
    pause = _FIRST_PAUSE_SECONDS
    while True:
        try:
            return await attempt()
        except (ServerBusy, SessionLost):
            # Jitter keeps a group of refused clients from coming back together.
            wait = random.uniform(pause / 2, pause)
            if trio.current_time() + wait > give_up_at:
                raise
            await trio.sleep(wait)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


async def _open_stream(remote: Remote) -> trio.abc.Stream:
    tls = remote.tls_context()
    stream = await trio.open_tcp_stream(remote.host, remote.port)
    if tls is None:
        return stream
    secure = trio.SSLStream(stream, tls, server_hostname=remote.host, https_compatible=True)
    try:
        await secure.do_handshake()  # now, so that a bad certificate is told as such
    except BaseException:
        await trio.aclose_forcefully(stream)
        raise
    return secure


def _untrusted(remote: Remote, error: ssl.SSLCertVerificationError) -> ConfigError:
    return ConfigError(
        f"{remote}: {error.verify_message}; a private authority's certificate goes into ca_file"
    )


def _observed(reply: Reply) -> ObservationReply:
    if not isinstance(reply, ObservationReply):
        raise ProtocolError("UNKNOWN_TYPE", f"expected an observation, got {type(reply).__name__}")
    return reply


def server_facts(remote: Remote, *, timeout_seconds: float = 10.0) -> dict[str, Any]:
    """Return what `GET /metadata` tells: name, and from envhost the capacity and what is taken.

    Raises:
        SessionLost: The server cannot be reached.
        AuthenticationFailed: It wants another token.
        ConfigError: It is no environment server.
    """
    tls = remote.tls_context()
    connection = (
        http.client.HTTPConnection(remote.host, remote.port, timeout=timeout_seconds)
        if tls is None
        else http.client.HTTPSConnection(
            remote.host, remote.port, timeout=timeout_seconds, context=tls
        )
    )
    headers = {name.decode(): value.decode() for name, value in remote.headers()}
    try:
        connection.request("GET", f"{remote.path}/metadata", headers=headers)
        response = connection.getresponse()
        body = response.read(1024 * 1024)
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(remote, error) from None
    except (OSError, http.client.HTTPException) as error:
        raise SessionLost(f"{remote}: cannot connect: {error}{IS_IT_UP}") from None
    finally:
        connection.close()
    if response.status in {401, 403}:
        raise AuthenticationFailed(
            f"{remote}: HTTP {response.status}: {body[:200].decode('utf-8', 'replace').strip()}"
        )
    try:
        facts = json.loads(body)
    except ValueError:
        facts = None
    if response.status != 200 or not isinstance(facts, dict):
        raise ConfigError(f"{remote}: expected an environment server, got HTTP {response.status}")
    return facts
