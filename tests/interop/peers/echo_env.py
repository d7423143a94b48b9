"""A native text environment for tests: echoes, or does what a message asks for.

Messages: `wait` never answers, `raise` raises, `end` ends the episode, `cut` truncates it; anything
else is echoed, with its length as the reward.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import trio

from envhost.environment import Observation, StepResult, text_observation
from envhost.wire.codec import text_action


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class EchoEnvironment:
    """One session's environment; says on standard error when it is cancelled and when closed."""

    def __init__(self) -> None:
        self._steps = 0

    async def reset(self, seed: int | None = None) -> Observation:
        self._steps = 0
        return Observation(
            text_observation(f"say something, seed {seed}"),
            {"seed": seed, "system_prompt": "Be brief."},
        )

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        message = text_action(action, "message")
        self._steps += 1
        if message == "wait":
            try:
                _say("env.waiting")
                await trio.sleep_forever()
            finally:
                _say("env.cancelled")
        if message == "raise":
            raise LookupError("no such answer")
        return StepResult(
            observation=text_observation(f"echo {message}", truncated=message == "cut"),
            reward=float(len(message)),
            terminated=message == "end",
            truncated=message == "cut",
            metadata={"steps": self._steps},
        )

    async def state(self) -> dict[str, Any]:
        return {"dataset_size": 512}

    async def close(self) -> None:
        _say("env.closed")


def make() -> EchoEnvironment:
    """Echo what is said."""
    return EchoEnvironment()
