"""Checkpoints: the adapter, the optimiser and the counters, on disk as a whole or not at all.

Every random choice of a run is a function of its seed and the step, so no generator's state has to
be kept: a run that resumes takes the same steps, to the bit, as one that never stopped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from attrs import asdict, evolve, frozen

from .disk import flush, flush_tree
from .engine import Engine
from .errors import SetupError
from .policy import Policy, read_adapter
from .ranks import Ranks

__all__ = ["Checkpoints", "RunState"]


@frozen(kw_only=True)
class RunState:
    """Where a run stands after a training step.

    `turns` is in the manifest's unit, environment turns summed over rollouts; `evaluated_step` is
    the step after which it was last evaluated; `best_score` is the highest mean reward of an
    evaluation, reached after `best_step` steps.
    """

    step: int = 0
    turns: int = 0
    evaluated_step: int | None = None
    best_score: float | None = None
    best_step: int | None = None

    def evaluated(self, score: float | None) -> RunState:
        """Return the state with an evaluation at this step; None where nothing was scored."""
        state = evolve(self, evaluated_step=self.step)
        if score is None or (self.best_score is not None and score <= self.best_score):
            return state
        return evolve(state, best_score=score, best_step=self.step)


class Checkpoints:
    """The checkpoints of one run: folders `step-000010`, the newest few and the best.

    Args:
        folder: Where they are; made at the first save. The first rank's disk is enough.
        ranks: The processes of the run; the first writes and reads for all.
        keep: How many of the newest are kept.
    """

    def __init__(self, folder: Path, ranks: Ranks, *, keep: int = 2) -> None:
        self._folder = folder
        self._ranks = ranks
        self._keep = keep

    def steps(self) -> list[int]:
        """Return the steps that have a whole checkpoint, the oldest first."""
        if not self._folder.is_dir():
            return []
        found = [re.fullmatch(r"step-(\d+)", path.name) for path in self._folder.iterdir()]
        return sorted(int(match[1]) for match in found if match)

    def save(self, state: RunState, policy: Policy, engine: Engine) -> Path:
        """Write a checkpoint and drop old ones; a kill at any moment leaves whole ones only.

        What is written does not depend on how many ranks there are, nor on the engine.
        """
        optimiser = engine.state_dict()
        if self._ranks.is_leader:
            self._write(state, policy, optimiser)
        return self._path(state.step)

    def _write(self, state: RunState, policy: Policy, optimiser: dict[str, Any]) -> None:
        final = self._path(state.step)
        partial = self._folder / f".partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        policy.save_adapter(partial / "adapter")
        torch.save(optimiser, partial / "optimiser.pt")
        (partial / "state.json").write_text(json.dumps(asdict(state), indent=2) + "\n")
        flush_tree(partial)
        if final.exists():  # the same step, saved again: the same bytes
            shutil.rmtree(final)
        partial.rename(final)
        flush(self._folder)
        self._drop_old(state)

    def load(self, policy: Policy, engine: Engine) -> RunState:
        """Take over the newest checkpoint; return where the run stood.

        Raises:
            SetupError: There is none, or it does not fit the model.
        """
        path, adapter, optimiser, state = self._ranks.from_leader(self._read)
        try:
            policy.set_adapter(adapter)
            engine.load_state_dict(optimiser)
        except (ValueError, RuntimeError) as error:
            raise _unusable(path, error) from error
        return state

    def _read(self) -> tuple[Path, dict[str, Any], dict[str, Any], RunState]:
        steps = self.steps()
        if not steps:
            raise SetupError(f"no checkpoint in {self._folder}: nothing to resume from")
        path = self._path(steps[-1])
        try:
            adapter = read_adapter(path / "adapter")
            optimiser: dict[str, Any] = torch.load(
                path / "optimiser.pt", map_location="cpu", weights_only=True
            )
            content: dict[str, Any] = json.loads((path / "state.json").read_text())
            return path, adapter, optimiser, RunState(**content)
        except (OSError, ValueError, RuntimeError, TypeError) as error:
            raise _unusable(path, error) from error

    def _path(self, step: int) -> Path:
        return self._folder / f"step-{step:06d}"

    def _drop_old(self, state: RunState) -> None:
        for step in self.steps()[: -self._keep]:
            if step != state.best_step:
                shutil.rmtree(self._path(step))


def _unusable(path: Path, error: Exception) -> SetupError:
    return SetupError(f"checkpoint {path}: cannot be loaded: {error}")
