"""What a sampler is: requests go in at any time, completions come out as each one ends."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from attrs import field, frozen

from ..rollout import Completion, Request

__all__ = ["Handover", "Sampler"]


@frozen(kw_only=True)
class Handover:
    """What it took to go from training to sampling and back, once.

    `memory_bytes` is the device memory in use (of a CPU: the process's) at the ends of the phases:
    `train_end`, `generate_begin`, `generate_end`, `train_begin`. Empty where nothing changes hands.
    """

    seconds: float = 0.0
    memory_bytes: Mapping[str, int] = field(factory=dict)


class Sampler(Protocol):
    """A source of completions that follows the trained policy.

    `submit`, `can_advance`, `advance` and `abort` are valid inside `serving()` only.
    """

    def serving(self) -> AbstractContextManager[None]:
        """Serve the policy as it is now; give back what generation held when the context ends."""

    @property
    def handover(self) -> Handover:
        """What the last `serving()` took beside sampling."""

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
