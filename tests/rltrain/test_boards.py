"""Where numbers go beside the run's own files, with the real packages."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import wandb
from records import rollout, step_record
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rltrain import boards as boards_module
from rltrain.boards import TensorBoard, check_wandb, open_boards
from rltrain.errors import SetupError
from rltrain.metrics import RunLog

pytestmark = pytest.mark.train


def read_tensorboard(folder: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_has_each_step_once_after_a_resume(tmp_path: Path) -> None:
    """What was logged after the checkpoint is purged; texts and counts are no scalars."""
    for values, resumed in (({1: 0.25, 2: 0.5}, 0), ({2: 0.75}, 1)):
        board = TensorBoard(tmp_path / "events", resumed_step=resumed)
        with RunLog(tmp_path, resumed_step=resumed, boards=[board]) as log:
            for step, reward in values.items():
                log.step(step_record(step=step, reward_mean=reward, verdicts={"AC": 1}))
                log.samples(step, [rollout(1.0)], is_evaluation=False)

    assert read_tensorboard(tmp_path / "events", "train/reward_mean") == [(1, 0.25), (2, 0.75)]


def test_wandb_gets_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offline run of the real W&B holds the names of what was logged."""
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    options = {"project": "envhost-tests", "mode": "offline"}
    folder = tmp_path / "run-7"
    folder.mkdir()

    with RunLog(folder, boards=open_boards(folder, options, resumed_step=0)) as log:
        log.step(step_record(step=1, reward_mean=0.25))
    wandb.teardown()  # waits for W&B's own process, which writes after a run has finished

    (written,) = folder.glob("wandb/offline-run-*-run-7/run-run-7.wandb")
    assert b"train/reward_mean" in written.read_bytes()
    assert read_tensorboard(folder / "tensorboard", "train/reward_mean") == [(1, 0.25)]


def test_wandb_says_what_it_does_not_know(tmp_path: Path) -> None:
    """A wrong option is one line that names the key."""
    with pytest.raises(SetupError, match=r"training\.wandb: .*colour"):
        open_boards(tmp_path, {"colour": "red", "mode": "offline"}, resumed_step=0)


def test_wandb_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for without the package: refused with the command; not asked for: not looked for."""
    monkeypatch.setattr(boards_module.importlib.util, "find_spec", lambda name: None)

    check_wandb(None)
    with pytest.raises(SetupError, match="pip install wandb"):
        check_wandb({"project": "p"})
