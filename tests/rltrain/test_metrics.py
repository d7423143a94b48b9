"""Records and their files."""

from __future__ import annotations

import json
from pathlib import Path

from attrs import evolve
from records import rollout, step_record

from rltrain.metrics import RolloutSummary, RunLog, read_records, reward_spread
from rltrain.rollout import Turn


def test_a_summary_leaves_unscored_rollouts_out() -> None:
    """Means are over the scored ones; what was not scored is counted with its reason."""
    cut = evolve(rollout(0.0), turns=(Turn(completion="a", finish="length", verdict="WA"),))

    summary = RolloutSummary.of(
        [rollout(1.0), cut, rollout(None, "EnvironmentFailed: a"), rollout(None)], max_reward=1.0
    )

    assert (summary.episodes, summary.unscored) == (4, 2)
    assert (summary.reward_mean, summary.reward_std, summary.solved) == (0.5, 0.5, 0.5)
    assert (summary.reward_min, summary.reward_max) == (0.0, 1.0)
    assert summary.completion_tokens == 3
    assert summary.cut_share == 0.5
    assert summary.verdicts == {"AC": 1, "WA": 1}
    assert summary.failures == {"EnvironmentFailed": 1, "SessionLost": 1}


def test_solved_without_a_maximum_is_a_reward_above_zero() -> None:
    """Partial rewards count as solved only where no maximum is given."""
    assert RolloutSummary.of([rollout(0.5), rollout(0.0)], max_reward=None).solved == 0.5
    assert RolloutSummary.of([rollout(0.5), rollout(0.0)], max_reward=1.0).solved == 0.0


def test_nothing_scored_has_no_mean() -> None:
    """None, not 0, where there is nothing to average."""
    summary = RolloutSummary.of([rollout(None)], max_reward=1.0)

    assert summary.reward_mean is None
    assert summary.solved is None


def test_the_spread_ends_where_rewards_end() -> None:
    """A mean of 0.9 with a deviation of 0.3 does not reach 1.2 where no reward is above 1."""
    record = {"reward_mean": 0.9, "reward_std": 0.3, "reward_min": 0.0, "reward_max": 1.0}

    low, high = reward_spread(record)

    assert (round(low, 9), high) == (0.6, 1.0)


def test_a_resumed_log_has_each_step_once(tmp_path: Path) -> None:
    """Lines after the checkpoint's step, and a line cut off by a kill, are dropped."""
    with RunLog(tmp_path) as log:
        for step in (1, 2, 3):
            log.step(step_record(step=step))
            log.samples(step, [rollout(1.0)], is_evaluation=False)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')

    with RunLog(tmp_path, resumed_step=2) as log:
        log.step(step_record(step=3))

    assert [record["step"] for record in read_records(tmp_path / "metrics.jsonl")] == [1, 2, 3]
    assert [record["step"] for record in read_records(tmp_path / "samples.jsonl")] == [1, 2]


def test_every_line_is_on_the_disk_at_once(tmp_path: Path) -> None:
    """What was logged survives a kill."""
    with RunLog(tmp_path) as log:
        log.step(step_record(step=1, reward_mean=0.25))

        (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
        assert json.loads(line)["reward_mean"] == 0.25
