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
    first = step_record(step=1, turns=8, reward_mean=0.5, solved=0.25, step_seconds=70)
    second = step_record(step=2, turns=16, reward_mean=None, solved=None, step_seconds=50)
    with Display(planned_steps=3, planned_turns=24) as display:
        display.phase("sampling")
        display.step(first)
        display.step(second)
        display.evaluation(evaluation(step=2, reward_mean=0.5, solved=0.5, unscored=1))

    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step 1/3  reward 0.500 ▁  solved 25%  left 2m20s")
    assert lines[1].startswith("step 2/3  reward – ▁  solved –  left 1m00s")
    assert lines[2].startswith("evaluation after step 2: reward 0.500  solved 50.0%")
    assert "(4 episodes, 1 not scored," in lines[2]


def test_episodes_that_end_early_make_more_steps(capsys: pytest.CaptureFixture[str]) -> None:
    """The planned steps follow from the turns that a step takes, not from the most it may."""
    with Display(planned_steps=3, planned_turns=24) as display:
        display.step(step_record(step=1, turns=4, step_seconds=1))

    assert capsys.readouterr().out.startswith("step 1/6  ")


def test_a_log_names_what_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    """Of the phases, a log has those that are asked for alone."""
    with Display(planned_steps=1, planned_turns=8) as display:
        display.phase("sampling")
        display.phase("evaluating", in_log=True)

    assert capsys.readouterr().out == "evaluating\n"


def test_lines_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters and Rich's own markup in a line are shown as they are."""
    with Display(planned_steps=1, planned_turns=8) as display:
        display.line("a\x1b[2Jb [bold]c[/bold]")

    assert capsys.readouterr().out == "a\\x1b[2Jb [bold]c[/bold]\n"
