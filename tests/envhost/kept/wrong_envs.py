"""Environments with one mistake each, and one with none, for the check."""

from __future__ import annotations

import random
import threading
import time
from typing import Any


class Right:
    """Guess a number."""

    def reset(self, seed: int | None = None) -> Any:
        self.number = random.Random(seed).randint(1, 100)
        return "Guess a number from 1 to 100.", {}

    def step(self, action: str) -> Any:
        return f"It is {self.number}.", float(action == str(self.number)), True, False, {}


class ThreeTuple(Right):
    def step(self, action: str) -> Any:
        return super().step(action)[:3]


class OneReturn(Right):
    def reset(self, seed: int | None = None) -> Any:
        super().reset(seed)


class ForeignInfo(Right):
    def step(self, action: str) -> Any:
        return *super().step(action)[:4], {"why": {"lock": threading.Lock}}


class NotANumber(Right):
    def step(self, action: str) -> Any:
        return "", float("nan"), True, False, {}


class Random(Right):
    def reset(self, seed: int | None = None) -> Any:
        super().reset(seed)
        return f"Guess {random.random()}", {}


class Clock(Right):
    """Begins alike in one session only."""

    def __init__(self) -> None:
        self.begun = time.monotonic_ns()

    def reset(self, seed: int | None = None) -> Any:
        super().reset(seed)
        return f"Guess {self.begun}", {}


class Unseeded(Right):
    def reset(self) -> Any:
        return super().reset()


class Shared(Right):
    """Keeps its number in the class."""

    def reset(self, seed: int | None = None) -> Any:
        Shared.number = random.Random(seed).randint(1, 100)
        return "Guess a number from 1 to 100.", {}


class Slow(Right):
    def reset(self, seed: int | None = None) -> Any:
        time.sleep(0.3)
        return super().reset(seed)


class Strict(Right):
    """Takes numbers only."""

    def step(self, action: str) -> Any:
        return "", float(int(action) == self.number), True, False, {}


class HangingClose(Right):
    def close(self) -> None:
        time.sleep(86400)


class HangingStep(Right):
    def step(self, action: str) -> Any:
        while True:
            pass


class Mute(Right):
    def reset(self, seed: int | None = None) -> Any:
        super().reset(seed)
        return {"board": [seed]}, {}


class Unbuilt(Right):
    def __init__(self) -> None:
        raise FileNotFoundError("no such simulator")
