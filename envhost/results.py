"""What an environment's calls return, brought into one shape.

Owns the rules for Gymnasium-like results: `reset` gives an observation or (observation, info),
`step` a tuple of four or five. Pure: no environment is called here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .environment import Observation, StepResult, text_observation

__all__ = ["observation_fields", "prompt_of", "reset_result", "step_result"]

_PROMPT_KEYS = ("prompt", "text", "goal", "problem", "question")


def reset_result(value: Any) -> Observation:
    """Return what a reset returned: an `Observation`, (observation, info), or an observation.

    Raises:
        TypeError: It returned nothing.
    """
    if isinstance(value, Observation):
        return value
    if value is None:
        raise TypeError("reset: expected an observation or (observation, info), got NoneType")
    info: Any = {}
    if isinstance(value, tuple) and 1 <= len(value) <= 2:
        value, info = value if len(value) == 2 else (value[0], {})
    return Observation(observation_fields(value), info_fields(info))


def step_result(value: Any) -> StepResult:
    """Return what a step returned: a `StepResult`, or Gymnasium's or Gym's tuple.

    Raises:
        TypeError: It is none of them, or the reward is no number.
    """
    if isinstance(value, StepResult):
        return value
    if not isinstance(value, tuple) or len(value) not in {4, 5}:
        got = f"a tuple of {len(value)}" if isinstance(value, tuple) else type(value).__name__
        raise TypeError(
            "step: expected a StepResult, (observation, reward, terminated, truncated, info) or "
            f"(observation, reward, done, info), got {got}"
        )
    observation, reward, terminated, *between, info = value
    facts = info_fields(info)
    # Gym's four say in the info that it was a time limit.
    truncated = between[0] if between else facts.get("TimeLimit.truncated", False)
    return StepResult(
        observation=observation_fields(observation),
        reward=_number(reward),
        terminated=bool(terminated) and not (bool(truncated) and not between),
        truncated=bool(truncated),
        metadata=facts,
    )


def _number(reward: Any) -> float | None:
    if reward is None or isinstance(reward, float):
        return reward
    try:
        return float(reward)
    except (TypeError, ValueError):
        raise TypeError(f"step: expected a number as reward, got {reward!r:.60}") from None


def info_fields(info: Any) -> Mapping[str, Any]:
    """Return an info's fields; none for what is no mapping."""
    return info if isinstance(info, Mapping) else {}


def observation_fields(value: Any) -> dict[str, Any]:
    """Return the observation's fields on the wire; `prompt` is its text.

    A text is the prompt. A mapping keeps its own fields, images among them. Anything else has its
    `str` as the prompt and stands under `value`.
    """
    if isinstance(value, str):
        return text_observation(value)
    if isinstance(value, Mapping):
        return {**text_observation(prompt_of(value)), **value}
    return {**text_observation(str(value)), "value": value}


def prompt_of(fields: Mapping[str, Any]) -> str:
    """Return the text of an observation's fields; empty where there is none."""
    goal, text = fields.get("goal"), fields.get("text")
    if "prompt" not in fields and isinstance(goal, str) and isinstance(text, str):
        return f"{goal}\n\n{text}"
    texts = (fields.get(key) for key in _PROMPT_KEYS)
    return next((text for text in texts if isinstance(text, str)), "")
