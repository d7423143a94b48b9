"""Seeds, rows and slots: who gets which problem, and whose reply counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakePool, failed, reset_result, step_result

from envhost.errors import EnvironmentFailed
from rltrain.environments import Environments, evaluation_episodes, read_token, training_episodes
from rltrain.errors import SetupError
from rltrain.manifest import Environment
from rltrain.rollout import Episode
from rltrain.seeds import fixed_hash

EPISODE = Episode(group=0, seed=7, row_index=3, sample_seed=1)


def test_the_hash_is_fixed() -> None:
    """The values are the same on every machine and in every release."""
    assert fixed_hash(42, 0, 0) == 1133309433
    assert fixed_hash(42, 0, 1) != fixed_hash(42, 1, 0)


def test_a_group_shares_its_problem_and_nothing_else() -> None:
    """Seed and row by group; sampling seeds differ by member."""
    episodes = training_episodes(run_seed=1, step=0, groups=3, group_size=4, dataset_size=None)

    assert [episode.group for episode in episodes] == [0] * 4 + [1] * 4 + [2] * 4
    assert len({episode.seed for episode in episodes}) == 3
    assert len({episode.sample_seed for episode in episodes}) == 12
    assert all(episode.row_index is None for episode in episodes)


def test_an_epoch_visits_every_row_once() -> None:
    """With 10 rows and 4 groups a step, five steps visit every row twice, in two orders."""
    rows = [
        episode.row_index
        for step in range(5)
        for episode in training_episodes(
            run_seed=1, step=step, groups=4, group_size=2, dataset_size=10
        )[::2]
    ]

    assert sorted(row for row in rows[:10] if row is not None) == list(range(10))
    assert sorted(row for row in rows[10:] if row is not None) == list(range(10))
    assert rows[:10] != rows[10:]


def test_evaluation_walks_all_rows() -> None:
    """`all` is every held-out row once; a number is so many; all of it is the same each time."""
    everything = evaluation_episodes(run_seed=1, loop="all", evaluation_size=5)

    assert [episode.row_index for episode in everything] == [0, 1, 2, 3, 4]
    assert all(episode.is_evaluation for episode in everything)
    assert evaluation_episodes(run_seed=1, loop="all", evaluation_size=5) == everything
    few = evaluation_episodes(run_seed=1, loop=2, evaluation_size=None)
    assert [episode.row_index for episode in few] == [None, None]


def test_all_rows_of_an_unknown_number_are_refused() -> None:
    """`eval_loop: all` needs the environment to say how many rows it holds out."""
    with pytest.raises(SetupError, match="evaluation_size"):
        evaluation_episodes(run_seed=1, loop="all", evaluation_size=None)


def test_a_reset_carries_seed_row_and_split() -> None:
    """What reaches the environment is the episode's, and nothing more."""
    pool = FakePool(lambda slot, kind, argument: reset_result(slot, "p"))
    environments = Environments(pool, slots=2)

    environments.reset(0, EPISODE)
    environments.reset(1, Episode(group=0, seed=8, is_evaluation=True, sample_seed=1))

    assert pool.calls == [
        (0, "reset", {"seed": 7, "row_index": 3}),
        (1, "reset", {"seed": 8, "evaluation": True}),
    ]
    assert environments.replies_due == 2


def test_a_failure_is_a_reply() -> None:
    """An error of the slot comes out as words, not as an exception."""
    pool = FakePool(lambda slot, kind, argument: failed(slot, kind, EnvironmentFailed("boom")))
    environments = Environments(pool, slots=1)
    environments.reset(0, EPISODE)

    (reply,) = environments.poll(0.0)

    assert reply.failure == "EnvironmentFailed: boom"
    assert environments.replies_due == 0


def test_late_replies_of_an_abandoned_slot_count_for_nothing() -> None:
    """What was owed when the slot was abandoned is dropped; the next episode's reply is not."""
    pool = FakePool(
        lambda slot, kind, argument: (
            step_result(slot, "late", 1.0) if kind == "step" else reset_result(slot, "new")
        )
    )
    environments = Environments(pool, slots=1)
    pool.silent.add(0)
    environments.step(0, "answer")
    environments.abandon(0)
    assert environments.replies_due == 0
    environments.reset(0, EPISODE)
    pool.release(0, "step", "answer")
    pool.release(0, "reset", {})

    (reply,) = environments.poll(0.0)

    assert reply.text == "new"


def test_the_token_comes_from_its_file(tmp_path: Path) -> None:
    """Blanks around it do not count; a missing or empty file is refused."""
    path = tmp_path / "token"
    path.write_text("  secret\n")
    assert read_token(Environment(env_token_file=str(path))) == "secret"
    assert read_token(Environment()) is None
    path.write_text("\n")
    with pytest.raises(SetupError, match="is empty"):
        read_token(Environment(env_token_file=str(path)))
    with pytest.raises(SetupError, match="env_token_file"):
        read_token(Environment(env_token_file=str(tmp_path / "none")))
