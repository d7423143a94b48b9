"""Ranks that watch each other, over a real store in one process."""

from __future__ import annotations

import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402

from rltrain import lifeline as lifeline_module  # noqa: E402
from rltrain.lifeline import Lifeline  # noqa: E402

pytestmark = pytest.mark.train


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifeline_module, "_BEAT_SECONDS", 0.02)


class Ended:
    """What a lifeline calls instead of ending the process."""

    def __init__(self) -> None:
        self.event = threading.Event()

    def __call__(self) -> None:
        self.event.set()


def make(store: Any, rank: int, **settings: Any) -> tuple[Lifeline, Ended]:
    ended = Ended()
    settings = {"silent_seconds": 60.0, "grace_seconds": 0.05, **settings}
    return Lifeline(store, rank=rank, world_size=2, end=ended, **settings), ended


def test_a_rank_that_fails_is_told_of_and_ends_the_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other hears the reason, shows it, and is ended after its time of grace."""
    store = dist.HashStore()
    (first, ended), (second, _) = make(store, 0), make(store, 1)

    with first, second:
        second.tell("no memory")
        assert first.failure(30) == "rank 1 ended: no memory"
        assert ended.event.wait(30)

    assert capsys.readouterr().err == "rltrain: stopped: rank 1 ended: no memory\n"


def test_a_silent_rank_counts_as_dead() -> None:
    """No sign of life for the limit, and the other is ended."""
    lifeline, ended = make(dist.HashStore(), 0, silent_seconds=0.2)

    with lifeline:
        assert ended.event.wait(30)

    assert lifeline.failure(0) == "rank 1 gave no sign of life for 0 s"


def test_living_ranks_leave_each_other_alone() -> None:
    """Both beat: nobody is blamed, though more than the limit of silence goes by."""
    store = dist.HashStore()
    (first, ended), (second, _) = make(store, 0, silent_seconds=0.5), make(store, 1)

    with first, second:
        assert first.failure(1.5) == ""

    assert not ended.event.is_set()


def test_a_rank_that_ends_in_time_is_not_ended() -> None:
    """Within the time of grace the context is left: the process is not killed."""
    store = dist.HashStore()
    (first, ended), (second, _) = make(store, 0, grace_seconds=60.0), make(store, 1)

    with first, second:
        second.tell("gone")
        assert first.failure(30)

    assert not ended.event.is_set()


def test_nobody_leaves_a_meeting_before_all_have_come() -> None:
    """The first waits for the second; where the second fails it does not."""
    store = dist.HashStore()
    (first, _), (second, _) = make(store, 0), make(store, 1)
    waiting = threading.Thread(target=first.meet)

    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    second.meet()
    waiting.join(30)
    assert not waiting.is_alive()

    other_store = dist.HashStore()
    (third, _), (fourth, _) = make(other_store, 0), make(other_store, 1)
    with third:
        fourth.tell("gone")
        third.meet()
