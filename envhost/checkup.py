"""The usual mistakes of an environment, found by playing it: `python -m envhost check`.

Owns what is tried and what is said of it. An environment is examined twice: as it would be served,
and, where that is in a process of its own, once more in this process, where its results can be seen
before they are JSON, and two of it side by side.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import trio
from attrs import field, frozen

from .config import ServerConfig
from .entrypoints import make_factory
from .environment import Environment, EnvironmentFactory, Observation, StepResult, traits_of
from .errors import ConfigError, EnvhostError
from .results import reset_result, step_result
from .wire.codec import dump_json, shorten

__all__ = ["Finding", "Trial", "checkup"]

T = TypeVar("T")
_DEPTH = 20


@frozen
class Finding:
    """A mistake, and what to do about it."""

    mistake: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.mistake}: {self.remedy}"


@frozen(kw_only=True)
class Trial:
    """How an environment is tried.

    `actions` are played in each episode; a call that takes `limit_seconds` hangs, and a reset that
    takes `slow_seconds` is slow.
    """

    actions: Sequence[Any] = ({"message": "hello"}, {"message": ""})
    limit_seconds: float = 30.0
    slow_seconds: float = 1.0
    episodes: int = 3


class _Failed(Exception):
    """A call that ended the examination."""


@frozen
class _Examination:
    """One environment's calls, each under the limit; what goes wrong is a finding."""

    trial: Trial
    findings: list[Finding] = field(factory=list)

    def note(self, mistake: str, remedy: str) -> None:
        """Take down a mistake, once."""
        if all(finding.mistake != mistake for finding in self.findings):
            self.findings.append(Finding(mistake, remedy))

    async def call(self, what: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return a call's result.

        Raises:
            _Failed: It raised, or took too long.
        """
        limit = self.trial.limit_seconds
        try:
            with trio.fail_after(limit):
                return await call()
        except trio.TooSlowError:
            self.note(
                f"{what} hangs", f"it took longer than {limit:g} s; bound every wait inside of it"
            )
        except EnvhostError as error:
            self.note(f"{what} failed", str(error))
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            remedy = str(error) if isinstance(error, TypeError) else _raised(what, error)
            self.note(f"{what} failed", remedy)
        raise _Failed

    async def reset(self, environment: Environment, seed: int) -> Observation:
        """Return a reset's result, with a look at how long it took."""
        accepted = traits_of(environment).reset_options
        options = {"seed": seed} if accepted is None or "seed" in accepted else {}
        started = trio.current_time()

        async def reset() -> Observation:
            return reset_result(await environment.reset(**options))

        result = await self.call("reset", reset)
        seconds = trio.current_time() - started
        if seconds > self.trial.slow_seconds:
            self.note(
                "slow reset",
                f"it took {seconds:.1f} s; load what does not change at the top of the module, or "
                "in a preload classmethod: that is done once, for all sessions",
            )
        self._look_at("reset", result.observation, result.metadata)
        return result

    async def play(self, environment: Environment, seed: int) -> list[StepResult]:
        """Return the steps of an episode that has been begun."""
        steps: list[StepResult] = []
        for action in self.trial.actions:

            async def step(action: Any = action) -> StepResult:
                return step_result(await environment.step(action))

            result = await self.call(f"step on {shorten(action)}", step)
            self._look_at("step", result.observation, result.metadata)
            if result.reward is not None and not math.isfinite(result.reward):
                self.note("wrong reward", f"{result.reward} travels as null, which is not scored")
            steps.append(result)
            if result.terminated or result.truncated:
                break
        return steps

    def _look_at(self, what: str, observation: Mapping[str, Any], info: Mapping[str, Any]) -> None:
        for part, value in (("observation", observation), ("info", info)):
            for place, kind in foreign(value):
                self.note(
                    f"{what}'s {part} is not serialisable",
                    f"{place or part} is a {kind}, which travels as its text; make it numbers, "
                    "texts, lists and dictionaries",
                )


def _raised(what: str, error: Exception) -> str:
    told = f"it raised {type(error).__name__}: {str(error)[:200]}"
    if what.startswith("step"):
        return f"{told}; a model may answer anything: give a wrong answer a reward, not an error"
    return told


def foreign(value: Any, place: str = "", depth: int = 0) -> list[tuple[str, str]]:
    """Return the places of a value that JSON cannot hold as they are, with their types."""
    if value is None or isinstance(value, str | bool | int | float) or depth > _DEPTH:
        return []
    if isinstance(value, Mapping):
        pairs = [(f"{place}.{key}".lstrip("."), item) for key, item in value.items()]
    elif isinstance(value, list | tuple | set | frozenset):
        pairs = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    elif any(hasattr(value, name) for name in ("tolist", "model_dump", "__attrs_attrs__")):
        return []  # arrays and models have a shape of their own on the wire
    elif isinstance(value, bytes) or type(value).__module__.startswith("PIL."):
        return []
    else:
        return [(place, type(value).__name__)]
    return [found for path, item in pairs for found in foreign(item, path, depth + 1)]


async def checkup(config: ServerConfig, trial: Trial) -> list[Finding]:
    """Return the mistakes of an entrypoint's environment; none is the best there can be.

    Raises:
        ConfigError: There is no such entrypoint, or its options do not fit.
    """
    examination = _Examination(trial)
    served = make_factory(config)
    await _examine(examination, served)
    if not examination.findings and _is_apart(config, served):
        options = {**config.env_config, "run_in": "thread"}
        here = make_factory(ServerConfig(entrypoint=config.entrypoint, env_config=options))
        await _examine(examination, here)
    return examination.findings


def _is_apart(config: ServerConfig, factory: EnvironmentFactory) -> bool:
    """Whether an environment is served from a process, and can also be had in this one."""
    return hasattr(factory, "open_worker") and config.env_config.get("run_in") != "sandbox"


async def _examine(examination: _Examination, factory: EnvironmentFactory) -> None:
    try:
        async with factory.serving():
            with suppress(_Failed):
                await _examine_two(examination, factory)
    except ConfigError as error:
        examination.note("it cannot be served", str(error))


async def _examine_two(examination: _Examination, factory: EnvironmentFactory) -> None:
    first = await examination.call("building it", factory.build)
    second = await examination.call("building it", factory.build)
    with suppress(_Failed):
        await _examine_pair(examination, first, second)
    for environment in (first, second):
        with suppress(_Failed):
            await examination.call("close", environment.close)


async def _examine_pair(examination: _Examination, first: Environment, second: Environment) -> None:
    begun = await examination.reset(first, 1)
    alone = await examination.play(first, 1)
    if not str(begun.observation.get("prompt", "")).strip():
        examination.note(
            "empty prompt", "reset gave no text; return one, or put it under prompt, text or goal"
        )
    if begun.metadata.get("takes_seed") is False:
        examination.note(
            "seed ignored", "reset takes no seed; write reset(self, seed=None) and draw from it"
        )
        return
    for episode in range(examination.trial.episodes):
        # The other session plays on in between, with a seed of its own.
        again = await examination.reset(first, 1)
        await examination.reset(second, 2 + episode)
        await examination.play(second, 2 + episode)
        steps = await examination.play(first, 1)
        if _wire(again) != _wire(begun):
            examination.note(
                "seed ignored",
                "two resets with one seed began differently; draw everything from "
                "random.Random(seed)",
            )
            return
        if [_wire(step) for step in steps] != [_wire(step) for step in alone]:
            examination.note(
                "state shared between sessions",
                "the same answers had other results while another session played; keep what "
                "changes in self, not in the class, the module or a file",
            )
            return
    other = await examination.reset(second, 1)
    if _wire(other) != _wire(begun):
        examination.note(
            "seed ignored",
            "two sessions with one seed began differently; draw everything from "
            "random.Random(seed), never from the time, the process or an unordered set",
        )


def _wire(result: Observation | StepResult) -> bytes:
    """Return what a client sees of a result, without the metadata: times may differ there."""
    if isinstance(result, Observation):
        return dump_json(result.observation)
    return dump_json([result.observation, result.reward, result.terminated, result.truncated])
