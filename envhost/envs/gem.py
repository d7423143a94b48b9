"""GEM's environments by their ids: games, math, questions and reasoning-gym.

Owns what GEM needs to be served: data sets are loaded once, in the template, and a seed means the
same episode in every session, whatever was played there before. What GEM says beside an
observation is told with it, as its own wrappers do. GEM is imported where the environments live
and by `known_ids`, never in a server.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ..errors import ConfigError
from ..settings import nearest

__all__ = ["GemEnvironment", "known_ids", "make"]

# What earlier episodes leave behind in environments that hold a data set.
_KEPT = ("dataset", "ds", "epoch", "idx")
_SEEDS = 1 << 32  # NumPy, which GEM seeds too, takes no more
_INSTALL = "pip install gem-llm (it needs Python 3.12.0 or earlier)"


class GemEnvironment:
    """One environment of GEM; rows and seeds of a data set are its own."""

    def __init__(self, environment: Any) -> None:
        self._environment = environment
        self._kept = {
            name: getattr(environment, name) for name in _KEPT if hasattr(environment, name)
        }
        rows = self._kept.get("dataset")
        self.dataset_size = None if rows is None else len(rows)

    def reset(self, seed: int | None = None, row_index: int | None = None) -> Any:
        """Begin an episode: a row of the data set, or what the seed means."""
        if seed is not None or row_index is not None:
            for name, value in self._kept.items():
                setattr(self._environment, name, value)
        if row_index is not None and self.dataset_size is not None:
            self._environment.idx = row_index % self.dataset_size
            return _told(*self._environment.reset())
        return _told(*self._environment.reset(seed=None if seed is None else seed % _SEEDS))

    def step(self, action: str) -> Any:
        """Apply an action."""
        observation, *outcome, info = self._environment.step(action)
        observation, info = _told(observation, info)
        return observation, *outcome, info

    def close(self) -> None:
        """Close what can be closed."""
        close = getattr(self._environment, "close", None)
        if close is not None:
            close()


def _told(observation: Any, info: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return an observation with the info's prefix and suffix, where some games have the board."""
    facts = dict(info)
    prefix, suffix = facts.pop("prefix", ""), facts.pop("suffix", "")
    if not isinstance(observation, str) or not (prefix or suffix):
        return observation, facts
    line_end = "" if observation.endswith("\n") else "\n"
    return f"{prefix}{observation}{line_end if suffix else ''}{suffix}", facts


class _Make:
    """Make environments of one id; `preload` fetches what they share."""

    def __init__(self) -> None:
        self._shared: dict[str, Any] = {}

    def __call__(self, *, env_id: str, **options: Any) -> GemEnvironment:
        """Return an environment of GEM.

        Args:
            env_id: One of the ids that `python -m envhost list` shows.
            options: Keyword arguments of the environment, as `gem.make` takes them.

        Raises:
            ConfigError: No such id, or no GEM.
        """
        _spec(env_id)
        return GemEnvironment(_gem().make(env_id, **{**self._shared, **options}))

    def preload(self, *, env_id: str, **options: Any) -> None:
        """Import the environment's module, and load its data set."""
        spec = _spec(env_id)
        module = _module_of(env_id, spec.entry_point)
        _download_once(module)
        arguments = {**spec.kwargs, **options}
        name, load = arguments.get("dataset_name"), getattr(module, "load_dataset", None)
        if name and load is not None and arguments.get("dataset") is None:
            self._shared = {"dataset": _loaded(env_id, name, load, arguments)}


make = _Make()


def _module_of(env_id: str, entry_point: Any) -> Any:
    if not isinstance(entry_point, str):
        return sys.modules[entry_point.__module__]
    try:
        return importlib.import_module(entry_point.partition(":")[0])
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{env_id} needs {error.name}, which is not installed: pip install {error.name}"
        ) from None


def _loaded(env_id: str, name: str, load: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    progress: Any = sys.modules.get("tqdm.std")
    if progress is not None:
        progress.tqdm.monitor_interval = 0  # else a thread watches the bars
    _fetch(load, name)
    try:
        dataset = load(name)
    except Exception as error:
        cache_place = os.environ.get("HF_HOME", "~/.cache/huggingface")
        raise ConfigError(
            f"{env_id}: the data set {name} could not be loaded ({type(error).__name__}: "
            f"{str(error)[:200]}); it was looked for in {cache_place} and on the hub: load it once "
            "where there is a network, or give a folder's path as dataset_name"
        ) from error
    return dataset


def _fetch(load: Callable[..., Any], name: str) -> None:
    """Fetch a data set into the cache from a process of its own.

    That starts threads, which the template must not keep; what is in the cache is loaded without.
    """
    pid = os.fork()
    if not pid:
        try:
            load(name)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)  # loading it again tells what went wrong


def _download_once(module: Any) -> None:
    """Let word lists be downloaded at most once for all sessions."""
    nltk: Any = getattr(module, "nltk", None)
    if nltk is not None and not hasattr(nltk.download, "cache_info"):
        nltk.download = cache(nltk.download)


def _gem() -> Any:
    try:
        import gem
        import gem.envs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "gem":
            raise
        raise ConfigError(f"gem:make needs GEM: {_INSTALL}") from None
    return gem


def _registry() -> Mapping[str, Any]:
    _gem()
    registry: Mapping[str, Any] = sys.modules["gem.envs.registration"].ENV_REGISTRY
    return registry


def _spec(env_id: str) -> Any:
    registry = _registry()
    if env_id not in registry:
        hint = nearest(env_id, registry) or "; python -m envhost list shows them"
        raise ConfigError(f"env_config.env_id: no environment {env_id!r}{hint}")
    return registry[env_id]


def known_ids() -> list[str]:
    """Return the ids that GEM knows, in its order.

    Raises:
        ConfigError: GEM is not installed.
    """
    return list(_registry())
