"""Loading problems, their splits, and the rows that seeds mean."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envhost.errors import ConfigError, ProtocolError
from envhost.judge.loading import load_problems
from envhost.judge.problems import Problem, ProblemSet

Write = Callable[..., str]
TESTS = {"inputs": ["1\n"], "outputs": ["1\n"]}

ROWS_461 = [435, 240, 295, 320, 137, 113]
ROWS_10_TEST = [5, 9, 2, 1, 7, 8]
ROWS_10000 = [2875, 3667, 9373, 9277, 9399, 7189]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes rows as a JSON-lines file and returns its path."""

    def to_file(*rows: Any) -> str:
        path = tmp_path / "problems.jsonl"
        lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return to_file


def row(number: int, **more: Any) -> dict[str, Any]:
    """Return a row with a text of its own."""
    return {"problem": f"problem {number}", "tests": json.dumps(TESTS)} | more


def of_size(size: int, seed: int = 0) -> ProblemSet:
    """Return a set of empty problems."""
    rows = tuple(Problem(problem_id=str(n), text="", tests=()) for n in range(size))
    return ProblemSet(name="some", training=rows, evaluation=rows, report="", seed=seed)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
def test_seeds_reach_every_row(size: int) -> None:
    """As many neighbouring seeds as there are rows give every row once."""
    problems = of_size(size)
    for split in ("train", "test"):
        rows = [problems.row_of_seed(split, seed) for seed in range(-5, size - 5)]
        assert sorted(rows) == list(range(size))


def test_rows_of_seeds_are_fixed_for_good() -> None:
    """A seed means the same row in every process and release."""
    assert [of_size(461).row_of_seed("train", seed) for seed in range(6)] == ROWS_461
    assert [of_size(10).row_of_seed("test", seed) for seed in range(6)] == ROWS_10_TEST
    assert [of_size(10**4, seed=7).row_of_seed("train", seed) for seed in range(6)] == ROWS_10000
    assert of_size(461).row_of_seed("train", 461 + 5) == ROWS_461[5]


@pytest.mark.parametrize("number", [-1, 3, 10**30])
def test_row_out_of_range(number: int) -> None:
    """A row that is not there is the client's fault, and the message says what there is."""
    with pytest.raises(ProtocolError, match="expected 0 to 2 in the test split"):
        of_size(3).check_row("test", number)


def test_splits_are_disjoint(write: Write) -> None:
    """No text is in both splits, however often and however spaced it comes."""
    rows = [row(n % 200, problem=f"problem{' ' * (1 + n // 200)}{n % 200}") for n in range(600)]
    problems = load_problems(write(*rows), evaluation_fraction=0.3)
    texts = [
        {" ".join(one.text.split()) for one in split}
        for split in (problems.training, problems.evaluation)
    ]
    assert not texts[0] & texts[1]
    assert len(texts[0]) + len(texts[1]) == 200
    assert 30 < len(texts[1]) < 90


def test_a_split_column_decides(write: Write) -> None:
    """Where the data set has splits, they are its own."""
    problems = load_problems(write(row(1, split="train"), row(2, split="validation")))
    assert [one.text for one in problems.training] == ["problem 1"]
    assert [one.text for one in problems.evaluation] == ["problem 2"]


def test_broken_rows_are_dropped_and_counted(write: Write) -> None:
    """What cannot be judged is not served, and the report says why."""
    problems = load_problems(
        write(
            row(0, split="train"),
            row(1, tests="{"),
            row(2, tests="{}"),
            row(3, tests=json.dumps({"inputs": ["1"], "outputs": []})),
            {"tests": TESTS},
        )
    )
    assert len(problems.training) == 1
    assert "dropped 4 rows" in problems.report
    assert "1 with unequal numbers of inputs and outputs" in problems.report


def test_columns(write: Write) -> None:
    """Tests, function name, checker and solutions are read, as JSON text or as JSON."""
    tests = {"inputs": [[1, [2]]], "outputs": [3], "fn_name": "add"}
    given = row(
        0, tests=tests, checker="x", solutions=["a"], wrong_solutions='["b"]', split="train"
    )
    (problem,) = load_problems(write(given)).training
    assert problem.tests[0].input == [1, [2]]
    assert problem.tests[0].expected == 3
    assert (problem.fn_name, problem.checker) == ("add", "x")
    assert (problem.solutions, problem.wrong_solutions) == (("a",), ("b",))
    assert problem.problem_id == "problems.jsonl/0"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["{"], "line 1: expected JSON"),
        (["[]"], "line 1: expected a JSON object"),
        ([], "nothing is left to serve"),
    ],
)
def test_unusable_files(write: Write, rows: list[str], message: str) -> None:
    """A file that cannot be served is one clear error."""
    with pytest.raises(ConfigError, match=message):
        load_problems(write(*rows))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bundled:nothing", "expected one of bundled:classics, bundled:lists"),
        ("nothing", "expected bundled:NAME, OWNER/NAME of the hub, a .jsonl or .parquet file"),
        ("nothing.jsonl", "no such file"),
    ],
)
def test_unknown_data_sets(name: str, message: str) -> None:
    """A data set that is not there is one clear error that says what there is."""
    with pytest.raises(ConfigError, match=message):
        load_problems(name)
