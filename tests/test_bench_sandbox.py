"""The sandbox benchmark measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from pathlib import Path

import bench_sandbox
import pytest
from bench import rollouts
from bench.programs import programs, some_programs
from bench.rollouts import ALIKE, LOADS

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


def test_the_table_of_rollouts(capsys: pytest.CaptureFixture[str]) -> None:
    """Rates beside GEM's with their ratio, rewards, what is left, and the tenth run."""

    def result(rate: float, left: int = 0) -> dict[str, float]:
        return {"rollouts_a_second": rate, "mean_reward": 0.25, "not_scored": 0, "left": left}

    rollouts.show_rollouts(
        {
            "envhost": {load.name: result(20.0) for load in (*LOADS, *rollouts.AGAIN, ALIKE)},
            "sharing": {ALIKE.name: result(100.0)},
            "gem": {load.name: result(2.5, 48) for load in LOADS},
        }
    )

    lines = capsys.readouterr().out.splitlines()
    (endless,) = [line for line in lines if line.startswith("5 % endless")]
    assert endless.split()[3:] == ["20.00", "2.50", "8.0", "0.250", "0.250", "0", "48"]
    assert lines[-2].endswith("first run 20.00, tenth 20.00 rollouts/s")
    assert lines[-1].endswith("20.00, with share_verdicts 100.00")


@pytest.mark.slow
def test_a_server_under_its_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours judges as the mix says, shares nothing unasked, and leaves no process."""
    monkeypatch.setattr(rollouts, "AGAIN", ())
    monkeypatch.setattr(rollouts, "LOADS", LOADS[:2])
    results = rollouts.measure_rollouts(None, 1, 0.1)
    assert results["envhost"]["right"]["mean_reward"] == 1.0
    assert results["envhost"]["mixed"]["mean_reward"] == 0.25
    assert results["sharing"][ALIKE.name]["mean_reward"] == 0.25
    for loads in results.values():
        for seen in loads.values():
            assert seen["rollouts_a_second"] > 0
            assert (seen["not_scored"], seen["left"]) == (0, 0)


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
