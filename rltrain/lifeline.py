"""Ranks that watch each other: one that ends in the middle ends the others, with its reason.

Goal: a bounded end, whatever the others are doing. A rank may be waiting in a collective, which no
signal and no exception reaches, so a thread of its own looks after the others and, in the end,
ends the process. What is left then is what a kill leaves: whole checkpoints and flushed logs; the
run's own server goes with the process that started it.

Weak point: a rank that is alive and waits for ever is only found by the collectives' own limit.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .text import visible

__all__ = ["Lifeline"]

_BEAT_SECONDS = 1.0
_SILENT_SECONDS = 60.0
_GRACE_SECONDS = 10.0


class Lifeline:
    """This rank's sign of life, and its watch over the others; a thread inside its context.

    Args:
        store: A torch.distributed store of its own; all ranks see the same one.
        rank: This rank.
        world_size: How many there are.
        silent_seconds: A rank that gives no sign for so long counts as dead.
        grace_seconds: What this process has to end by itself once another has failed.
        end: Ends this process.
    """

    def __init__(
        self,
        store: Any,
        *,
        rank: int,
        world_size: int,
        silent_seconds: float = _SILENT_SECONDS,
        grace_seconds: float = _GRACE_SECONDS,
        end: Callable[[], object] = lambda: os._exit(1),
    ) -> None:
        self._store = store
        self._rank = rank
        self._others = [other for other in range(world_size) if other != rank]
        self._silent_seconds = silent_seconds
        self._grace_seconds = grace_seconds
        self._end = end
        self._is_over = threading.Event()
        self._failure = ""
        self._meetings = 0
        self._has_failed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="lifeline", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(2 * _BEAT_SECONDS)

    def tell(self, reason: str) -> None:
        """Let the others know that this rank ends, and why."""
        try:
            self._store.set(f"failure/{self._rank}", reason)
        except RuntimeError:
            return  # whoever held the store has ended before us

    def meet(self) -> None:
        """Wait until all ranks have come so far; no collective, which may be gone by now."""
        self._meetings += 1
        key = f"met/{self._meetings}"
        try:
            self._store.add(key, 1)
            while self._store.add(key, 0) <= len(self._others) and not self._has_failed.wait(0.05):
                pass
        except RuntimeError:
            return  # whoever held the store has met all and left

    def failure(self, wait_seconds: float) -> str:
        """Return which other rank has failed and why, after waiting for it; empty if none has."""
        self._has_failed.wait(wait_seconds)
        return self._failure

    def _watch(self) -> None:
        seen = dict.fromkeys(self._others, (-1, time.monotonic()))
        while not self._is_over.wait(_BEAT_SECONDS):
            try:
                self._store.add(f"beat/{self._rank}", 1)
                self._failure = self._look(seen)
            except RuntimeError:
                self._failure = "the first rank's machine does not answer"
            if self._failure:
                self._has_failed.set()
                if not self._is_over.wait(self._grace_seconds):
                    sys.stderr.write(f"rltrain: stopped: {visible(self._failure)}\n")
                    sys.stderr.flush()
                    self._end()
                return

    def _look(self, seen: dict[int, tuple[int, float]]) -> str:
        """Return what is wrong with the others; note the signs of life."""
        for other in self._others:
            if self._store.check([f"failure/{other}"]):
                reason = self._store.get(f"failure/{other}").decode(errors="replace")
                return f"rank {other} ended: {reason}"
            beats, since = self._store.add(f"beat/{other}", 0), time.monotonic()
            if beats != seen[other][0]:
                seen[other] = (beats, since)
            elif since - seen[other][1] > self._silent_seconds:
                return f"rank {other} gave no sign of life for {self._silent_seconds:.0f} s"
        return ""
