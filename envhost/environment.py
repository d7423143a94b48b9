"""What an environment is: the protocols that sessions drive and environments implement.

Owns the `Environment` and `EnvironmentFactory` protocols and the values that pass between a
session and its environment. Knows no socket and no particular environment.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from attrs import field, frozen

from .errors import ConfigError

__all__ = [
    "Description",
    "Environment",
    "EnvironmentFactory",
    "Observation",
    "StepResult",
    "Traits",
    "load_callable",
    "text_observation",
    "traits_of",
]


@frozen
class Observation:
    """What a reset returns: the observation's fields and facts about the episode."""

    observation: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class StepResult:
    """What a step returns; a reward of None means *not scored*."""

    observation: Mapping[str, Any]
    reward: float | None
    terminated: bool
    truncated: bool = False
    metadata: Mapping[str, Any] = field(factory=dict)


@frozen(kw_only=True)
class Description:
    """What the server tells about its environment.

    `notes` are lines for the log at start: which guards hold, what was dropped from a data set.
    `isolation` says how programs under judgement are kept apart; empty where there are none.
    """

    name: str
    description: str
    version: str = ""
    notes: tuple[str, ...] = ()
    isolation: str = ""


@frozen(kw_only=True)
class Traits:
    """What an environment can do, beyond what its type says.

    `reset_options` are the keyword arguments that reset takes, None for any. `is_text` is False
    where actions have fields of their own. With `has_tools` a step may be `list_tools` or
    `call_tool`, and there is an `async mcp(call)` that answers JSON-RPC.
    """

    reset_options: frozenset[str] | None
    is_text: bool = True
    has_tools: bool = False


class Environment(Protocol):
    """One session's environment. Calls never overlap; any of them may be cancelled at any await.

    `reset` takes the keyword arguments it can use (`seed`, `row_index`, `evaluation`,
    `episode_id`, others of its own); the session drops what its signature does not name.
    Raise `ProtocolError("VALIDATION_ERROR", …)` for a bad argument or action, `EpisodeError` for a
    step outside an episode, `NotScored` where the failure is not the answer's; anything else is
    reported to the client as EXECUTION_ERROR and leaves the session open.

    `reset` and `step` may also return what Gymnasium's do (`results`). An attribute `traits` says
    what cannot be read off the type.
    """

    async def reset(self, **options: Any) -> Observation:
        """Begin a new episode."""

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        """Apply one action to the running episode."""

    async def state(self) -> Mapping[str, Any]:
        """Return JSON facts about the environment (`dataset_size`, …)."""

    async def close(self) -> None:
        """Give back everything; called exactly once, under a shielded limit."""


@runtime_checkable
class EnvironmentFactory(Protocol):
    """What one server shares between its sessions, and the maker of their environments."""

    def describe(self) -> Description:
        """Say what is served; valid inside `serving()`."""

    def serving(self) -> AbstractAsyncContextManager[None]:
        """Hold what all sessions share for the server's life; raise ConfigError to refuse."""

    async def build(self) -> Environment:
        """Make a fresh environment for one session."""


def traits_of(environment: Environment) -> Traits:
    """Return an environment's own `traits`, or those that its reset's signature tells."""
    traits = getattr(environment, "traits", None)
    return (
        traits
        if isinstance(traits, Traits)
        else Traits(reset_options=options_of(type(environment)))
    )


@cache
def options_of(kind: type[Any]) -> frozenset[str] | None:
    """Return the names of the keyword arguments that a type's reset takes; None means any."""
    parameters = inspect.signature(kind.reset).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    return frozenset(parameters) - {"self"}


def text_observation(
    prompt: str, *, truncated: bool = False, question: str = "", answer: str = ""
) -> dict[str, Any]:
    """Return the observation of a text environment in the shape that every client reads."""
    return {"prompt": prompt, "truncated": truncated, "question": question, "answer": answer}


def load_callable(entrypoint: str) -> Callable[..., Any]:
    """Return the callable that `module:name` or `path/to/file.py:name` names.

    Raises:
        ConfigError: The module or the name does not exist, or is not callable.
    """
    module_name, separator, attribute = entrypoint.rpartition(":")
    is_relative = module_name.startswith(".") and not module_name.endswith(".py")
    if not separator or not module_name or not attribute or is_relative:
        raise ConfigError(
            f"entrypoint {entrypoint!r}: expected module:callable or path/to/file.py:callable"
        )
    module = _load_file(module_name) if module_name.endswith(".py") else _load_module(module_name)
    target: Any = module
    for part in attribute.split("."):
        target = getattr(target, part, None)
        if target is None:
            raise ConfigError(
                f"entrypoint {entrypoint!r}: module {module_name} has no {attribute!r}"
            )
    if not callable(target):
        raise ConfigError(f"entrypoint {entrypoint!r}: expected a callable, got {target!r}")
    result: Callable[..., Any] = target
    return result


def _load_module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"entrypoint module {name!r}: {error}; is it installed, or on PYTHONPATH?"
        ) from error


def _load_file(path_text: str) -> Any:
    path = Path(path_text)
    if not path.is_file():
        raise ConfigError(f"entrypoint file {path_text!r}: no such file")
    name = f"envhost_entrypoint_{path.stem}"  # `json.py` must not become everybody's json
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"entrypoint file {path_text!r}: expected a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
