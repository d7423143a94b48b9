"""When a run stops, and the words for it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from records import rollout, step_record

from rltrain.errors import RunStopped
from rltrain.guards import check_policy_gap, check_unscored, hint, is_server_away


def test_few_unscored_rollouts_are_let_pass() -> None:
    """Up to the share nothing happens."""
    check_unscored([rollout(1.0), rollout(None)], max_share=0.5)
    check_unscored([rollout(1.0)] * 4, max_share=0.1)


@pytest.mark.parametrize(
    ("rollouts", "max_share"),
    [
        ([rollout(1.0)] + [rollout(None, "EnvironmentFailed: IE")] * 2, 0.5),
        ([rollout(None, "EnvironmentFailed: IE")] * 2, 1.0),
    ],
    ids=["above the share", "all of them"],
)
def test_many_unscored_rollouts_stop_the_run(rollouts: list[Any], max_share: float) -> None:
    """More than the share, or all, stop it with the reasons counted."""
    with pytest.raises(RunStopped, match="2 × EnvironmentFailed: IE"):
        check_unscored(rollouts, max_share=max_share)


def test_a_server_is_away_when_connections_are_lost() -> None:
    """Lost and refused connections count; failures of the environment do not."""
    lost, broken = rollout(None, "SessionLost: reset"), rollout(None, "EnvironmentFailed: x")

    assert is_server_away([lost, lost, rollout(1.0)], max_share=0.5)
    assert not is_server_away([lost, rollout(1.0)], max_share=0.5)
    assert not is_server_away([broken, broken], max_share=0.5)


@pytest.mark.parametrize("gap", [0.02, math.nan])
def test_a_gap_above_rounding_stops_the_run(gap: float) -> None:
    """Above the limit or not a number: stop, and name the way out."""
    check_policy_gap(0.01, limit=0.01)
    with pytest.raises(RunStopped, match=r"training\.max_policy_gap"):
        check_policy_gap(gap, limit=0.01)


def test_rewards_of_zero_for_three_steps_give_a_hint() -> None:
    """The hint counts the verdicts and says what the commonest usually means."""
    zero = step_record(reward_mean=0.0, verdicts={"CE": 7, "WA": 1})

    assert hint([zero, zero]) == ""
    words = hint([zero, zero, zero])
    assert "every reward was 0 or less for 3 steps" in words
    assert "CE 21, WA 3" in words
    assert "max_output_tokens" in words
    assert hint([zero] * 4) == ""  # once in three steps is enough


def test_steps_without_signal_give_a_hint() -> None:
    """All groups flat for three steps: easier or harder problems, or larger groups."""
    flat = step_record(reward_mean=1.0, optimiser_steps=0, verdicts={})

    assert "no group carried signal" in hint([flat] * 3)
    assert hint([step_record(reward_mean=0.5, optimiser_steps=1)] * 3) == ""
