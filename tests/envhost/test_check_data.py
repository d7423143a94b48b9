"""`python -m envhost check-data`: problems whose tests or checker cannot be right are listed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

Run = Callable[..., CompletedProcess[str]]

SUM = "print(sum(map(int, input().split())))"
TESTS = {"inputs": ["1 2\n", "10 20 30\n"], "outputs": ["3\n", "60\n"]}
MBPP = Path(__file__).parents[3] / "shared" / "data" / "mbpp.jsonl"

# What is wrong with a row, and what is said of it.
FAULTY: dict[str, tuple[dict[str, Any], str]] = {
    "wrong-output": (
        {"tests": TESTS | {"outputs": ["3\n", "61\n"]}, "solutions": [SUM, "print(3)"]},
        "no right solution gets AC: WA, WA",
    ),
    "weak-tests": (
        {"tests": {"inputs": ["1 2\n"], "outputs": ["3\n"]}, "wrong_solutions": ["x", "print(3)"]},
        "wrong solution 2 of 2 gets AC",
    ),
    "broken-checker": ({"solutions": [SUM], "checker": "import nothing"}, "cannot be judged: the"),
    "two-outputs": (
        {"tests": {"inputs": ["1\n", "1\n"], "outputs": ["1\n", "2\n"]}},
        "test 1: its input has another output in an earlier test",
    ),
    "no-tests": ({"tests": {"inputs": [], "outputs": []}}, "dropped: a row without tests"),
}


def write(path: Path, *rows: dict[str, Any]) -> str:
    whole = ({"problem": "add", "split": "train", "tests": TESTS} | row for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in whole))
    return str(path)


def test_good_problems_end_with_0(tmp_path: Path, run_envhost: Run) -> None:
    """Where every known program gets its verdict, only the counts are shown."""
    path = write(tmp_path / "good.jsonl", {"solutions": [SUM], "wrong_solutions": ["print(3)"]})

    done = run_envhost("check-data", path)

    assert done.stdout.splitlines()[1:] == [
        "right solutions: 1 AC",
        "wrong solutions: 1 WA",
        "0 problems cannot be right",
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_each_fault_is_named(tmp_path: Path, run_envhost: Run) -> None:
    """Each faulty problem is listed with its fault, and good ones are not."""
    rows = [{"problem_id": name, **row} for name, (row, _) in FAULTY.items()]
    path = write(tmp_path / "faulty.jsonl", {"problem_id": "good", "solutions": [SUM]}, *rows)

    done = run_envhost("check-data", path, "--json")

    *faults, summary = map(json.loads, done.stdout.splitlines())
    found = {fault["problem_id"]: fault["fault"] for fault in faults}
    assert found.keys() == FAULTY.keys()
    for name, (_, said) in FAULTY.items():
        assert found[name].startswith(said)
    assert summary["problems"] == 5
    assert summary["faults"] == 5
    assert done.returncode == 1


def test_a_data_set_without_solutions_is_told(tmp_path: Path, run_envhost: Run) -> None:
    """Nothing is claimed of problems without solutions."""
    done = run_envhost("check-data", write(tmp_path / "bare.jsonl", {}))

    assert "right solutions: none, so nothing is known by them" in done.stdout
    assert done.returncode == 0


def test_hostile_text_is_escaped(tmp_path: Path, run_envhost: Run) -> None:
    """A data set's ids cannot steer the terminal."""
    row = {"problem_id": "a\x1b[2J\nb", "solutions": ["print(1)"]}

    done = run_envhost("check-data", write(tmp_path / "hostile.jsonl", row))

    assert r"a\x1b[2J\nb" in done.stdout
    assert "\x1b" not in done.stdout


def test_a_missing_data_set_ends_with_2(tmp_path: Path, run_envhost: Run) -> None:
    """A data set that is not there is one line on standard error."""
    done = run_envhost("check-data", str(tmp_path / "none.jsonl"))

    assert "no such file" in done.stderr
    assert (done.stderr.count("\n"), done.returncode) == (1, 2)


@pytest.mark.slow
@pytest.mark.skipif(not MBPP.exists(), reason="the data set is not part of this project")
def test_problems_that_nobody_here_wrote(run_envhost: Run) -> None:
    """The reference solutions of real call-based problems all get AC."""
    done = run_envhost("check-data", str(MBPP), "--env-config", '{"max_rows": 100}')

    assert "right solutions: 100 AC" in done.stdout
    assert done.returncode == 0
