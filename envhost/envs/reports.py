"""What is told about seeds: in each reset's metadata, and once in the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..telemetry import log_event

__all__ = ["SeedReport", "reset_metadata"]


class SeedReport:
    """Say once for a server that its environment takes no seed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._takes_seed = True
        self._is_told = False

    def learn(self, *, takes_seed: bool) -> None:
        """Take down what the environment's reset takes."""
        self._takes_seed = takes_seed

    def notes(self) -> tuple[str, ...]:
        """Return the note for the server's start."""
        if self._takes_seed:
            return ()
        return ("seeds: its reset takes none, so that sessions of one seed may differ",)

    def note_reset(self, options: Mapping[str, Any]) -> None:
        """Log that a seed was of no use, the first time that one is given."""
        if self._takes_seed or self._is_told or options.get("seed") is None:
            return
        self._is_told = True
        log_event(
            "seed.ignored",
            logging.WARNING,
            environment=self._name,
            hint="its reset takes no seed: sessions of one seed may differ",
        )


def reset_metadata(
    metadata: Mapping[str, Any], options: Mapping[str, Any], *, takes_seed: bool
) -> dict[str, Any]:
    """Return a reset's metadata with what was asked for, and whether a seed was of use."""
    asked = {name: options[name] for name in ("seed", "row_index") if options.get(name) is not None}
    if takes_seed:
        return {**asked, **metadata}
    asked.pop("seed", None)
    return {**asked, **metadata, "takes_seed": False}
