"""An environment whose every word tries to become part of the page that shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from envhost.environment import Description, Environment, Observation, StepResult, text_observation

BAIT = '"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{{7*7}}\u202e\x00'
LONG = "W" * 5000


class Hostile:
    """Give bait as prompt, problem, verdict and metadata."""

    async def reset(self, **_: Any) -> Observation:
        return Observation(text_observation(BAIT), {"problem_id": BAIT, "split": LONG, BAIT: BAIT})

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        metadata = {"verdict": BAIT, "stderr_tail": BAIT, "wall_seconds": 1.0, BAIT: {BAIT: [BAIT]}}
        metadata |= {"tests_passed": BAIT, "tests_total": BAIT}
        observation = text_observation(BAIT)
        return StepResult(observation=observation, reward=0.0, terminated=False, metadata=metadata)

    async def state(self) -> Mapping[str, Any]:
        return {BAIT: BAIT}

    async def close(self) -> None:
        pass


class HostileFactory:
    """Describe itself in bait."""

    def describe(self) -> Description:
        return Description(name=BAIT, description=BAIT, notes=(BAIT, LONG), isolation=BAIT)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        yield

    async def build(self) -> Environment:
        return Hostile()


def make(record_dir: str | None = None) -> HostileFactory:
    """Return the factory; it claims to keep a record, so that the server shows programs."""
    return HostileFactory()
