"""Checkpoints on the disk: whole, few, and refused where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rltrain.checkpoint import Checkpoints, RunState  # noqa: E402
from rltrain.engine import Engine  # noqa: E402
from rltrain.errors import SetupError  # noqa: E402
from rltrain.manifest import Algorithm, LoraConfig, Network  # noqa: E402
from rltrain.policy import Policy, load_policy  # noqa: E402
from rltrain.ranks import Ranks  # noqa: E402

pytestmark = pytest.mark.train


def load(folder: Path, rank: int = 4) -> tuple[Policy, Engine]:
    policy = load_policy(
        Network(pretrained_model_name_or_path=str(folder), lora_config=LoraConfig(lora_r=rank)),
        Algorithm(),
        device=torch.device("cpu"),
    )
    return policy, Engine(policy.parameters(), Ranks(), max_grad_norm=1.0)


def take_step(policy: Policy, engine: Engine) -> None:
    engine.backward(sum((weight * 0.5).sum() for weight in policy.parameters()), is_last=True)
    engine.step(1e-2)


def weights(policy: Policy) -> Any:
    return torch.cat([weight.detach().flatten() for weight in policy.parameters()])


def test_a_loaded_checkpoint_goes_on_as_if_never_stopped(tiny_model: Path, tmp_path: Path) -> None:
    """Adapter, optimiser and counters come back: the next step is the same, bit for bit."""
    policy, engine = load(tiny_model)
    take_step(policy, engine)
    state = RunState(step=1, turns=8).evaluated(0.5)
    Checkpoints(tmp_path, Ranks()).save(state, policy, engine)

    again, its_engine = load(tiny_model)
    assert Checkpoints(tmp_path, Ranks()).load(again, its_engine) == state
    take_step(policy, engine)
    take_step(again, its_engine)

    assert torch.equal(weights(policy), weights(again))


def test_the_newest_and_the_best_are_kept(tiny_model: Path, tmp_path: Path) -> None:
    """Of five checkpoints the last two and the best one stay."""
    policy, engine = load(tiny_model)
    checkpoints = Checkpoints(tmp_path, Ranks(), keep=2)

    for step in range(1, 6):
        checkpoints.save(RunState(step=step, best_step=2, best_score=1.0), policy, engine)

    assert checkpoints.steps() == [2, 4, 5]


def test_a_save_that_dies_leaves_the_last_good_one(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was half written is no checkpoint, and the next save is not hindered by it."""
    policy, engine = load(tiny_model)
    checkpoints = Checkpoints(tmp_path, Ranks())
    checkpoints.save(RunState(step=1), policy, engine)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", die)
        with pytest.raises(KeyboardInterrupt):
            checkpoints.save(RunState(step=2), policy, engine)
    assert checkpoints.steps() == [1]

    checkpoints.save(RunState(step=2), policy, engine)
    assert checkpoints.steps() == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000001", "step-000002"]


def test_what_cannot_be_loaded_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    """No checkpoint, another adapter's, and a damaged file: each in words."""
    policy, engine = load(tiny_model)
    with pytest.raises(SetupError, match="nothing to resume from"):
        Checkpoints(tmp_path, Ranks()).load(policy, engine)
    folder = Checkpoints(tmp_path, Ranks()).save(RunState(step=1), policy, engine)

    with pytest.raises(SetupError, match="cannot be loaded"):
        Checkpoints(tmp_path, Ranks()).load(*load(tiny_model, rank=8))

    (folder / "state.json").write_text("{")
    with pytest.raises(SetupError, match="cannot be loaded"):
        Checkpoints(tmp_path, Ranks()).load(policy, engine)


def test_the_best_score_is_the_highest() -> None:
    """Later, lower and missing scores change nothing but the step of the evaluation."""
    state = RunState(step=3).evaluated(0.5)
    later = RunState(step=6, best_score=0.5, best_step=3)

    assert (state.best_score, state.best_step, state.evaluated_step) == (0.5, 3, 3)
    assert (later.evaluated(0.4).best_step, later.evaluated(0.4).evaluated_step) == (3, 6)
    assert later.evaluated(None).best_score == 0.5
    assert later.evaluated(0.6).best_step == 6
