"""Group advantages against hand-computed values."""

from __future__ import annotations

import pytest

from rltrain.advantage import group_advantages


def test_mean_only_subtracts_the_mean() -> None:
    """The group [1, 0] gives +0.5 and −0.5."""
    assert group_advantages([1.0, 0.0]) == [0.5, -0.5]


def test_mean_std_divides_by_the_population_deviation() -> None:
    """The group [1, 0] gives +1 and −1: its population deviation is 0.5."""
    assert group_advantages([1.0, 0.0], norm="mean_std") == [1.0, -1.0]


def test_an_unscored_member_leaves_the_baseline() -> None:
    """Rewards 1, 3, 2 and a failed one give −1, 1, 0 and nothing."""
    assert group_advantages([1.0, 3.0, 2.0, None]) == [-1.0, 1.0, 0.0, None]


@pytest.mark.parametrize("rewards", [[0.0, 0.0], [1.0, None, 1.0], [2.0, None], [None, None], []])
def test_a_group_without_signal_has_no_advantages(rewards: list[float | None]) -> None:
    """Equal rewards, one scored member, or none at all: nothing enters the loss."""
    assert group_advantages(rewards) == [None] * len(rewards)
    assert group_advantages(rewards, norm="mean_std") == [None] * len(rewards)
