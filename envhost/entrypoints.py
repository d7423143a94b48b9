"""From an entrypoint's name to the factory that a server serves.

Owns the rule of what an entrypoint may return: an `EnvironmentFactory`, shared by all sessions, or
an environment (an object with `async` reset, step, state and close), made anew for each session.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from .config import DEFAULT_ENTRYPOINT, ServerConfig
from .environment import Description, Environment, EnvironmentFactory, load_callable
from .envs.gem_code import gem_code
from .errors import ConfigError
from .telemetry import log_event

__all__ = ["make_factory"]

_SLOW_SECONDS = 0.005
"""A constructor that takes longer than this is called in a thread, from the second time on."""

_GEM = "gem:make"

_METHODS = ("reset", "step", "state", "close")
# Settings of the server that an entrypoint gets if it takes them: the operator's choice alone.
_HANDED_ON = {"unsafe_no_sandbox": "--unsafe-no-sandbox", "record_dir": "--record"}


def make_factory(config: ServerConfig) -> EnvironmentFactory:
    """Return the factory that a server's entrypoint and its options name.

    Raises:
        ConfigError: No such entrypoint, options that it does not take, or a wrong result.
    """
    name, options = _resolved(config.entrypoint, config.env_config)
    make = load_callable(name)
    try:
        parameters = inspect.signature(make).parameters
    except ValueError as error:
        raise ConfigError(f"entrypoint {name}: {error}") from None
    if config.record_dir is not None and "record_dir" not in parameters:
        raise ConfigError(f"--record: entrypoint {name} keeps no record: it takes no record_dir")
    for setting, option in _HANDED_ON.items():
        if setting in options:
            raise ConfigError(f"{setting} is no option of an environment: {option}")
        if setting in parameters:
            options[setting] = getattr(config, setting)
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise ConfigError(f"entrypoint {name}: --env-config does not fit: {error}") from None
    started = time.perf_counter()
    first = make(**options)
    is_slow = time.perf_counter() - started > _SLOW_SECONDS
    if isinstance(first, EnvironmentFactory):
        return first
    missing = [
        method
        for method in _METHODS
        if not inspect.iscoroutinefunction(getattr(first, method, None))
    ]
    if missing:
        raise ConfigError(
            f"entrypoint {name}: expected an environment with async reset, step, state and close, "
            f"got {type(first).__name__}, where {', '.join(missing)} is missing or not async"
        )
    return _PlainFactory(
        name, make, options, first, is_slow=is_slow, close_seconds=config.limits.close_seconds
    )


def _resolved(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the entrypoint and options that serve what is asked for."""
    code = gem_code(options) if name == _GEM else None
    if code is None:
        return name, dict(options)
    for note in code.notes:
        log_event("server.note", text=note)
    return DEFAULT_ENTRYPOINT, dict(code.options)


class _PlainFactory:
    """Call an entrypoint once for each session; the first environment proved that it can."""

    def __init__(
        self,
        name: str,
        make: Callable[..., Environment],
        options: Mapping[str, Any],
        first: Environment,
        *,
        is_slow: bool,
        close_seconds: float,
    ) -> None:
        self._name = name
        self._make = make
        self._options = options
        self._first: Environment | None = first
        self._is_slow = is_slow
        self._close_seconds = close_seconds

    def describe(self) -> Description:
        text = inspect.getdoc(self._make) or ""
        return Description(name=self._name, description=text.partition("\n")[0])

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            if self._first is not None:
                with trio.move_on_after(self._close_seconds, shield=True):
                    await self._first.close()

    async def build(self) -> Environment:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._is_slow:
            # In a thread, so that it holds up nobody else; a thread hop costs 0.1 ms.
            return await trio.to_thread.run_sync(partial(self._make, **self._options))
        return self._make(**self._options)
