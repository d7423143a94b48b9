"""The quickstart's last words: the curve, the files, and an honest verdict on the learning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import show_run


def write_run(folder: Path, *solved: float | None) -> Path:
    """Write the records of a run with these evaluations."""
    steps = [{"step": 1, "reward_mean": 0.25}, {"step": 2, "reward_mean": None}]
    evaluations = [{"step": 0, "episodes": 112, "solved": rate} for rate in solved]
    for name, records in (("metrics", steps), ("evaluations", evaluations)):
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines)
    return folder


def test_a_rise_as_expected_is_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The verdict names both rates, the problems and the rise."""
    assert show_run.show(write_run(tmp_path, 0.25, 0.5, 0.75), 0.3)

    told = capsys.readouterr().out
    assert "25.0% before, 75.0% after (112 problems" in told
    assert "It learned: +0.50." in told
    assert f"run folder: {tmp_path}" in told


def test_a_smaller_rise_is_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A rise below the expected one is told as what it is."""
    assert not show_run.show(write_run(tmp_path, 0.5, 0.75), 0.3)

    assert "did NOT learn as expected: a rise of +0.25" in capsys.readouterr().out


@pytest.mark.parametrize("solved", [(), (0.5,), (None, 0.5), (0.5, None)])
def test_an_unknown_rise_is_failure(tmp_path: Path, solved: tuple[float | None, ...]) -> None:
    """Without two scored evaluations nobody knows, and that is no success."""
    assert not show_run.show(write_run(tmp_path, *solved), 0.3)


def test_the_curve_has_a_dot_a_step() -> None:
    """A reward stands at its height in its column; a step without one, or below 0, has no dot."""
    lines = show_run.plot([0.0, 1.0, None, -0.1, 0.5]).splitlines()

    assert lines[0] == "1.00 ┤   ●"
    assert lines[6] == "0.50 ┤         ●"
    assert lines[12] == "0.00 ┤ ●"
    assert sum(line.count("●") for line in lines) == 3
    assert lines[-1].strip() == "training step 1 to 5"
