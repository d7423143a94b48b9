"""How many sessions a server holds at once, and who comes next.

Owns the count of slots. Newcomers wait in first-come order; a slot is taken before an environment
is built and given back after it is closed, so that the cap bounds living environments.
"""

from __future__ import annotations

import trio

__all__ = ["Slots"]


class Slots:
    """A bounded number of slots with a first-come queue.

    Args:
        total: The most sessions at once.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._semaphore = trio.Semaphore(total)

    @property
    def taken(self) -> int:
        """How many slots are held."""
        return self.total - self._semaphore.value

    async def acquire(self, wait_seconds: float) -> bool:
        """Take a slot within the time, in order of coming; False where none came free."""
        try:
            self._semaphore.acquire_nowait()  # nobody waits where a slot is free
        except trio.WouldBlock:
            with trio.move_on_after(wait_seconds):
                await self._semaphore.acquire()
                return True
            return False
        return True

    def release(self) -> None:
        """Give a slot back; the first in the queue has it."""
        self._semaphore.release()
