"""Requests and replies of the wire protocol, as frozen values.

Owns the message classes and the error codes; knows neither JSON nor sockets (see `codec`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

__all__ = [
    "TERMINAL_CODES",
    "CloseRequest",
    "ErrorCode",
    "ErrorReply",
    "McpReply",
    "McpRequest",
    "ObservationReply",
    "Reply",
    "Request",
    "ResetRequest",
    "StateReply",
    "StateRequest",
    "StepRequest",
]

ErrorCode = Literal[
    "INVALID_JSON",
    "UNKNOWN_TYPE",
    "VALIDATION_ERROR",
    "EXECUTION_ERROR",
    "CAPACITY_REACHED",
    "FACTORY_ERROR",
    "SESSION_ERROR",
]

TERMINAL_CODES: frozenset[ErrorCode] = frozenset(
    ("CAPACITY_REACHED", "FACTORY_ERROR", "SESSION_ERROR")
)
"""After one of these the server closes the socket."""


@frozen
class ResetRequest:
    """Begin an episode; `options` are the reset's keyword arguments."""

    options: Mapping[str, Any] = field(factory=dict)


@frozen
class StepRequest:
    """Apply an action."""

    action: Mapping[str, Any]


@frozen
class StateRequest:
    """Ask for the environment's state."""


@frozen
class CloseRequest:
    """End the session; there is no reply."""


@frozen
class McpRequest:
    """Call a tool environment by JSON-RPC."""

    call: Mapping[str, Any]


@frozen(kw_only=True)
class ObservationReply:
    """Answers a reset or a step; a reward of None means *not scored* (or a reset)."""

    observation: Mapping[str, Any]
    reward: float | bool | None
    done: bool
    metadata: Mapping[str, Any] = field(factory=dict)


@frozen
class StateReply:
    """Answers a state request."""

    state: Mapping[str, Any]


@frozen
class McpReply:
    """Answers a tool call with a JSON-RPC response."""

    response: Mapping[str, Any]


@frozen
class ErrorReply:
    """Says what went wrong; `extra` are the code's own keys.

    Clients show only code and message, so that every hint must stand in the message.
    """

    code: ErrorCode
    message: str
    extra: Mapping[str, Any] = field(factory=dict)


Request = ResetRequest | StepRequest | StateRequest | CloseRequest | McpRequest
Reply = ObservationReply | StateReply | McpReply | ErrorReply
