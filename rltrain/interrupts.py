"""Ctrl-C and SIGTERM: the first lets the training step end, the second ends the run at once."""

from __future__ import annotations

import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["StopRequest"]


class StopRequest:
    """Whether the user has asked the run to stop; catches the signals inside its context.

    Args:
        is_silent: Say nothing about it: another rank does.
    """

    def __init__(self, *, is_silent: bool = False) -> None:
        self.is_requested = False
        self._is_silent = is_silent
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
        if self._is_silent:
            return
        sys.stderr.write("\nstopping after this training step; again to stop at once\n")
