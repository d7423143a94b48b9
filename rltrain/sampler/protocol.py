"""What a sampler is: requests go in at any time, completions come out as each one ends."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from ..rollout import Completion, Request

__all__ = ["Sampler"]


class Sampler(Protocol):
    """A source of completions that follows the trained policy.

    All calls but `serving` are valid inside `serving()` only.
    """

    def serving(self) -> AbstractContextManager[None]:
        """Serve the policy as it is now; give back what generation held when the context ends."""

    def submit(self, request: Request) -> None:
        """Take a request; return at once."""

    def can_advance(self, *, is_more_coming: bool) -> bool:
        """Whether `advance` would do work now.

        Args:
            is_more_coming: Other requests will follow soon; a sampler that works in waves waits
                for them.
        """

    def advance(self) -> list[Completion]:
        """Do a little work, such as one token for all; return the completions that ended by it."""

    def abort(self) -> None:
        """Forget all requests."""
