"""Where a run's numbers go beside its own files: TensorBoard, and W&B where the manifest asks.

Owns what each takes; which numbers there are is `metrics`'s work.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from .errors import SetupError

__all__ = ["Board", "TensorBoard", "WeightsAndBiases", "check_wandb", "open_boards"]


class Board(Protocol):
    """Takes numbers by name and step."""

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Take the numbers of one training step or evaluation."""

    def close(self) -> None:
        """Write out what is left."""


class TensorBoard:
    """Event files in a folder. A resumed run's events from after its checkpoint are dropped."""

    def __init__(self, folder: Path, *, resumed_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Untyped, as its package is.
        make: Any = SummaryWriter
        self._writer = make(str(folder), purge_step=resumed_step + 1 if resumed_step else None)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Add the numbers as scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class WeightsAndBiases:
    """A W&B run in a folder.

    Args:
        options: What the manifest hands to `wandb.init`: project, name, entity, mode, …
        folder: The run's folder, which keeps W&B's id of the run.
        is_resumed: Go on in the run of that id.

    Raises:
        SetupError: W&B refuses the options, or does not let us in.
    """

    def __init__(self, options: Mapping[str, Any], folder: Path, *, is_resumed: bool) -> None:
        import wandb

        # Not the folder's name, which another run of the same project may have too.
        kept = folder / "wandb-run-id"
        known: dict[str, Any] = {"dir": str(folder), "name": folder.name}
        if is_resumed and kept.exists():
            known |= {"id": kept.read_text(), "resume": "allow"}
        settings = wandb.Settings(console="off", quiet=True)
        try:
            self._run = wandb.init(**{**known, "settings": settings, **options})
        except (TypeError, ValueError, wandb.errors.Error) as error:
            raise SetupError(f"training.wandb: {str(error).strip().splitlines()[0]}") from error
        kept.write_text(self._run.id)
        # Evaluations have steps of their own, so W&B's single counter does not fit.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Log the numbers beside their step."""
        self._run.log({"step": step, **values})

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


def check_wandb(options: Mapping[str, Any] | None) -> None:
    """Refuse a manifest that asks for W&B where it is not installed.

    Raises:
        SetupError: With the command that installs it.
    """
    if options is not None and importlib.util.find_spec("wandb") is None:
        raise SetupError("training.wandb: not installed: pip install wandb, or leave the key out")


def open_boards(
    folder: Path, wandb: Mapping[str, Any] | None, *, resumed_step: int
) -> tuple[Board, ...]:
    """Return the boards of a run, which close with its log.

    Raises:
        SetupError: W&B is asked for and refuses.
    """
    boards: list[Board] = []
    if importlib.util.find_spec("tensorboard") is not None:
        boards.append(TensorBoard(folder / "tensorboard", resumed_step=resumed_step))
    if wandb is not None:
        boards.append(WeightsAndBiases(wandb, folder, is_resumed=resumed_step > 0))
    return tuple(boards)
