"""Whose program runs next: as many at once as there are processors, first come, first served.

Owns the turns. A program that has computed or slept for long may step aside: it goes on, set back
by its cell, while its turn is the next one's. So a few endless programs do not hold up many quick
ones. Those aside take memory, and what they get of a processor is taken from somebody: they are at
most two for each processor, whatever the reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["Turn", "Turns"]

_ASIDE_A_PROCESSOR = 2


class Turns:
    """Turns to run a program.

    Args:
        processors: How many programs have a turn at once.
    """

    def __init__(self, processors: int) -> None:
        self._taken = trio.CapacityLimiter(processors)
        self._aside = trio.CapacityLimiter(_ASIDE_A_PROCESSOR * processors)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Turn]:
        """Wait for a turn, and hold it or a place aside until the context ends."""
        turn = Turn(self._taken, self._aside)
        await self._taken.acquire_on_behalf_of(turn)
        try:
            yield turn
        finally:
            turn.held.release_on_behalf_of(turn)


class Turn:
    """One program's turn."""

    def __init__(self, taken: trio.CapacityLimiter, aside: trio.CapacityLimiter) -> None:
        self.held = taken
        self._aside = aside

    def step_aside(self) -> bool:
        """Pass the turn on, for good, where a place aside is free; return whether it was."""
        if self.held is not self._aside:
            try:
                self._aside.acquire_on_behalf_of_nowait(self)
            except trio.WouldBlock:
                return False
            self.held.release_on_behalf_of(self)
            self.held = self._aside
        return True
