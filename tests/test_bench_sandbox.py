"""The sandbox benchmark measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import bench_sandbox
import pytest
from bench.programs import programs, some_programs

SCRIPT = Path(bench_sandbox.__file__)


def test_programs_are_the_same_each_time_and_no_two_alike() -> None:
    """Every kind of cell judges the same programs, none of which could be cached."""
    first, again = (list(islice(programs("hanging"), 400)) for _ in range(2))
    assert first == again
    assert len(set(first)) == 400
    assert 5 <= sum("while True" in program for program in first) <= 40


def test_a_number_of_programs_has_exactly_the_shares() -> None:
    """Of eighty with 5 % endless ones four are endless and twenty right, whatever the salt."""
    chosen = some_programs("hanging", 80, "a")
    assert len(set(chosen)) == 80
    assert sum("while True" in program for program in chosen) == 4
    assert sum("print(sum" in program for program in chosen) == 20
    assert set(chosen).isdisjoint(some_programs("hanging", 80, "b"))


@pytest.mark.slow
def test_a_short_measurement(tmp_path: Path) -> None:
    """A run measures each kind and writes a table and JSON; right programs are judged right."""
    report = tmp_path / "report.json"
    argv = [sys.executable, SCRIPT, "--rounds", "1", "--seconds", "0.5", "--sessions", "2"]
    argv += ["--mixes", "right", "--kinds", "warm", "plain", "--json", report]
    shown = subprocess.run(
        argv,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "cpu_ms_a_test" in shown.stdout
    (case,) = json.loads(report.read_text())
    assert set(case["results"]) == {"warm", "plain"}
    for result in case["results"].values():
        assert result["mean_reward"] == 1.0
        assert result["cpu_ms_a_test"] > result["program_cpu_ms_a_test"] > 0
