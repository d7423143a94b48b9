"""What a failure on the way to a server means, and what to do about it.

Owns the words, nothing else: errors and numbers in, sentences out. They are the troubleshooting of
docs/remote.md, said where the trouble is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit

from ..errors import (
    AuthenticationFailed,
    ConfigError,
    EnvhostError,
    EnvironmentFailed,
    RequestTimedOut,
    ServerBusy,
    SessionLost,
)
from ..remote import IS_IT_UP
from ..wire.auth import is_loopback

__all__ = ["findings", "with_hint"]

_NEAR = "near"
_FAR = "far"
_PLAIN = "plain"

# (whose error, what it says, where the URL points or how it begins, what to do). The first that
# fits is told.
_HINTS: tuple[tuple[type[EnvhostError], str, str, str], ...] = (
    (AuthenticationFailed, "unknown host", "", "allow it there, or serve with a token"),
    (AuthenticationFailed, "", "", "give the token with --token-file, or in ENVHOST_TOKEN"),
    (ServerBusy, "", "", "end what holds its sessions, or raise --max-concurrent-envs"),
    (RequestTimedOut, "", "", "raise --timeout here, and request_timeout_s in the manifest"),
    (
        EnvironmentFailed,
        "bwrap|bubblewrap",
        "",
        "install bubblewrap on the server's machine, and run `python -m envhost doctor` there",
    ),
    (ConfigError, "expected an environment server", "", "another program has that port"),
    (SessionLost, "name or service|name resolution", "", "no machine is known by that name here"),
    (SessionLost, "wrong version number|record layer", "", "no TLS is spoken there: try http://"),
    (
        SessionLost,
        "timed out|no connection within|no route|unreachable",
        "",
        "the machine is off, or a firewall stands in between",
    ),
    (
        SessionLost,
        "refused",
        _NEAR,
        (
            "nobody listens on that port of this machine: start the server, or on the server's "
            "machine the tunnel, scripts/tunnel.sh THIS_MACHINE (--check looks at the whole way)"
        ),
    ),
    (
        SessionLost,
        "refused",
        _FAR,
        "nobody listens there: start the server, with --host 0.0.0.0 if it is for other machines",
    ),
    (
        SessionLost,
        "closed|reset by peer|end of file",
        _PLAIN,
        "the tunnel stands and the server behind it does not, or it speaks TLS: then https://",
    ),
    (
        SessionLost,
        "closed|reset by peer|end of file|eof",
        "",
        "the tunnel stands and the server behind it does not",
    ),
)


def _hint(error: EnvhostError, url: str) -> str:
    """Return what to do about an error, or nothing where the error says it itself."""
    said = str(error).lower()
    for kind, pattern, place, words in _HINTS:
        if isinstance(error, kind) and re.search(pattern, said) and place in _places(url):
            return words
    return ""


def _places(url: str) -> set[str]:
    """Return how a URL may be called."""
    parts = urlsplit(url)
    is_near = is_loopback(parts.hostname or "")
    return {"", _NEAR if is_near else _FAR, *([_PLAIN] if parts.scheme in {"http", "ws"} else [])}


def with_hint(error: EnvhostError, url: str) -> EnvhostError:
    """Return the error with what to do about it."""
    more = _hint(error, url)
    if not more:
        return error
    return type(error)(f"{str(error).removesuffix(IS_IT_UP)}: {more}")


def findings(
    *,
    failures: Sequence[EnvhostError],
    rewards: Sequence[float | None],
    isolation: object,
    sessions: int,
    total: int | None,
) -> list[str]:
    """Return a line for each thing that a probe's answers say is, or may be, wrong.

    Args:
        failures: What failed, a session each.
        rewards: Of all steps; None was not scored.
        isolation: What the server says of it, None where nothing.
        sessions: How many were asked for.
        total: How many the server allows, None where it does not tell.
    """
    lines = [
        f"{count} of {sessions} sessions failed: {words}"
        for words, count in Counter(_words(error) for error in failures).most_common()
    ]
    if any(isinstance(error, ServerBusy) for error in failures):
        allowed = "" if total is None else f"; the server allows {total}"
        lines.append(
            "a run needs batch_size × group_size + 1 sessions: start the server with at least so "
            f"many --max-concurrent-envs{allowed}"
        )
    if any(isinstance(error, RequestTimedOut) for error in failures):
        lines.append(
            "running a program against a dozen tests is slower than a game's move: raise "
            "request_timeout_s in the manifest (--timeout here)"
        )
    if isinstance(isolation, str) and isolation.startswith("none"):
        lines.append(
            "programs are not isolated on the server's machine: whatever a model writes runs there "
            "as the server's user; install bubblewrap and leave out sandbox_type: none"
        )
    if rewards and all(reward == 0 for reward in rewards):
        lines.append(
            "every reward was 0: right for an answer that solves nothing, as the probe's own does; "
            "the verdicts show that the way works"
        )
    return lines


def _words(error: EnvhostError) -> str:
    return f"{type(error).__name__}: {error}"
