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


def test_wandb_gets_the_numbers(tmp_path: Path) -> None:
    """An offline run of the real W&B holds what was logged; a resumed run goes on in the same."""
    options = {"project": "envhost-tests", "mode": "offline"}
    ids = []
    for resumed_step in (0, 1, 0):
        boards = open_boards(tmp_path, options, resumed_step=resumed_step)
        with RunLog(tmp_path, resumed_step=resumed_step, boards=boards) as log:
            log.step(step_record(step=resumed_step + 1, reward_mean=0.25))
        ids.append((tmp_path / "wandb-run-id").read_text())
    wandb.teardown()  # waits for W&B's own process, which writes after a run has finished

    assert ids[0] == ids[1] != ids[2]
    written = list(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))
    assert {path.stem.removeprefix("run-") for path in written} == set(ids)
    assert all(b"train/reward_mean" in path.read_bytes() for path in written)


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
