"""Environments that misbehave in the ways that brought the reference server down."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any

import trio

from envhost.environment import Description, Observation, StepResult, text_observation
from envhost.errors import ProtocolError


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Faulty:
    """Do what each message asks for; tell on standard error what happens to the environment.

    Args:
        close_seconds: How long closing takes.
        state_seconds: How long a state takes.
    """

    _alive = 0

    def __init__(self, *, close_seconds: float = 0.0, state_seconds: float = 0.0) -> None:
        Faulty._alive += 1
        self._close_seconds = close_seconds
        self._state_seconds = state_seconds
        self._is_open = True
        _say(f"env.alive {Faulty._alive}")

    async def reset(self, seed: int | None = None) -> Observation:
        assert self._is_open
        return Observation(text_observation(f"hello {seed}"), {"seed": seed})

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        if not self._is_open:
            _say("env.step_after_close")
        match action["message"]:
            case "run":
                await self._run()
            case "raise":
                raise LookupError("the \x1b[31mdictionary\n is lost")
            case "refuse":
                cause = {"error": ValueError("even numbers only")}
                errors = [{"loc": ["data"], "msg": "odd", "type": "value_error", "ctx": cause}]
                raise ProtocolError("VALIDATION_ERROR", "even numbers only", errors)
            case text:
                return StepResult(
                    observation=text_observation(text), reward=1.0, terminated=text == "end"
                )
        raise AssertionError("the program never ends")

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            process = await nursery.start(trio.run_process, ["sleep", "86400"])
            _say(f"env.program {process.pid}")

    async def state(self) -> dict[str, Any]:
        _say("env.state")
        await trio.sleep(self._state_seconds)
        return {}

    async def close(self) -> None:
        self._is_open = False
        await trio.sleep(self._close_seconds)
        Faulty._alive -= 1
        _say("env.closed")


class FaultyFactory:
    """Build a good environment, except the second one, which fails as it is told to.

    Args:
        second: `exit` raises SystemExit, `raise` an error, `wait` never ends.
    """

    def __init__(self, *, second: str) -> None:
        self._second = second
        self._count = itertools.count(1)

    def describe(self) -> Description:
        return Description(name="faulty", description="Fails the second time.")

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        yield

    async def build(self) -> Faulty:
        if next(self._count) == 2:
            _say("env.failing")
            if self._second == "exit":
                raise SystemExit(4)
            if self._second == "raise":
                raise FileNotFoundError("no such simulator")
            await trio.sleep_forever()
        return Faulty()
