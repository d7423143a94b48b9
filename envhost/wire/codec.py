"""Text to messages and back: the only place that knows the protocol's JSON.

Owns every rule of the envelope. Whatever a peer sends becomes a message or a `ProtocolError`;
whatever an environment returns becomes one line of JSON that every client can read.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping
from typing import Any, cast

import orjson
from attrs import asdict, has

from ..errors import ProtocolError
from .messages import (
    CloseRequest,
    ErrorReply,
    McpReply,
    McpRequest,
    ObservationReply,
    Reply,
    Request,
    ResetRequest,
    StateReply,
    StateRequest,
    StepRequest,
)

__all__ = [
    "decode_reply",
    "decode_request",
    "encode_reply",
    "encode_request",
    "reset_options",
    "text_action",
]

_ENVELOPE_KEYS = frozenset(("type", "data"))
_TYPES = ("reset", "step", "state", "close", "mcp")
_NOT_AN_ENVELOPE = object()
_ERRORS_TOLD = 5  # a reply must not outgrow the request that it complains of
_DEEPEST = 100


def invalid(loc: tuple[str | int, ...], message: str, kind: str) -> ProtocolError:
    """Return a VALIDATION_ERROR about one place of a message."""
    where = ".".join(str(part) for part in loc)
    return ProtocolError(
        "VALIDATION_ERROR",
        f"{where}: {message}" if where else message,
        [{"loc": list(loc), "msg": message, "type": kind}],
    )


def decode_request(frame: str | bytes) -> Request:
    """Return the request that a client's frame holds.

    Raises:
        ProtocolError: INVALID_JSON, UNKNOWN_TYPE or VALIDATION_ERROR.
    """
    if isinstance(frame, bytes):
        raise invalid((), "expected a text frame, got a binary frame", "frame_type")
    envelope = parse_json(frame)
    if not isinstance(envelope, dict):
        raise invalid((), f"expected a JSON object, got {json_type(envelope)}", "dict_type")
    kind = envelope.get("type")
    if kind not in _TYPES:
        raise ProtocolError("UNKNOWN_TYPE", f"type: expected one of {_TYPES}, got {shorten(kind)}")
    if len(envelope) > 2 or not envelope.keys() <= _ENVELOPE_KEYS:
        raise _unknown_keys(envelope)
    return _request(kind, envelope.get("data", _NOT_AN_ENVELOPE))


def _request(kind: str, data: Any) -> Request:
    if kind in {"state", "close"}:
        if data is not _NOT_AN_ENVELOPE and data is not None and data != {}:
            raise invalid(("data",), f"a {kind} request takes no data", "extra_forbidden")
        return StateRequest() if kind == "state" else CloseRequest()
    if data is _NOT_AN_ENVELOPE or data is None:
        if kind == "reset":
            return ResetRequest()
        raise invalid(("data",), f"a {kind} request needs data", "missing")
    if not isinstance(data, dict):
        raise invalid(("data",), f"expected an object, got {json_type(data)}", "dict_type")
    if kind == "step":
        return StepRequest(data)
    return ResetRequest(data) if kind == "reset" else McpRequest(data)


def _unknown_keys(envelope: Mapping[str, Any]) -> ProtocolError:
    unknown = sorted(envelope.keys() - _ENVELOPE_KEYS)
    names = ", ".join(shorten(name) for name in unknown[:_ERRORS_TOLD])
    return ProtocolError(
        "VALIDATION_ERROR",
        f"unknown keys beside type and data: {names}",
        [
            {"loc": [key[:200]], "msg": "unknown key", "type": "extra_forbidden"}
            for key in unknown[:_ERRORS_TOLD]
        ],
    )


def reset_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reset's keyword arguments with the usual ones checked.

    `seed` and `row_index` are integers or null, `evaluation` is a boolean, `episode_id` a string
    or null; others pass through unseen.

    Raises:
        ProtocolError: VALIDATION_ERROR, naming each argument of a wrong type.
    """
    errors = []
    for name, value in options.items():
        expected = _expected_option(name, value)
        if expected:
            message = f"expected {expected}, got {json_type(value)} {shorten(value)}"
            errors.append({"loc": ["data", name], "msg": message, "type": "type_error"})
    if errors:
        text = "; ".join(f"data.{error['loc'][1]}: {error['msg']}" for error in errors)
        raise ProtocolError("VALIDATION_ERROR", text, errors)
    return dict(options)


def _expected_option(name: str, value: Any) -> str | None:
    if name in {"seed", "row_index"}:
        return None if value is None or type(value) is int else "an integer"
    if name == "evaluation":
        return None if value is None or type(value) is bool else "true or false"
    if name == "episode_id":
        return None if value is None or isinstance(value, str) else "a string"
    return None


def text_action(action: Mapping[str, Any], field_name: str) -> str:
    """Return the text of a text environment's action.

    Raises:
        ProtocolError: VALIDATION_ERROR; the field is missing or is not a string.
    """
    text = action.get(field_name, _NOT_AN_ENVELOPE)
    if isinstance(text, str):
        return text
    if text is _NOT_AN_ENVELOPE:
        message = f"expected a text action with the field {field_name!r}, got {shorten(action)}"
        raise invalid(("data", field_name), message, "missing")
    message = f"expected a string, got {json_type(text)}"
    raise invalid(("data", field_name), message, "string_type")


def encode_reply(reply: Reply) -> bytes:
    """Return a reply as one JSON text, UTF-8; NaN and infinities become null."""
    match reply:
        case ObservationReply():
            # Clients from 0.4.2 on read the metadata inside the observation, older ones beside it.
            data: dict[str, Any] = {
                "observation": {**reply.observation, "metadata": reply.metadata},
                "reward": reply.reward,
                "done": reply.done,
                "metadata": reply.metadata,
            }
            return dump_json({"type": "observation", "data": data})
        case StateReply(state):
            return dump_json({"type": "state", "data": state})
        case McpReply(response):
            return dump_json({"type": "mcp", "data": response})
        case ErrorReply(code, message, extra):
            error = {"message": message, "code": code, **extra}
            return dump_json({"type": "error", "data": error})


def encode_request(request: Request) -> bytes:
    """Return a request as one JSON text, UTF-8."""
    match request:
        case ResetRequest(options):
            return dump_json({"type": "reset", "data": options})
        case StepRequest(action):
            return dump_json({"type": "step", "data": action})
        case StateRequest():
            return dump_json({"type": "state"})
        case CloseRequest():
            return dump_json({"type": "close"})
        case McpRequest(call):
            return dump_json({"type": "mcp", "data": call})


def decode_reply(frame: str | bytes) -> Reply:
    """Return the reply that a server's frame holds; lenient in what it does not need.

    Raises:
        ProtocolError: The frame is no reply of this protocol.
    """
    if isinstance(frame, bytes):
        raise invalid((), "expected a text frame, got a binary frame", "frame_type")
    envelope = parse_json(frame)
    if not isinstance(envelope, dict) or not isinstance(envelope.get("data"), dict):
        raise invalid((), f"expected a reply with type and data, got {shorten(frame)}", "dict_type")
    data: dict[str, Any] = envelope["data"]
    match envelope.get("type"):
        case "observation":
            return _observation_reply(data)
        case "state":
            return StateReply(data)
        case "mcp":
            return McpReply(data)
        case "error":
            extra = {key: value for key, value in data.items() if key not in {"code", "message"}}
            code = str(data.get("code", "SESSION_ERROR"))
            return ErrorReply(cast("Any", code), str(data.get("message", "")), extra)
        case other:
            raise ProtocolError("UNKNOWN_TYPE", f"unknown reply type {shorten(other)}")


def _observation_reply(data: Mapping[str, Any]) -> ObservationReply:
    observation = data.get("observation")
    reward = data.get("reward")
    if not isinstance(observation, dict):
        observation = {} if observation is None else {"value": observation}
    if reward is not None and not isinstance(reward, bool | int | float):
        raise invalid(("data", "reward"), f"expected a number, got {shorten(reward)}", "float_type")
    inner = observation.get("metadata")
    outer = data.get("metadata")
    metadata = {
        **(inner if isinstance(inner, dict) else {}),
        **(outer if isinstance(outer, dict) else {}),
    }
    return ObservationReply(
        observation=observation, reward=reward, done=bool(data.get("done")), metadata=metadata
    )


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; NaN and lone surrogates are taken as Python writes them.

    Raises:
        ProtocolError: INVALID_JSON.
    """
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        pass
    try:
        return json.loads(text)
    except RecursionError:
        raise ProtocolError("INVALID_JSON", "expected JSON, got too many nested levels") from None
    except ValueError as error:
        raise ProtocolError("INVALID_JSON", f"expected JSON: {error}") from None


def dump_json(value: Any) -> bytes:
    """Return a value as JSON text, UTF-8; what JSON cannot hold becomes null or its `str`.

    Raises:
        ValueError: The value is nested too deeply, or contains itself.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, orjson.JSONEncodeError, RecursionError):
        # Lone surrogates and integers above 64 bits: Python's json writes both.
        return json.dumps(_finite(value, 0)).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if has(type(value)):
        return asdict(value, recurse=False)
    # numpy, torch and pydantic, none of which is imported here
    for name in ("tolist", "item", "model_dump"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    return _image_url(value) or str(value)


def _image_url(value: Any) -> str | None:
    """Return a PIL image as the data URL that image processors take; None for anything else."""
    if not type(value).__module__.startswith("PIL."):
        return None
    png = io.BytesIO()
    value.save(png, format="PNG")
    return f"data:image/png;base64,{base64.b64encode(png.getvalue()).decode()}"


def _finite(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError(f"expected at most {_DEEPEST} levels of nesting")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _finite(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item, depth + 1) for item in value]
    return _finite(_plain(value), depth + 1)


def json_type(value: Any) -> str:
    """Return the JSON name of a value's type, for messages."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    if value is None:
        return "null"
    return names.get(type(value), "a number")


def shorten(value: Any, width: int = 60) -> str:
    """Return a value's repr, ASCII only and at most `width` characters long, for messages."""
    try:
        text = ascii(dict(list(value.items())[:4]) if isinstance(value, dict) else value)
    except RecursionError:
        text = "a deeply nested value"
    return text if len(text) <= width else text[: width - 3] + "..."
