"""Who may come in: token, Origin and Host rules, decided on a request's head alone.

Owns the rules and nothing else: no sockets, no state. Two attacks shape them: a web page in
somebody's browser that opens a WebSocket to a server on localhost (Origin), and a page that
points its own name at 127.0.0.1 to be same-origin with us (DNS rebinding: Host).
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from urllib.parse import unquote, urlsplit

from attrs import evolve, frozen

from .http import HttpReply, RequestHead

__all__ = ["AccessRules", "fits_header", "is_loopback"]

_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
_PREFIX = "/t/"
_OFFER_PREFIX = "envhost.bearer."


@frozen(kw_only=True)
class AccessRules:
    """What a request needs to be let in.

    `token` None means that none is asked for; then `Host` must be a known name. `hosts`, in
    lower case, and `origins` are the further names that the user allows.
    """

    token: str | None
    hosts: frozenset[str]
    origins: frozenset[str]

    def check(self, head: RequestHead, local_address: str) -> tuple[RequestHead, HttpReply | None]:
        """Return the head without a token prefix in its path, and a refusal or None.

        `local_address` is the address that the client connected to.
        """
        head, prefix_token = _split_prefix(head)
        if not self._origin_allowed(head):
            return head, HttpReply.text(
                403, "this origin may not use the server; allow it with --allow-origin"
            )
        if self.token is not None:
            given = prefix_token or _header_token(head)
            if given is None or not hmac.compare_digest(given.encode(), self.token.encode()):
                return head, HttpReply.text(
                    401,
                    "this server needs its token: Authorization: Bearer TOKEN",
                    ("WWW-Authenticate", 'Bearer realm="envhost"'),
                )
        elif not self._host_allowed(head, local_address):
            return head, HttpReply.text(
                403, "unknown Host; allow it with --allow-host, or serve with a token"
            )
        return head, None

    def _host_allowed(self, head: RequestHead, local_address: str) -> bool:
        name = _host_name(head.headers.get("host", ""))
        return name in _LOOPBACK_NAMES or name == local_address or name in self.hosts

    def _origin_allowed(self, head: RequestHead) -> bool:
        origin = head.headers.get("origin")
        if origin is None or origin in self.origins:
            return True
        try:
            netloc = urlsplit(origin).netloc
        except ValueError:
            return False
        return netloc.lower() == head.headers.get("host", "").lower() != ""


def fits_header(token: str) -> bool:
    """Whether a token can be sent in a header: printable ASCII without spaces, not empty."""
    return bool(token) and token.isascii() and token.isprintable() and " " not in token


def is_loopback(host: str) -> bool:
    """Whether a bind address can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host_header: str) -> str:
    try:
        name = urlsplit(f"//{host_header}").hostname
    except ValueError:
        return ""
    return (name or "").rstrip(".")


def _split_prefix(head: RequestHead) -> tuple[RequestHead, str | None]:
    if not head.path.startswith(_PREFIX):
        return head, None
    token, _, rest = head.path[len(_PREFIX) :].partition("/")
    return evolve(head, path=f"/{rest}"), unquote(token)


def _header_token(head: RequestHead) -> str | None:
    scheme, _, value = head.headers.get("authorization", "").partition(" ")
    if not scheme:
        return _protocol_token(head)
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            pair = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        return pair.partition(":")[2]
    return None


def _protocol_token(head: RequestHead) -> str | None:
    """Return the token that a browser's WebSocket, which can set no other header, offers."""
    for offered in head.headers.get("sec-websocket-protocol", "").split(","):
        name, found, value = offered.strip().partition(_OFFER_PREFIX)
        if found and not name:
            try:
                return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).decode()
            except (binascii.Error, ValueError):
                return None
    return None
