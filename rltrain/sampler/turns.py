"""Whose turn it is on a GPU that cannot hold trainer and sampler at once.

Owns the order in which memory changes hands; knows neither vLLM nor torch, so that the order is
tested with an engine that fails on any other.

| level | while the trainer works, the engine | while the engine works, the trainer |
|---|---|---|
| none | keeps everything | stays |
| 0 | has given up its key-value cache | stays |
| 1 | has its weights in host memory and no cache | is in host memory |
| 2 | has nothing; its weights are read from the disk again | is in host memory |
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from .protocol import Handover

__all__ = ["Adapter", "SleepingEngine", "Trainer", "Turns"]

_WEIGHTS, _CACHE = "weights", "kv_cache"


@frozen
class Adapter:
    """A version of the trained adapter on the disk; version numbers begin at 1."""

    version: int
    path: str


class SleepingEngine(Protocol):
    """An engine that can give its memory up and take it again."""

    def sleep(self, level: int) -> None:
        """Drop the cache, and move the weights to host memory (1) or drop them too (2)."""

    def release_cache(self) -> None:
        """Drop the cache alone."""

    def wake_up(self, tag: str) -> None:
        """Take memory again: of the `weights` or of the `kv_cache`."""

    def reload_weights(self) -> None:
        """Read the weights of the base from the disk."""

    def add_adapter(self, adapter: Adapter) -> None:
        """Load a version of the adapter in place of the one before."""


class Trainer(Protocol):
    """What is trained, with its optimiser."""

    def leave(self) -> None:
        """Go to host memory."""

    def come_back(self) -> None:
        """Come back from there."""


class Turns:
    """Hands the accelerator from the trainer to the engine and back.

    It begins with the engine awake and the trainer away, as after building the engine; the first
    call is `train`.

    Args:
        engine: What samples.
        trainer: What trains.
        level: How deep the engine sleeps; None where it does not.
        memory_bytes: Tells how much device memory is in use.
    """

    def __init__(
        self,
        engine: SleepingEngine,
        trainer: Trainer,
        *,
        level: int | None,
        memory_bytes: Callable[[], int],
    ) -> None:
        self._engine = engine
        self._trainer = trainer
        self._level = level
        self._memory_bytes = memory_bytes
        self._is_awake = {_WEIGHTS, _CACHE}
        self._is_trainer_here = not self._trainer_leaves
        self._seconds = 0.0
        self._seen: dict[str, int] = {}

    @property
    def _trainer_leaves(self) -> bool:
        return self._level in {1, 2}

    @property
    def handover(self) -> Handover:
        """What the last turn of the engine took beside its work."""
        return Handover(seconds=self._seconds, memory_bytes=dict(self._seen))

    def generate(self, write_adapter: Callable[[], Adapter]) -> None:
        """Make it the engine's turn, with the adapter as it is now.

        Args:
            write_adapter: Writes the adapter; called while the trainer is still there.
        """
        assert self._is_trainer_here, "it is the engine's turn already"
        began = time.monotonic()
        self._seen = {"train_end": self._memory_bytes()}
        adapter = write_adapter()
        if self._trainer_leaves:
            self._is_trainer_here = False
            self._trainer.leave()
        if _WEIGHTS not in self._is_awake:
            self._wake(_WEIGHTS)
            if self._level == 2:
                self._engine.reload_weights()
        self._engine.add_adapter(adapter)
        if _CACHE not in self._is_awake:
            self._wake(_CACHE)
        self._seen["generate_begin"] = self._memory_bytes()
        self._seconds = time.monotonic() - began

    def train(self) -> None:
        """Make it the trainer's turn, wherever the engine's turn got to."""
        began = time.monotonic()
        self._seen["generate_end"] = self._memory_bytes()
        if self._level == 0 and _CACHE in self._is_awake:
            self._is_awake.discard(_CACHE)
            self._engine.release_cache()
        if self._level in {1, 2} and self._is_awake:
            self._is_awake.clear()
            self._engine.sleep(self._level)
        if not self._is_trainer_here:
            self._trainer.come_back()
            self._is_trainer_here = True
        self._seen["train_begin"] = self._memory_bytes()
        self._seconds += time.monotonic() - began

    def _wake(self, tag: str) -> None:
        self._engine.wake_up(tag)
        self._is_awake.add(tag)
