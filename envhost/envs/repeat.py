"""Repeat the colours: a small game of several turns, to see a model learn to play turns.

    python -m envhost serve envhost.envs.repeat:Repeat --env-config '{"turns": 3}'

Each turn the environment names one more colour, and the answer must name all of them so far, in
their order. A row is a sequence of colours; one row in eight is held out.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

from ..environment import Observation, StepResult, text_observation
from ..errors import ConfigError, EpisodeError, ProtocolError

__all__ = ["COLOURS", "Repeat"]

COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "pink")
_MAX_TURNS = 5
_HELD_OUT = 8


class Repeat:
    """One session's game.

    The reward of a turn is 1/turns where the answer is right, else 0 and the episode ends: an
    episode's rewards add up to the share of its turns that were played.

    Args:
        turns: Colours of a sequence, 1 to 5.

    Raises:
        ConfigError: The number is out of its bounds.
    """

    def __init__(self, *, turns: int = 3) -> None:
        if not 1 <= turns <= _MAX_TURNS:
            raise ConfigError(f"turns: expected 1 to {_MAX_TURNS}, got {turns}")
        self._turns = turns
        self._colours: tuple[str, ...] = ()
        self._said = 0

    async def reset(
        self, *, seed: int | None = None, row_index: int | None = None, evaluation: bool = False
    ) -> Observation:
        """Begin a game; the same seed or row is the same sequence everywhere."""
        rows = _rows(self._turns, evaluation)
        if row_index is None:
            if seed is None:
                seed = 0 if evaluation else Random().getrandbits(31)
            row_index = seed % len(rows)
        if not 0 <= row_index < len(rows):
            raise ProtocolError(
                "VALIDATION_ERROR", f"row_index: expected 0 to {len(rows) - 1}, got {row_index}"
            )
        self._colours, self._said = rows[row_index], 1
        return Observation(
            text_observation(f"repeat the colours: {self._colours[0]}"),
            {"problem_id": " ".join(self._colours), "row_index": row_index, "seed": seed},
        )

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        """Compare an answer with the colours so far."""
        if not self._said:
            raise EpisodeError("no game runs: reset first")
        wanted = self._colours[: self._said]
        is_right = tuple(str(action.get("message", "")).split()) == wanted
        is_over = not is_right or self._said == self._turns
        said = "right" if is_right else "wrong"
        metadata = {"verdict": "AC" if is_right else "WA", "turn": self._said}
        if not is_over:
            said = f"and {self._colours[self._said]}"
        self._said = 0 if is_over else self._said + 1
        return StepResult(
            observation=text_observation(said),
            reward=1 / self._turns if is_right else 0.0,
            terminated=is_over,
            metadata=metadata,
        )

    async def state(self) -> Mapping[str, Any]:
        """Return how many sequences there are."""
        return {
            "dataset_size": len(_rows(self._turns, False)),
            "evaluation_size": len(_rows(self._turns, True)),
        }

    async def close(self) -> None:
        """Nothing is held."""


@cache
def _rows(turns: int, evaluation: bool) -> list[tuple[str, ...]]:
    """Return the sequences of a split, in an order that is the same everywhere."""
    rows = list(itertools.product(COLOURS, repeat=turns))
    Random(turns).shuffle(rows)
    held_out = len(rows) // _HELD_OUT
    return rows[:held_out] if evaluation else rows[held_out:]
