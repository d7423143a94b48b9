"""Gymnasium-like environments: any object with `reset` and `step`, synchronous or not.

Owns how its calls are made: which of reset's arguments it takes, what an action is, and the
facts that it shows as attributes (`system_prompt`, `dataset_size`, `tools`, …).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..errors import ProtocolError
from ..results import reset_result, step_result

__all__ = ["GymLike", "awaited", "option_names", "reset_arguments"]

_STATE_ATTRIBUTES = ("dataset_size", "evaluation_size", "tools", "rubric_components")


class GymLike:
    """Adapt a text environment; a message is the action, or the field `action` where it is none."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._names = option_names(environment.reset)
        self.is_async = any(
            inspect.iscoroutinefunction(getattr(environment, name, None))
            for name in ("reset", "step", "state", "close")
        )

    def about(self) -> dict[str, Any]:
        """Return what the session must know of the environment."""
        names = self._names
        return {
            "reset_options": None if names is None else sorted(names),
            "takes_seed": names is None or "seed" in names,
            "is_text": True,
            "has_tools": False,
        }

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Hold nothing."""
        yield

    async def reset(self, options: dict[str, Any]) -> Any:
        """Begin an episode with the arguments that the environment takes."""
        arguments = reset_arguments(self._names, options)
        result = reset_result(await awaited(self._environment.reset(**arguments)))
        metadata = dict(result.metadata)
        prompt = getattr(self._environment, "system_prompt", None)
        if isinstance(prompt, str) and prompt:
            metadata.setdefault("system_prompt", prompt)
        return [result.observation, metadata]

    async def step(self, action: dict[str, Any]) -> Any:
        """Apply a text, or what stands under `action`."""
        done = step_result(await awaited(self._environment.step(_action(action))))
        return [done.observation, done.reward, done.terminated, done.truncated, done.metadata]

    async def state(self, _: None) -> Any:
        """Return the environment's own state, where it has one, and what it shows of its data."""
        facts: dict[str, Any] = {}
        for name in _STATE_ATTRIBUTES:
            value = getattr(self._environment, name, None)
            if value is not None and not callable(value):
                facts[name] = value
        own = getattr(self._environment, "state", None)
        if inspect.iscoroutinefunction(own):  # of the native protocol
            facts |= await own()
        return facts

    async def mcp(self, call: dict[str, Any]) -> Any:
        """Refuse: there are no tools."""
        raise ProtocolError("VALIDATION_ERROR", "this environment has no tools")

    async def close(self, _: None) -> None:
        """Close the environment, if it can be."""
        close = getattr(self._environment, "close", None)
        if callable(close):
            await awaited(close())


async def awaited(value: Any) -> Any:
    """Return a value, or what it gives when it is awaited."""
    return await value if inspect.isawaitable(value) else value


def option_names(reset: Any) -> frozenset[str] | None:
    """Return the keyword arguments that a reset takes; None means any."""
    parameters = inspect.signature(reset).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY)


def reset_arguments(names: frozenset[str] | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that a reset takes; what is None it need not be told."""
    given = {name: value for name, value in options.items() if value is not None}
    if names is None:
        # Wrappers pass any argument on to what may not take it: not more than was asked for.
        given.pop("episode_id", None)
        return given
    return {name: value for name, value in given.items() if name in names}


def _action(action: Mapping[str, Any]) -> Any:
    if isinstance(action.get("message"), str):
        return action["message"]
    if "action" in action:
        return action["action"]
    raise ProtocolError(
        "VALIDATION_ERROR",
        "expected an action with the text field 'message', or any value in the field 'action'",
        [{"loc": ["data", "message"], "msg": "expected a string", "type": "missing"}],
    )
