"""GEM's code environments in our words: each keyword argument, and each id."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from envhost.envs.gem_code import gem_code
from envhost.errors import ConfigError

REFERENCE = "gem.envs.code_env:CodeEnv"


def registry() -> Mapping[str, Any]:
    """Return a registry as GEM's is, with ids of a user's own."""
    mine = {"dataset_name": "me/mine", "split": "part", "question_key": "q", "test_key": "t"}
    return {
        "code:Mine": SimpleNamespace(entry_point=REFERENCE, kwargs=mine),
        "code:Other": SimpleNamespace(entry_point="mine:Env", kwargs={}),
        "math:Any": SimpleNamespace(entry_point="gem.envs.math_env:MathEnv", kwargs={}),
    }


def options(**env_config: Any) -> dict[str, Any]:
    """Return our options for what `gem.make` would be given."""
    found = gem_code(env_config, registry)
    assert found is not None
    return dict(found.options)


@pytest.mark.parametrize(
    ("env_id", "dataset"),
    [
        ("code:Taco8k", "axon-rl/TACO-8k"),
        ("code:CodeContest", "axon-rl/CodeContest"),
        ("code:PrimeIntellect15k", "axon-rl/PrimeIntellect-15k"),
    ],
)
def test_ids_of_gem_need_no_gem(env_id: str, dataset: str) -> None:
    """The ids that come with GEM name their data sets, and its registry is not asked."""

    def absent() -> Mapping[str, Any]:
        raise AssertionError

    found = gem_code({"env_id": env_id, "sandbox_type": "bwrap"}, absent)

    assert found is not None
    assert found.options == {"dataset": dataset, "split": "train", "sandbox_type": "bwrap"}
    assert found.notes == ()


def test_keyword_arguments_have_our_names() -> None:
    """What the reference calls otherwise is renamed; what is the same stays."""
    given = options(
        env_id="code:Taco8k",
        dataset_name="some/where",
        split="valid",
        question_key="q",
        test_key="t",
        seed=3,
        max_tests=5,
        sandbox_type="none",
    )

    assert given == {
        "dataset": "some/where",
        "split": "valid",
        "question_key": "q",
        "test_key": "t",
        "shuffle_seed": 3,
        "max_tests": 5,
        "sandbox_type": "none",
    }


def test_a_data_set_wins_over_the_name_of_the_id() -> None:
    """`dataset` takes the place of the id's own, as in the reference."""
    given = options(env_id="code:Taco8k", dataset="here.jsonl")
    assert given == {"dataset": "here.jsonl", "split": "train"}


def test_arguments_without_effect_are_told() -> None:
    """`max_workers` and `verbose` change nothing here, and a note says so."""
    found = gem_code({"env_id": "code:Taco8k", "max_workers": 0, "verbose": False}, registry)
    assert found is not None
    assert "max_workers" not in found.options
    assert [note.partition(":")[0] for note in found.notes] == ["max_workers", "verbose"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": object()}, "got object; save it with save_to_disk"),
        ({"seed": 1, "shuffle_seed": 2}, "shuffle_seed: the same as shuffle_seed|seed"),
        ({"dataset_name": "a", "dataset": "b"}, "dataset: the same as dataset"),
    ],
)
def test_refused_arguments(given: dict[str, Any], message: str) -> None:
    """What cannot be meant is refused in words."""
    with pytest.raises(ConfigError, match=message):
        options(env_id="code:Taco8k", **given)


def test_ids_that_users_registered() -> None:
    """GEM's registry is read: an id of the reference's code environment is ours to serve."""
    assert options(env_id="code:Mine", max_tests=2) == {
        "dataset": "me/mine",
        "split": "part",
        "question_key": "q",
        "test_key": "t",
        "max_tests": 2,
    }


@pytest.mark.parametrize("env_id", ["code:Other", "math:Any", "game:Any", None])
def test_other_environments_are_not_ours(env_id: str | None) -> None:
    """Another class, another family or no id at all is for others to make."""
    assert gem_code({"env_id": env_id}, registry) is None


def test_unknown_ids() -> None:
    """An unknown code id is one line with the nearest that there is."""
    with pytest.raises(ConfigError, match="no environment 'code:Taco8'; did you mean code:Taco8k"):
        options(env_id="code:Taco8")
    with pytest.raises(ConfigError, match="others need gem-llm, which is not installed"):
        gem_code({"env_id": "code:Quite"}, dict)
