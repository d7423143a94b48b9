"""`bundled:lists`: what the file holds, and that its tests tell right programs from wrong ones."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import make_lists
import pytest

DATA = make_lists.DEFAULT_OUTPUT
ROWS: list[dict[str, Any]] = [
    {**row, "tests": json.loads(row["tests"]), "solution": json.loads(row["solutions"])[0]}
    for row in map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
]
TRAINING = [row for row in ROWS if row["split"] == "train"]
HELD_OUT = [row for row in ROWS if row["split"] == "test"]
LONG = len(make_lists.LONG_LENGTHS)


def run(program: str, given: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a program prints, with Python's own `input` and `print`."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(given))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(program, {})
    return printed.getvalue()


def longest(tests: dict[str, list[str]]) -> list[tuple[str, str]]:
    """Return the tests that a judge with `max_tests` 4 runs."""
    pairs = zip(tests["inputs"], tests["outputs"], strict=True)
    return sorted(pairs, key=lambda pair: len(pair[0]))[-LONG:]


def test_the_file_is_what_its_generator_writes(tmp_path: Path) -> None:
    """Regenerating the data set gives identical bytes."""
    output = tmp_path / "lists.jsonl"

    subprocess.run([sys.executable, make_lists.__file__, "--output", output], check=True)

    assert output.read_bytes() == DATA.read_bytes()


def test_sizes() -> None:
    """There are 400 training and 112 held-out problems with 12 tests each."""
    assert (len(TRAINING), len(HELD_OUT)) == (400, 112)
    for row in ROWS:
        assert len(row["tests"]["inputs"]) == len(row["tests"]["outputs"]) == 12


def test_held_out_rows_are_disjoint_from_training_rows() -> None:
    """No text, no program, no test and no set of outputs stands in both splits."""
    for column in ("problem_id", "problem", "solution"):
        assert not {row[column] for row in TRAINING} & {row[column] for row in HELD_OUT}
    for split, other in ((TRAINING, HELD_OUT), (HELD_OUT, TRAINING)):
        theirs = {test for row in other for test in longest(row["tests"])}
        assert not any(test in theirs for row in split for test in longest(row["tests"]))


def test_no_two_problems_are_the_same() -> None:
    """Texts and programs are unique, and so is what a program does with common inputs."""
    random = Random(0)
    inputs = [make_lists.draw_numbers(random, length) for length in [*range(3, 15)] * 10]
    behaviours = {
        tuple(make_lists.result(make_lists.steps_of(row["problem"]), numbers) for numbers in inputs)
        for row in ROWS
    }

    assert len({row["problem"] for row in ROWS}) == len(ROWS)
    assert len({row["solution"] for row in ROWS}) == len(ROWS)
    assert len(behaviours) == len(ROWS)


def test_training_rows_hold_every_word_and_line_of_held_out_rows() -> None:
    """Nothing has to be guessed that the training rows never show."""
    for column, split in (("problem", str.split), ("solution", str.splitlines)):
        known = {part for row in TRAINING for part in split(row[column])}
        assert {part for row in HELD_OUT for part in split(row[column])} <= known


def test_every_step_is_common_in_training_rows() -> None:
    """Each step stands in at least ten training problems."""
    for step in (*make_lists.STEPS, *make_lists.LAST_STEPS):
        assert sum(step.sentence in row["problem"] for row in TRAINING) >= 10, step.sentence


def test_reference_solutions_pass_all_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every program prints what its tests expect."""
    for row in ROWS:
        for given, expected in zip(row["tests"]["inputs"], row["tests"]["outputs"], strict=True):
            assert run(row["solution"], given, monkeypatch) == expected, row["problem_id"]


def test_reference_solutions_are_programs() -> None:
    """A solution reads standard input and prints, as a process of its own."""
    for row in ROWS[::100]:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", row["solution"]],
            input=row["tests"]["inputs"][-1],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == row["tests"]["outputs"][-1]


def test_a_short_judgement_fails_programs_that_are_one_step_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one step left out or another in its place, the four longest tests do not all pass."""
    for row in ROWS[::16]:
        tests = longest(row["tests"])
        for steps in make_lists.one_step_off(make_lists.steps_of(row["problem"])):
            wrong = make_lists.program(steps)
            outputs = (run(wrong, given, monkeypatch) == expected for given, expected in tests)
            assert not all(outputs), (row["problem"], wrong)


def test_the_longest_tests_are_clear() -> None:
    """The four longest inputs are the same ones however ties are broken."""
    for row in ROWS:
        lengths = sorted(map(len, row["tests"]["inputs"]))
        assert lengths[-LONG - 1] < lengths[-LONG]
