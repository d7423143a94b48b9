"""Whatever has `reset` and `step`, behind the four calls that a session makes.

Owns the choice of the adapter; `gym_like` and `openenv` are the two there are. Used where the
environment lives, in a worker or a thread.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

from ..environment import EnvironmentFactory
from ..errors import ConfigError
from .gym_like import GymLike
from .openenv import OpenEnv, is_openenv

__all__ = ["Adapter", "adapt", "load_shared", "run_plainly"]

T = TypeVar("T")


class Adapter(Protocol):
    """One environment; its calls take and return what JSON can hold, and never overlap."""

    is_async: bool

    def about(self) -> dict[str, Any]:
        """Return what the session must know: `reset_options`, `takes_seed`, and so on."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Hold what lives as long as the environment."""

    async def reset(self, options: dict[str, Any]) -> Any:
        """Return [observation, metadata]."""

    async def step(self, action: dict[str, Any]) -> Any:
        """Return [observation, reward, terminated, truncated, metadata]."""

    async def state(self, _: None) -> Any:
        """Return the state's fields."""

    async def mcp(self, call: dict[str, Any]) -> Any:
        """Return the response to a JSON-RPC call."""

    async def close(self, _: None) -> None:
        """Give back what the environment holds."""


def adapt(environment: Any) -> Adapter:
    """Return the adapter of an environment.

    Raises:
        ConfigError: It has no reset and step, or is no environment but a factory.
    """
    if isinstance(environment, EnvironmentFactory):
        raise ConfigError(
            f"{type(environment).__name__} makes environments for a whole server: it runs on the "
            "server's loop; leave out run_in"
        )
    if is_openenv(type(environment)):
        return OpenEnv(environment)
    missing = [name for name in ("reset", "step") if not callable(getattr(environment, name, None))]
    if missing:
        raise ConfigError(
            f"expected an environment with reset and step, got {type(environment).__name__}, where "
            f"{' and '.join(missing)} is missing"
        )
    return GymLike(environment)


def load_shared(make: Any, options: Mapping[str, Any]) -> None:
    """Let an entrypoint load what all its environments share, where it has a `preload`."""
    preload = getattr(make, "preload", None)
    if callable(preload):
        preload(**options)


def run_plainly(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits nothing, without a loop: the environment may want its own."""
    try:
        call.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    call.close()
    raise RuntimeError("expected a synchronous environment, got one that awaits something")
