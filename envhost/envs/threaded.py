"""Environments in the server's own process, their calls in threads: for trusted, light ones.

Owns the threads' limit. A thread cannot be killed: a call that is cancelled is abandoned, and its
environment is used no more. All of them share one `random`, one memory and one interpreter lock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio

from ..environment import Description, Observation, StepResult, Traits
from ..errors import ConfigError, EpisodeError
from .adapters import Adapter, adapt, run_plainly
from .reports import SeedReport, reset_metadata

__all__ = ["ThreadEnvironment", "ThreadEnvironments"]

T = TypeVar("T")
_MOST_THREADS = 1024  # sessions are bounded by the server's slots long before


class ThreadEnvironments:
    """Makes environments whose calls run in threads."""

    def __init__(self, make: Callable[[], Any], *, name: str, description: str) -> None:
        self._make = make
        self._name = name
        self._description = description
        self._limiter = trio.CapacityLimiter(_MOST_THREADS)
        self._seeds = SeedReport(name)
        self._first: ThreadEnvironment | None = None

    def describe(self) -> Description:
        """Say what is served, and how it is kept."""
        notes = ("environments: threads of this process", *self._seeds.notes())
        return Description(name=self._name, description=self._description, notes=notes)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Make the first session's environment, to prove that it can."""
        self._first = await self._made()
        try:
            yield
        finally:
            if self._first is not None:
                await self._first.close()

    async def build(self) -> ThreadEnvironment:
        """Make a session's environment in a thread."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return await self._made()

    async def _made(self) -> ThreadEnvironment:
        adapter = await self.adapter()
        return ThreadEnvironment(self, adapter, self._seeds)

    async def adapter(self) -> Adapter:
        """Return a new environment behind its adapter.

        Raises:
            ConfigError: It is none, or wants a loop of its own.
        """
        adapter = await self.in_thread(lambda: adapt(self._make()))
        if adapter.is_async:
            raise ConfigError(
                f"{self._name} has async methods, which a thread does not run; leave out run_in"
            )
        return adapter

    async def in_thread(self, call: Callable[[], T]) -> T:
        """Run a call in a thread; cancelled, the thread is abandoned."""
        return await trio.to_thread.run_sync(call, limiter=self._limiter, abandon_on_cancel=True)


class ThreadEnvironment:
    """A session's environment; after an abandoned call the next reset begins a new one."""

    def __init__(self, factory: ThreadEnvironments, adapter: Adapter, seeds: SeedReport) -> None:
        self._factory = factory
        self._adapter = adapter
        self._seeds = seeds
        self._is_abandoned = False
        about = adapter.about()
        names = about["reset_options"]
        self._takes_seed: bool = about["takes_seed"]
        seeds.learn(takes_seed=self._takes_seed)
        self.traits = Traits(
            reset_options=None if names is None else frozenset((*names, "seed")),
            is_text=about["is_text"],
            has_tools=about["has_tools"],
        )

    async def _ask(self, call: Callable[[Any], Coroutine[Any, Any, T]], argument: Any) -> T:
        is_answered = False
        try:
            result = await self._factory.in_thread(lambda: run_plainly(call(argument)))
            is_answered = True
        except Exception:
            is_answered = True
            raise
        finally:
            self._is_abandoned |= not is_answered
        return result

    async def reset(self, **options: Any) -> Observation:
        """Begin an episode, with a new environment where the last one is held by a thread."""
        if self._is_abandoned:
            self._adapter = await self._factory.adapter()
            self._is_abandoned = False
        observation, metadata = await self._ask(self._adapter.reset, options)
        self._seeds.note_reset(options)
        return Observation(
            observation, reset_metadata(metadata, options, takes_seed=self._takes_seed)
        )

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        """Apply an action."""
        if self._is_abandoned:
            raise EpisodeError("the environment is held by an abandoned call: reset first")
        observation, reward, terminated, truncated, metadata = await self._ask(
            self._adapter.step, dict(action)
        )
        return StepResult(
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            metadata=metadata,
        )

    async def state(self) -> Mapping[str, Any]:
        """Return the environment's facts."""
        if self._is_abandoned:
            return {}
        facts: Mapping[str, Any] = await self._ask(self._adapter.state, None)
        return facts

    async def close(self) -> None:
        """Close the environment, unless a thread still holds it."""
        if not self._is_abandoned:
            await self._ask(self._adapter.close, None)
