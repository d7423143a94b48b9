"""GEM's code environments in the words of our own: `gem:make` with ids such as `code:Taco8k`.

Owns what the reference's keyword arguments mean here, and which are refused and why. Knows the ids
that come with GEM by heart, so that they need no GEM; others are looked up in its registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ..errors import ConfigError
from ..settings import nearest

__all__ = ["KNOWN_IDS", "GemCode", "gem_code"]

_PREFIX = "code:"
_REFERENCE = "gem.envs.code_env:CodeEnv"
_IDS: dict[str, Mapping[str, Any]] = {
    env_id: {"dataset_name": dataset, "split": "train"}
    for env_id, dataset in (
        ("code:CodeContest", "axon-rl/CodeContest"),
        ("code:Taco8k", "axon-rl/TACO-8k"),
        ("code:PrimeIntellect15k", "axon-rl/PrimeIntellect-15k"),
    )
}
KNOWN_IDS = tuple(_IDS)
"""The ids that need no GEM."""
_RENAMED = {"dataset_name": "dataset", "seed": "shuffle_seed"}
_WITHOUT_EFFECT = {
    "max_workers": "as many programs run at once as there are processors",
    "verbose": "the log shows each step",
}


@frozen
class GemCode:
    """The options of our code environment, and what is to be said about them at start."""

    options: Mapping[str, Any]
    notes: tuple[str, ...]


def gem_code(
    env_config: Mapping[str, Any],
    registered: Callable[[], Mapping[str, Any]] | None = None,
) -> GemCode | None:
    """Return our options for a code environment of GEM; None where `env_id` names another kind.

    Args:
        env_config: What `gem.make` would be given.
        registered: Returns GEM's registry; by default that of GEM itself, where it is installed.

    Raises:
        ConfigError: No such code environment, or an argument that we refuse.
    """
    env_id = env_config.get("env_id")
    if not isinstance(env_id, str):
        return None
    preset = _preset(env_id, registered or _registry)
    if preset is None:
        return None
    dropped = {"env_id", *_WITHOUT_EFFECT}
    given = {name: value for name, value in env_config.items() if name not in dropped}
    notes = [
        f"{name}: without effect here, {why}"
        for name, why in _WITHOUT_EFFECT.items()
        if name in env_config
    ]
    return GemCode(_translated(preset, given), tuple(notes))


def _preset(env_id: str, registered: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the keyword arguments that an id stands for."""
    if env_id in _IDS:
        return _IDS[env_id]
    if not env_id.startswith(_PREFIX):
        return None
    known = registered()
    if env_id not in known:
        names = [*_IDS, *(name for name in known if name.startswith(_PREFIX))]
        hint = nearest(env_id, names) or f"; known: {', '.join(dict.fromkeys(names))}"
        without = "" if known else " (others need gem-llm, which is not installed here)"
        raise ConfigError(f"env_config.env_id: no environment {env_id!r}{hint}{without}")
    spec = known[env_id]
    if spec.entry_point != _REFERENCE and not _is_reference(spec.entry_point):
        return None  # a code environment of somebody's own, which runs as any other
    preset: Mapping[str, Any] = spec.kwargs
    return preset


def _is_reference(entry_point: Any) -> bool:
    where = f"{getattr(entry_point, '__module__', '')}:{getattr(entry_point, '__name__', '')}"
    return where == _REFERENCE


def _registry() -> Mapping[str, Any]:
    """Return GEM's registry, which knows what users have registered; empty without GEM."""
    try:
        from gem.envs.registration import ENV_REGISTRY
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "gem":
            return {}
        raise
    registry: Mapping[str, Any] = ENV_REGISTRY
    return registry


def _translated(preset: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    if "dataset" in given:  # as in the reference, it wins over the id's
        if not isinstance(given["dataset"], str):
            raise ConfigError(
                "env_config.dataset: expected a text, the name of a data set or a path, got "
                f"{type(given['dataset']).__name__}; save it with save_to_disk and give its folder"
            )
        preset = {name: value for name, value in preset.items() if name != "dataset_name"}
    options: dict[str, Any] = {}
    for name, value in {**preset, **given}.items():
        ours = _RENAMED.get(name, name)
        if ours in options:
            raise ConfigError(
                f"env_config.{name}: the same as {ours}, which is given too: keep one"
            )
        options[ours] = value
    return options
