"""From an entrypoint's name to the factory that a server serves.

Owns the rule of what an entrypoint may return: an `EnvironmentFactory`, shared by all sessions, or
an environment, made anew for each session. One whose reset, step, state and close are all `async`
runs on the server's loop, any other with reset and step in a process of its own.
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
from .envs.adapters import load_shared
from .envs.gem_code import gem_code
from .envs.keeping import kept_apart, take_keeping
from .envs.openenv import is_openenv
from .envs.threaded import ThreadEnvironments
from .errors import ConfigError
from .telemetry import log_event

__all__ = ["make_factory"]

_SLOW_SECONDS = 0.005
"""A constructor that takes longer than this is called in a thread, from the second time on."""

_GEM = "gem:make"
_GEM_HERE = "envhost.envs.gem:make"
_GEM_OF_A_MODULE = ":gem.make"
"""End of an entrypoint whose module imports GEM and registers ids of its own."""

_METHODS = ("reset", "step", "state", "close")
# Settings of the server that an entrypoint gets if it takes them: the operator's choice alone.
_HANDED_ON = {"unsafe_no_sandbox": "--unsafe-no-sandbox", "record_dir": "--record"}


def make_factory(config: ServerConfig) -> EnvironmentFactory:
    """Return the factory that a server's entrypoint and its options name.

    Raises:
        ConfigError: No such entrypoint, options that it does not take, or a wrong result.
    """
    name, options = _resolved(config.entrypoint, config.env_config)
    keeping = take_keeping(options)
    if keeping.run_in in {"process", "sandbox"} or (name == _GEM_HERE and keeping.run_in is None):
        _refuse_record(config)
        return kept_apart(name, options, keeping)
    make = load_callable(name)
    _hand_on(config, name, make, options)
    if keeping.run_in == "thread":
        load_shared(make, options)
        return ThreadEnvironments(partial(make, **options), name=name, description=_doc(make))
    if isinstance(make, type) and is_environment(make) and not _is_native(make):
        return kept_apart(name, options, keeping, description=_doc(make))
    started = time.perf_counter()
    first = make(**options)
    is_slow = time.perf_counter() - started > _SLOW_SECONDS
    if isinstance(first, EnvironmentFactory):
        return first
    if _is_native(first):
        seconds = config.limits.close_seconds
        return _PlainFactory(name, make, options, first, is_slow=is_slow, close_seconds=seconds)
    if not is_environment(first):
        raise ConfigError(
            f"entrypoint {name}: expected an environment with reset and step, got "
            f"{type(first).__name__}"
        )
    if (close := getattr(first, "close", None)) and not inspect.iscoroutinefunction(close):
        close()
    return kept_apart(name, options, keeping, description=_doc(make))


def _hand_on(
    config: ServerConfig, name: str, make: Callable[..., Any], options: dict[str, Any]
) -> None:
    """Add the server's settings that the entrypoint takes, and see that it takes all options."""
    try:
        parameters = inspect.signature(make).parameters
    except ValueError as error:
        raise ConfigError(f"entrypoint {name}: {error}") from None
    if "record_dir" not in parameters:
        _refuse_record(config)
    for setting, option in _HANDED_ON.items():
        if setting in options:
            raise ConfigError(f"{setting} is no option of an environment: {option}")
        if setting in parameters:
            options[setting] = getattr(config, setting)
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise ConfigError(f"entrypoint {name}: --env-config does not fit: {error}") from None


def _refuse_record(config: ServerConfig) -> None:
    if config.record_dir is not None:
        raise ConfigError(
            f"--record: entrypoint {config.entrypoint} keeps no record: it takes no record_dir"
        )


def _is_native(environment: Any) -> bool:
    """Whether an environment, or its class, is of our own protocol, which runs on the loop."""
    return all(
        inspect.iscoroutinefunction(getattr(environment, method, None)) for method in _METHODS
    ) and not is_openenv(environment if isinstance(environment, type) else type(environment))


def is_environment(environment: Any) -> bool:
    """Whether an environment, or its class, has reset and step."""
    return all(callable(getattr(environment, method, None)) for method in ("reset", "step"))


def _doc(make: Callable[..., Any]) -> str:
    return (inspect.getdoc(make) or "").partition("\n")[0]


def _resolved(name: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the entrypoint and options that serve what is asked for."""
    registers = name.endswith(_GEM_OF_A_MODULE)
    if name != _GEM and not registers:
        return name, dict(options)
    if registers:
        load_callable(name)
    code = gem_code(options)
    if code is None:
        return name if registers else _GEM_HERE, dict(options)
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
        return Description(name=self._name, description=_doc(self._make))

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
