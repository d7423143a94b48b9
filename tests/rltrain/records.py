"""Records and rollouts with what a test does not care about filled in."""

from __future__ import annotations

from typing import Any

from attrs import evolve, fields

from rltrain.metrics import StepRecord
from rltrain.rollout import Completion, Episode, Rollout, Transcript, Turn


def rollout(reward: float | None, failure: str = "", **changes: Any) -> Rollout:
    """Return a rollout of one turn with three sampled tokens."""
    completion = Completion(
        key=0, token_ids=[7, 8, 2], behaviour_logprobs=[-1.0] * 3, finish="stop"
    )
    base = Rollout(
        episode=Episode(group=0, seed=0, sample_seed=0),
        prompt="q",
        transcript=Transcript().given([1]).sampled(completion),
        turns=(Turn(completion="a", finish="stop", verdict="AC"),),
        reward=reward,
        failure=failure or ("" if reward is not None else "SessionLost: gone"),
    )
    return evolve(base, **changes)


def step_record(**values: Any) -> StepRecord:
    """Return a record of zeros but for the given values."""
    zeros: dict[str, Any] = {field.name: 0 for field in fields(StepRecord)}
    return StepRecord(**{**zeros, "verdicts": {}, "failures": {}, **values})
