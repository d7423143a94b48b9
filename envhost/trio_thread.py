"""Trio in one daemon thread of an ordinary program, for the process's life.

Owns that thread and the way in; knows nothing of what runs there. A forked child makes its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar, TypeVarTuple

import trio

from .errors import SessionLost

__all__ = ["TrioThread", "trio_thread"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TrioThread:
    """Trio in a daemon thread; calls come in from any other thread."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._ready = threading.Event()
        self._token: trio.lowlevel.TrioToken
        self.nursery: trio.Nursery
        threading.Thread(target=trio.run, args=(self._main,), name="envhost", daemon=True).start()
        self._ready.wait()

    async def _main(self) -> None:
        async with trio.open_nursery() as nursery:
            self._token = trio.lowlevel.current_trio_token()
            self.nursery = nursery
            self._ready.set()
            await trio.sleep_forever()

    def call(self, function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
        """Run a function in the thread and return its result; Ctrl-C here cancels it there."""
        scope = trio.CancelScope()

        async def scoped() -> T:
            with scope:
                return await function(*args)
            raise SessionLost("interrupted")

        try:
            return trio.from_thread.run(scoped, trio_token=self._token)
        except KeyboardInterrupt:
            self._token.run_sync_soon(scope.cancel)
            raise

    def soon(self, function: Callable[[*Ts], None], *args: *Ts) -> None:
        """Call a function in the thread soon, in the order of the calls."""
        self._token.run_sync_soon(function, *args)


_thread_lock = threading.Lock()
_current_thread: TrioThread | None = None


def trio_thread() -> TrioThread:
    """Return this process's thread, started at the first use."""
    global _current_thread  # noqa: PLW0603 - one a process, made at first use and again after a fork
    with _thread_lock:
        if _current_thread is None or _current_thread.pid != os.getpid():
            _current_thread = TrioThread()
        return _current_thread
