"""What the person at the terminal sees."""

from __future__ import annotations

import pytest
from records import step_record

from rltrain.metrics import EvaluationRecord
from rltrain.progress import Display, duration, sparkline


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([None], ""), ([1.0], "▁"), ([0.0, None, 0.5, 1.0], "▁▅█"), ([0.0] * 50, "▁" * 24)],
)
def test_a_sparkline_goes_from_least_to_greatest(values: list[float | None], bars: str) -> None:
    """Unknown values are left out; only the last ones are drawn."""
    assert sparkline(values) == bars


@pytest.mark.parametrize(("seconds", "text"), [(8.4, "8s"), (185, "3m05s"), (7620, "2h07m")])
def test_durations_are_for_people(seconds: float, text: str) -> None:
    """Seconds, minutes or hours, two units at most."""
    assert duration(seconds) == text


def evaluation(**values: object) -> EvaluationRecord:
    known = {"reward_mean": None, "reward_std": None, "solved": None, "completion_tokens": None}
    zeros = {"step": 0, "episodes": 4, "unscored": 0, "cut_share": None, "seconds": 1.0}
    return EvaluationRecord(**{**known, **zeros, "verdicts": {}, "failures": {}, **values})  # type: ignore[arg-type]


def test_a_log_gets_one_plain_line_a_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is no terminal nothing is redrawn, and no colour is written."""
    with Display(planned_steps=2) as display:
        display.phase("sampling", share_done=0.0)
        display.step(step_record(step=1, reward_mean=0.5, solved=0.25), share_done=0.5)
        display.step(step_record(step=2, reward_mean=None, solved=None), share_done=1.0)
        display.evaluation(evaluation(step=2, reward_mean=0.5, solved=0.5, unscored=1))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 1/2  reward 0.500 ▁  solved 25%  left 0s")
    assert lines[1].startswith("step 2/2  reward – ▁  solved –")
    assert lines[2].startswith("evaluation after step 2: reward 0.500  solved 50.0%")
    assert "(4 episodes, 1 not scored," in lines[2]


def test_lines_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters and Rich's own markup in a line are shown as they are."""
    with Display(planned_steps=1) as display:
        display.line("a\x1b[2Jb [bold]c[/bold]")

    assert capsys.readouterr().out == "a\\x1b[2Jb [bold]c[/bold]\n"
