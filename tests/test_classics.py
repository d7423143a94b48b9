"""`bundled:classics`: every reference solution is accepted, every wrong one gets its verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from envhost.envs.code import make

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "envhost" / "problems" / "classics.jsonl"
ROWS: list[dict[str, str]] = [json.loads(line) for line in DATA.read_text().splitlines()]
CPU_LIMIT_SECONDS = 2.0  # the slowest reference takes a third of it


@pytest.mark.slow
def test_the_file_is_what_its_generator_writes(tmp_path: Path) -> None:
    """Regenerating the data set gives identical bytes."""
    output = tmp_path / "classics.jsonl"

    subprocess.run(
        [sys.executable, ROOT / "scripts" / "make_classics.py", "--output", output], check=True
    )

    assert output.read_bytes() == DATA.read_bytes()


def test_every_problem_is_complete() -> None:
    """There are enough problems, each with twelve tests, two solutions, and wrong ones."""
    assert len(ROWS) >= 24
    assert len({row["problem_id"] for row in ROWS}) == len(ROWS)
    assert sum(bool(row["checker"]) for row in ROWS) >= 3
    for row in ROWS:
        tests = json.loads(row["tests"])
        assert len(tests["inputs"]) == len(tests["outputs"]) == 12, row["problem_id"]
        assert len(set(tests["inputs"])) == 12, row["problem_id"]
        assert len(json.loads(row["solutions"])) >= 2, row["problem_id"]
        assert len(json.loads(row["wrong_solutions"])) >= 3, row["problem_id"]
        assert len(json.loads(row["wrong_verdicts"])) == len(json.loads(row["wrong_solutions"]))
    assert {verdict for row in ROWS for verdict in json.loads(row["wrong_verdicts"])} == {
        "WA",
        "TLE",
        "RE",
        "CE",
        "MLE",
        "OLE",
    }


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=[row["problem_id"] for row in ROWS])
async def test_every_program_gets_its_verdict(row: dict[str, str], tmp_path: Path) -> None:
    """The code environment accepts the solutions and tells each wrong program's fault."""
    data = tmp_path / "one.jsonl"
    data.write_text(json.dumps({**row, "split": "train"}))
    programs = json.loads(row["solutions"]) + json.loads(row["wrong_solutions"])
    expected = ["AC"] * len(json.loads(row["solutions"])) + json.loads(row["wrong_verdicts"])
    factory = make(dataset=str(data), cpu_limit_seconds=CPU_LIMIT_SECONDS)
    verdicts: dict[int, Any] = {}

    async def judge(index: int, program: str) -> None:
        environment = await factory.build()
        await environment.reset(row_index=0)
        result = await environment.step({"message": f"```python\n{program}```"})
        verdicts[index] = result.metadata["verdict"]
        assert result.reward == (1.0 if verdicts[index] == "AC" else 0.0)
        await environment.close()

    async with factory.serving(), trio.open_nursery() as nursery:
        for index, program in enumerate(programs):
            nursery.start_soon(judge, index, program)

    assert [verdicts[index] for index in range(len(programs))] == expected
