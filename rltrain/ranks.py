"""The processes of a run: who this one is, and what all of them agree on.

Owns torch.distributed's world: joining the processes that a launcher started, sums, gathered
values, decisions. One process needs no launcher and talks to nobody.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from .errors import PeerStopped, RltrainError, RunStopped, SetupError
from .lifeline import Lifeline

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Place", "Ranks", "joined", "launched"]

T = TypeVar("T")

_BLAME_SECONDS = 5.0
"""How long a rank whose collective failed looks for the rank that is to blame."""


@frozen(kw_only=True)
class Place:
    """Where a launcher has put this process; a process started by hand is the only one."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> Place:
        """Return the place that the variables of torchrun, accelerate or DeepSpeed name.

        Raises:
            SetupError: They are not whole numbers, or only some of them are set.
        """
        world_size = _number(variables, "WORLD_SIZE", 1)
        if world_size > 1 and "RANK" not in variables:
            raise SetupError(
                f"WORLD_SIZE is {world_size} and RANK is not set: start with torchrun, accelerate "
                f"or deepspeed, or unset WORLD_SIZE"
            )
        rank = _number(variables, "RANK", 0)
        local_world_size = _number(
            variables, "LOCAL_WORLD_SIZE", _number(variables, "LOCAL_SIZE", world_size)
        )
        return cls(
            rank=rank,
            world_size=world_size,
            local_rank=_number(variables, "LOCAL_RANK", rank % local_world_size),
            local_world_size=local_world_size,
        )

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the run's files and talks to the user."""
        return self.rank == 0


def _number(variables: Mapping[str, str], name: str, default: int) -> int:
    text = variables.get(name, "")
    if not text:
        return default
    if not text.isdigit():
        raise SetupError(f"{name}: expected a whole number from the launcher, got {text!r}")
    return int(text)


class Ranks:
    """The processes of a run; with one of them everything returns at once, unchanged.

    All methods but `own` are collective: every process calls them, in the same order.

    Args:
        place: Which of them this one is.
        meet: Waits until all have come so far, without a collective.
    """

    def __init__(
        self, place: Place | None = None, *, meet: Callable[[], None] = lambda: None
    ) -> None:
        self.meet = meet
        place = place or Place()
        self.rank = place.rank
        self.world_size = place.world_size
        self.is_leader = place.is_leader

    def own(self, items: Sequence[T]) -> Sequence[T]:
        """Return this process's share: neighbours stay together, shares differ by one at most."""
        start = len(items) * self.rank // self.world_size
        return items[start : len(items) * (self.rank + 1) // self.world_size]

    def gather(self, value: T) -> list[T]:
        """Return what every process has, in the order of their ranks."""
        if self.world_size == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def any(self, is_so: bool) -> bool:
        """Return whether it is so in any process."""
        return is_so if self.world_size == 1 else self.total([float(is_so)])[0] > 0

    def total(self, values: Sequence[float]) -> list[float]:
        """Return the values summed over the processes, in float64."""
        if self.world_size == 1:
            return list(values)
        import torch
        import torch.distributed as dist

        sums = torch.tensor(values, dtype=torch.float64)  # [values]
        dist.all_reduce(sums)
        result: list[float] = sums.tolist()
        return result

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors over the processes, in place; all of one type, on one device."""
        if self.world_size == 1:
            return
        import torch
        import torch.distributed as dist

        flat = torch.cat([tensor.flatten() for tensor in tensors])  # [all elements]
        dist.all_reduce(flat)
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def from_leader(self, make: Callable[[], T]) -> T:
        """Call a function in the first process alone; return its result in all of them.

        Raises:
            SetupError: The function raised it; the same in all processes.
        """
        if self.world_size == 1:
            return make()
        import torch.distributed as dist

        answer: list[Any] = [None, None]
        if self.is_leader:
            try:
                answer[0] = make()
            except SetupError as error:
                answer[1] = str(error)
        dist.broadcast_object_list(answer, src=0)
        if answer[1] is not None:
            raise SetupError(answer[1])
        result: T = answer[0]
        return result


@contextmanager
def joined(place: Place, *, wait_seconds: float) -> Iterator[Ranks]:
    """Join the processes that the launcher started, until the context ends.

    Args:
        place: Which of them this one is.
        wait_seconds: How long one process may wait for another.

    Raises:
        RunStopped: Another process ended in the middle.
        PeerStopped: This one ends as the first does, which says why.
    """
    if place.world_size == 1:
        yield Ranks(place)
        return
    import torch
    import torch.distributed as dist

    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store, _, _ = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]  # no __all__
    prefixed = dist.PrefixStore  # type: ignore[attr-defined]  # the same
    dist.init_process_group(
        backend,
        store=prefixed("rltrain", store),
        rank=place.rank,
        world_size=place.world_size,
        timeout=timedelta(seconds=wait_seconds),
    )
    # A connection of its own: a store's calls wait for each other.
    signs = prefixed("rltrain-lifeline", store.clone())
    with Lifeline(signs, rank=place.rank, world_size=place.world_size) as lifeline:
        try:
            yield Ranks(place, meet=lifeline.meet)
            lifeline.meet()
        except BaseException as error:
            _ended(error, place, lifeline)
            raise
    if dist.is_initialized():  # vLLM's end takes it down
        dist.destroy_process_group()


def _ended(error: BaseException, place: Place, lifeline: Lifeline) -> None:
    """Tell the others why this rank ends; raise what is to be said instead of its own error.

    Raises:
        RunStopped: Another rank ended, and this one's collective with it.
        PeerStopped: The same, and the first rank says so.
    """
    reason = str(error) if isinstance(error, RltrainError) else f"{type(error).__name__}: {error}"
    if _is_lost_connection(error):
        # A moment after the other's end, which may have left its reason.
        blamed = lifeline.failure(_BLAME_SECONDS)
        reason = blamed or f"another rank ended without a word, killed perhaps ({reason})"
        lifeline.tell(reason)
        if blamed and not place.is_leader and not blamed.startswith("rank 0 "):
            raise PeerStopped(reason) from error
        raise RunStopped(reason) from error
    lifeline.tell(reason)
    if isinstance(error, RltrainError) and not place.is_leader:
        blamed = lifeline.failure(_BLAME_SECONDS)
        if blamed.startswith("rank 0 ") and blamed.endswith(reason):
            raise PeerStopped(reason) from error


def _is_lost_connection(error: BaseException) -> bool:
    """Whether a collective failed because another rank has gone."""
    import torch.distributed as dist

    is_gloo = isinstance(error, RuntimeError) and any(
        words in str(error) for words in ("gloo", "Connection closed", "Connection reset")
    )
    return is_gloo or isinstance(error, dist.DistError)


def launched() -> Place:
    """Return this process's place, from its environment."""
    return Place.of(os.environ)
