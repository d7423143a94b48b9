"""A nursery for what goes on behind a context, and ends with it.

Owns one rule of nurseries: what the context's body raises comes as it is, not in a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

__all__ = ["background"]


@asynccontextmanager
async def background() -> AsyncIterator[trio.Nursery]:
    """Give a nursery whose tasks are cancelled at the context's end."""
    try:
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) > 1:
            raise
        raise group.exceptions[0] from None
