"""What the person at the terminal sees: a live line while a run works, plain lines in a log.

Owns the words and the drawing; knows records, no tensors. Rich draws only on a terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Column
from rich.text import Text

from .metrics import EvaluationRecord, StepRecord
from .text import one_line

__all__ = ["Display", "duration", "sparkline"]

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float | None], *, width: int = 24) -> str:
    """Return the last values as a row of bars, from the least to the greatest of them."""
    known = [value for value in values if value is not None][-width:]
    if not known:
        return ""
    low, span = min(known), (max(known) - min(known)) or 1.0
    return "".join(_BARS[round((value - low) / span * (len(_BARS) - 1))] for value in known)


def duration(seconds: float) -> str:
    """Return a time for people: `8s`, `3m05s`, `2h07m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _number(value: float | None, form: str = ".3f") -> str:
    return "–" if value is None else format(value, form)


class Display:
    """Progress of a run.

    Args:
        planned_steps: Training steps, as far as is known before: episodes may end early.
        planned_turns: Environment turns; they decide when the run ends.
        done_steps: Steps done before, in a run that is resumed.
        done_turns: Turns of those.
        is_silent: Show nothing: another rank does.
    """

    def __init__(
        self,
        *,
        planned_steps: int,
        planned_turns: int,
        done_steps: int = 0,
        done_turns: int = 0,
        is_silent: bool = False,
    ) -> None:
        self._steps_before = done_steps
        self._console = Console(file=sys.stdout, highlight=False, soft_wrap=True, quiet=is_silent)
        self._rewards: list[float | None] = []
        self._is_gap_shown = False
        self._planned_turns = planned_turns
        self._turns_before = done_turns
        self._step_seconds = 0.0
        self._live: Progress | None = None
        if self._console.is_terminal and not is_silent:
            self._live = Progress(
                SpinnerColumn(),
                BarColumn(bar_width=20),
                TextColumn("{task.completed}/{task.total}"),
                TextColumn("{task.fields[phase]}", markup=False, style="dim"),
                TextColumn(
                    "{task.description}",
                    markup=False,
                    table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
                ),
                console=self._console,
                transient=True,
                expand=True,
            )
            self._task = self._live.add_task(
                "", total=planned_steps, completed=done_steps, phase="starting"
            )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def line(self, text: str) -> None:
        """Show a line that stays."""
        self._console.print(Text(one_line(text)))

    def phase(self, name: str, *, in_log: bool = False) -> None:
        """Say what is being done now; where there is no terminal, only if it belongs in a log."""
        if self._live is not None:
            self._live.update(self._task, phase=name)
        elif in_log:
            self.line(name)

    def step(self, record: StepRecord) -> None:
        """Show a training step, and the time left at the pace of the steps so far."""
        self._step_seconds += record.step_seconds
        self._rewards.append(record.reward_mean)
        if record.memory_bytes and record.policy_gap is not None and not self._is_gap_shown:
            self._is_gap_shown = True
            self.line(f"policy gap on the first batch: {record.policy_gap:.1e} a token")
        summary = (
            f"reward {_number(record.reward_mean)} {sparkline(self._rewards)}  "
            f"solved {_number(record.solved, '.0%')}  left {self._left(record.turns)}  "
            f"length {_number(record.completion_tokens, '.0f')}  "
            f"generate {record.generate_seconds:.1f}s score {record.score_seconds:.1f}s "
            f"train {record.train_seconds:.1f}s  "
            f"{_number(record.generated_tokens_per_second, '.0f')} tok/s"
        )
        planned = record.step + self._steps_left(record)
        if self._live is None:
            self.line(f"step {record.step}/{planned}  {summary}")
        else:
            self._live.update(self._task, completed=record.step, total=planned, description=summary)

    def evaluation(self, record: EvaluationRecord) -> None:
        """Show an evaluation."""
        unscored = f", {record.unscored} not scored" if record.unscored else ""
        self.line(
            f"evaluation after step {record.step}: reward {_number(record.reward_mean)}  "
            f"solved {_number(record.solved, '.1%')}  ({record.episodes} episodes{unscored}, "
            f"{record.seconds:.1f}s)"
        )

    def _steps_left(self, record: StepRecord) -> int:
        """Return the steps to come if they take as many turns as those so far, on average."""
        steps, turns = record.step - self._steps_before, record.turns - self._turns_before
        return -(-max(0, self._planned_turns - record.turns) * steps // max(1, turns))

    def _left(self, turns: int) -> str:
        pace = self._step_seconds / max(1, turns - self._turns_before)
        return duration(pace * max(0, self._planned_turns - turns))
