"""Run by `test_ranks`, by hand or under torchrun: updates with each engine, into a file a rank.

usage: ranks_program.py MODEL CHECKPOINTS OUTPUT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from learner_rows import ROWS

from rltrain.checkpoint import Checkpoints, RunState
from rltrain.deepspeed_config import DeepSpeedSettings
from rltrain.engine import Engine, make_engine
from rltrain.errors import RltrainError, SetupError
from rltrain.learner import Learner
from rltrain.manifest import Algorithm, Network
from rltrain.policy import load_policy
from rltrain.ranks import Ranks, joined, launched

# Twelve rows in mini-batches of three, one row a micro-batch and rank: one rank takes three
# micro-batches, two ranks take two, in the second of which one of them has no row.
ALGORITHM = Algorithm(
    lr=1e-3, max_grad_norm=0.5, quantization="nf4", mini_batch_size=3, micro_batch_size_per_gpu=1
)
OPTIONS: dict[str, dict[str, Any] | None] = {
    "torch": None,
    "ZeRO 0": {"stage": 0},
    "ZeRO 1": {"stage": 1},
    "ZeRO 2": {"stage": 2},
    "ZeRO 2, offloaded": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": False},
    },
}


def engine_of(policy: Any, ranks: Ranks, zero: dict[str, Any] | None) -> Engine:
    settings = None
    if zero is not None:
        settings = DeepSpeedSettings(
            stage=zero["stage"], source="test", options={"zero_optimization": zero}
        )
    return make_engine(policy.parameters(), ranks, settings, max_grad_norm=ALGORITHM.max_grad_norm)


def new_policy(model: str) -> Any:
    return load_policy(
        Network(pretrained_model_name_or_path=model), ALGORITHM, device=torch.device("cpu")
    )


def weights(policy: Any) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in policy.parameters()]).clone()


def gradients(engine: Engine, policy: Any, zero: dict[str, Any] | None) -> list[Any]:
    """Return a list that each optimiser step adds its gradient to, as all ranks have it."""
    found: list[Any] = []
    step = engine.step

    def watched(lr: float) -> float:
        if zero is None or zero["stage"] == 0:
            parts = [weight.grad for weight in policy.parameters()]
        else:
            from deepspeed.utils import safe_get_full_grad

            parts = [safe_get_full_grad(weight) for weight in policy.parameters()]
        found.append(torch.cat([part.detach().flatten() for part in parts]).clone())
        return step(lr)

    engine.step = watched  # type: ignore[method-assign]
    return found


def updates(model: str, ranks: Ranks, name: str, folder: Path) -> dict[str, Any]:
    """Take two training steps of four optimiser steps, save, and one more."""
    policy, zero = new_policy(model), OPTIONS[name]
    started = time.monotonic()
    engine = engine_of(policy, ranks, zero)
    seconds = time.monotonic() - started
    is_watched = zero is None or "offload_optimizer" not in zero
    found = gradients(engine, policy, zero) if is_watched else []
    learner = Learner(policy, engine, ALGORITHM, ranks)
    figures = []
    for step in range(3):
        if step == 2:
            checkpoints = Checkpoints(folder / name, ranks)
            checkpoints.save(RunState(step=step), policy, engine)
        update = learner.update(ROWS, step=step, lr=ALGORITHM.lr)
        assert update is not None
        figures.append([update.loss, update.entropy, update.grad_norm, update.ratio.kl])
    return {
        "seconds": seconds,
        "figures": figures,
        "gradients": found,
        "weights": weights(policy),
        "state": engine.state_dict(),
    }


def resumed(model: str, ranks: Ranks, name: str, folder: Path) -> torch.Tensor:
    """Take the third training step from a checkpoint that a run of another size has written."""
    policy = new_policy(model)
    engine = engine_of(policy, ranks, OPTIONS[name])
    state = Checkpoints(folder, ranks).load(policy, engine)
    Learner(policy, engine, ALGORITHM, ranks).update(ROWS, step=state.step, lr=ALGORITHM.lr)
    return weights(policy)


def refused(model: str, ranks: Ranks, name: str) -> str:
    """Return what is said about a gradient that is not finite on the last rank alone."""
    policy = new_policy(model)
    engine, before = engine_of(policy, ranks, OPTIONS[name]), weights(policy)
    factor = float("nan") if ranks.rank == ranks.world_size - 1 else 1.0
    engine.backward(sum(w.sum() for w in policy.parameters()) * factor, is_last=True)
    try:
        engine.step(1e-3)
    except RltrainError as error:
        return f"{error}" if torch.equal(before, weights(policy)) else "the weights changed"
    return "nothing"


def agreements(ranks: Ranks) -> dict[str, Any]:
    """Return what the collectives give."""

    def fail() -> None:
        raise SetupError("no such thing")

    try:
        ranks.from_leader(fail)
        failure = ""
    except SetupError as error:
        failure = str(error)
    return {
        "own": list(ranks.own("abcde")),
        "gather": ranks.gather({"rank": ranks.rank}),
        "any": [ranks.any(ranks.rank == 1), ranks.any(False)],
        "total": ranks.total([ranks.rank + 0.5, 2.0]),
        "from_leader": ranks.from_leader(lambda: ranks.rank + 100),
        "failure": failure,
    }


def main(model: str, checkpoints: str, output: str) -> None:
    torch.set_num_threads(1)
    folder = Path(checkpoints)
    with joined(launched(), wait_seconds=120) as ranks:
        own = folder / str(ranks.world_size)
        others = sorted(path for path in folder.glob("*/torch") if path.parent != own)
        result = {
            "agreements": agreements(ranks),
            "updates": {name: updates(model, ranks, name, own) for name in OPTIONS},
            "refused": {name: refused(model, ranks, name) for name in OPTIONS},
            "resumed": {name: resumed(model, ranks, name, others[0]) for name in OPTIONS}
            if others
            else {},
        }
        torch.save(result, f"{output}-{ranks.world_size}-{ranks.rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
