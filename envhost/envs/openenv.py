"""OpenEnv's `Environment` classes: typed actions, their own state, and MCP tools.

Owns how they are recognised and called; openenv itself is never imported here, only what their
class already has. A tool environment's MCP session is held open as long as the environment.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..errors import ConfigError, ProtocolError
from ..results import prompt_of
from .gym_like import awaited, option_names, reset_arguments

__all__ = ["OpenEnv", "action_type", "is_openenv"]

_INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS, _INTERNAL = -32600, -32601, -32602, -32603


def is_openenv(kind: type[Any]) -> bool:
    """Whether a class is an OpenEnv environment."""
    return _base(kind, "Environment") is not None


def _base(kind: type[Any], name: str) -> type[Any] | None:
    for base in kind.__mro__:
        if base.__name__ == name and base.__module__.startswith("openenv."):
            return base
    return None


def action_type(kind: type[Any]) -> type[Any]:
    """Return the action class that an OpenEnv environment takes.

    Raises:
        ConfigError: The class does not say which.
    """
    named = getattr(kind, "ACTION_CLS", None)
    if isinstance(named, type):
        return named
    for cls in kind.__mro__:
        for base in getattr(cls, "__orig_bases__", ()):
            arguments = typing.get_args(base)
            if arguments and _is_action(arguments[0]):
                return typing.cast("type[Any]", arguments[0])
    for method in ("_step_impl", "step"):
        hint = _hints(getattr(kind, method, None)).get("action")
        if _is_action(hint) and hint is not None and hint.__name__ != "Action":
            return typing.cast("type[Any]", hint)
    if (mcp := _base(kind, "MCPEnvironment")) is not None:
        return typing.cast("type[Any]", vars(sys.modules[mcp.__module__])["CallToolAction"])
    raise ConfigError(
        f"{kind.__name__}: expected to learn its action class; write Environment[MyAction, …] as "
        "its base, annotate step's action, or set ACTION_CLS"
    )


def _is_action(kind: Any) -> bool:
    return isinstance(kind, type) and _base(kind, "Action") is not None


def _hints(method: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(method)
    except (NameError, TypeError, AttributeError):
        return {}


class OpenEnv:
    """Adapt one OpenEnv environment."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        kind = type(environment)
        self._action_type = action_type(kind)
        self._mcp_base = _base(kind, "MCPEnvironment")
        self._names = option_names(environment.reset)
        base = _base(kind, "Environment")
        assert base is not None
        self._overridden = {
            name
            for name in ("reset_async", "step_async")
            if getattr(kind, name, None) is not getattr(base, name, None)
        }
        self.is_async = bool(self._overridden) or self._mcp_base is not None

    def about(self) -> dict[str, Any]:
        """Return what the session must know of the environment."""
        names = self._names
        return {
            "reset_options": None if names is None else sorted(names),
            "takes_seed": names is None or "seed" in names,
            "is_text": False,
            "has_tools": self._mcp_base is not None or _is_tool_action(self._action_type),
        }

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold the MCP session."""
        if self._mcp_base is None:
            yield
            return
        async with self._environment.mcp_session():
            yield

    async def reset(self, options: dict[str, Any]) -> Any:
        """Begin an episode."""
        arguments = reset_arguments(self._names, options)
        episode = options.get("episode_id")
        if episode is not None:
            arguments["episode_id"] = episode
        name = "reset_async" if "reset_async" in self._overridden else "reset"
        observation = await awaited(getattr(self._environment, name)(**arguments))
        fields, metadata = _fields(observation)
        return [fields, metadata]

    async def step(self, action: dict[str, Any]) -> Any:
        """Validate an action and apply it."""
        observation = await self._apply(self._typed(action))
        fields, metadata = _fields(observation)
        reward = observation.reward
        done = bool(observation.done)
        truncated = done and bool(fields.get("truncated"))
        return [fields, reward, done and not truncated, truncated, metadata]

    async def _apply(self, action: Any) -> Any:
        name = "step_async" if "step_async" in self._overridden else "step"
        return await awaited(getattr(self._environment, name)(action))

    def _typed(self, action: Mapping[str, Any]) -> Any:
        kind = self._tool_type(action.get("type")) or self._action_type
        try:
            return kind.model_validate(action)
        except ValueError as error:  # pydantic's
            faults = getattr(error, "errors", None)
            if not callable(faults):
                raise
            found = faults(include_url=False, include_context=False, include_input=False)
            told = "; ".join(f"{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in found[:5])
            raise ProtocolError(
                "VALIDATION_ERROR",
                f"{kind.__name__}: {told}",
                [{**fault, "loc": ["data", *fault["loc"]]} for fault in found[:5]],
            ) from None

    def _tool_type(self, kind: Any) -> Any:
        """Return the class of a tool action, where the environment is driven by those."""
        names = {"list_tools": "ListToolsAction", "call_tool": "CallToolAction"}
        if kind not in names or not self.about()["has_tools"]:
            return None
        return _mcp_types()[names[kind]]

    async def state(self, _: None) -> Any:
        """Return the environment's own state."""
        state = await awaited(self._environment.state)
        if hasattr(state, "model_dump"):
            state = state.model_dump()
        # What the environment does not count the session does.
        return {name: value for name, value in dict(state or {}).items() if value is not None}

    async def mcp(self, call: dict[str, Any]) -> Any:
        """Answer a JSON-RPC call of `tools/list` or `tools/call`."""
        request = call.get("id")
        if call.get("jsonrpc") != "2.0" or not isinstance(call.get("method"), str):
            return _rpc_error(request, _INVALID_REQUEST, "expected JSON-RPC 2.0 with a method")
        parameters = call.get("params") or {}
        try:
            if call["method"] == "tools/list":
                return _rpc(request, {"tools": await self._tools()})
            if call["method"] != "tools/call":
                return _rpc_error(request, _NO_METHOD, f"no method {call['method']!r:.60}")
            name = parameters.get("name")
            if not isinstance(name, str):
                return _rpc_error(request, _INVALID_PARAMS, "params: expected a tool's name")
            return _rpc(request, await self._call(name, parameters.get("arguments") or {}))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is its answer
            return _rpc_error(request, _INTERNAL, f"{type(error).__name__}: {error}")

    async def _tools(self) -> Any:
        client = getattr(self._environment, "mcp_client", None)
        if client is not None:
            return [tool.model_dump() for tool in await client.list_tools()]
        observation = await self._apply(self._typed({"type": "list_tools"}))
        return [tool.model_dump() for tool in observation.tools]

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> Any:
        client = getattr(self._environment, "mcp_client", None)
        if client is not None:
            return await client.call_tool(name, arguments)
        action = {"type": "call_tool", "tool_name": name, "arguments": arguments}
        return await self._apply(self._typed(action))

    async def close(self, _: None) -> None:
        """Close the environment."""
        await awaited(self._environment.close())


def _is_tool_action(kind: type[Any]) -> bool:
    return any(_base(kind, name) for name in ("CallToolAction", "ListToolsAction"))


def _mcp_types() -> dict[str, Any]:
    return vars(sys.modules["openenv.core.env_server.mcp_types"])


def _fields(observation: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an observation's fields with its text, and its metadata."""
    if not hasattr(observation, "model_dump"):
        raise TypeError(f"expected an Observation, got {type(observation).__name__}")
    fields = observation.model_dump(exclude={"reward", "done"})
    metadata = fields.pop("metadata", None) or {}
    if "prompt" not in fields and (prompt := prompt_of(fields)):
        fields["prompt"] = prompt
    return fields, metadata


def _rpc(request: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request, "result": result}


def _rpc_error(request: Any, code: int, message: str) -> dict[str, Any]:
    error = {"code": code, "message": message, "data": None}
    return {"jsonrpc": "2.0", "id": request, "error": error}
