"""The exception tree: every error says whose fault it is.

Owns the exceptions that cross module borders; nothing here knows of sockets, JSON or processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "AuthenticationFailed",
    "ConfigError",
    "EnvhostError",
    "EnvironmentFailed",
    "EpisodeError",
    "NotScored",
    "ProtocolError",
    "RequestTimedOut",
    "ServerBusy",
    "SessionLost",
]


class EnvhostError(Exception):
    """Root of all errors of this package; never raised itself."""


class ConfigError(EnvhostError):
    """The user asked for something that cannot be: shown as one line, exit status 2."""


class ProtocolError(EnvhostError):
    """The peer sent a frame that the protocol does not allow.

    Args:
        code: One of the wire protocol's error codes, `VALIDATION_ERROR` for instance.
        message: What was expected, what came, and where.
        errors: One `{loc, msg, type}` for each fault found, as pydantic lists them.
    """

    def __init__(self, code: str, message: str, errors: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.errors = errors or []


class EpisodeError(EnvhostError):
    """A step came before the first reset or after the end of the episode."""


class NotScored(EnvhostError):
    """We failed to score an answer (verdict IE): never a reward, the rollout must be dropped."""

    def __init__(self, message: str, metadata: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.metadata = dict(metadata or {})


class EnvironmentFailed(EnvhostError):
    """The environment raised, or could not be built; at the client, the server said so."""


class ServerBusy(EnvhostError):
    """The server has no free session; try again later or raise --max-concurrent-envs."""


class RequestTimedOut(EnvhostError):
    """No reply came in time; the session is gone, since a late reply must answer nothing."""


class SessionLost(EnvhostError):
    """The connection failed or was closed while a reply was due."""


class AuthenticationFailed(EnvhostError):
    """The server wants a token, or refused the one given."""
