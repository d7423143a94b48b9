"""`python -m envhost rescore`: recorded programs judged again, and what would change."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import trio

from envhost.envs.code import make

Run = Callable[..., CompletedProcess[str]]

TESTS = {"inputs": ["1 2\n", "10 20 30\n"], "outputs": ["3\n", "60\n"]}
PROGRAMS = (
    "print(sum(map(int, input().split())))",
    "print(3)",
    "print('', sum(map(int, input().split())))",
    "raise ValueError",
)


def write_problems(path: Path, tests: dict[str, Any], problem_id: str = "sum") -> None:
    row = {"problem_id": problem_id, "split": "train", "problem": "add", "tests": tests}
    path.write_text(json.dumps(row))


@pytest.fixture
def record(tmp_path: Path) -> str:
    """A record of four programs: AC, WA, WA by a blank, RE."""
    write_problems(tmp_path / "problems.jsonl", TESTS)
    trio.run(judge_programs, str(tmp_path / "problems.jsonl"), str(tmp_path / "record"))
    return str(tmp_path / "record")


async def judge_programs(dataset: str, record_dir: str) -> None:
    factory = make(dataset=dataset, record_dir=record_dir)
    async with factory.serving():
        environment = await factory.build()
        for program in PROGRAMS:
            await environment.reset(seed=1)
            await environment.step({"message": f"```python\n{program}\n```"})


def counts(done: CompletedProcess[str]) -> dict[tuple[str, str], int]:
    rows = (line.split() for line in done.stdout.splitlines())
    return {(row[0], row[1]): int(row[2]) for row in rows if len(row) == 3 and row[2].isdecimal()}


def test_nothing_changes_by_itself(record: str, run_envhost: Run) -> None:
    """Judged again by the recorded options, every program gets the verdict it got."""
    done = run_envhost("rescore", record)

    assert counts(done) == {("AC", "AC"): 1, ("RE", "RE"): 1, ("WA", "WA"): 2}
    assert "0 of 4 would change" in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


def test_other_rules_show_what_changes(record: str, run_envhost: Run) -> None:
    """Options on the command line win over the recorded ones."""
    done = run_envhost("rescore", record, "--env-config", '{"checker": "tokens"}')

    assert counts(done)["WA", "AC"] == 1
    assert "1 of 4 would change" in done.stdout
    assert done.stdout.splitlines()[-1].split()[-5:] == ["sum", "WA", "AC", "0.0", "1.0"]
    assert done.returncode == 1


def test_repaired_tests_show_what_changes(tmp_path: Path, record: str, run_envhost: Run) -> None:
    """Problems are found by their id in the data set as it is now; --json tells each change."""
    write_problems(tmp_path / "problems.jsonl", TESTS | {"outputs": ["3\n", "3\n"]})

    done = run_envhost("rescore", record, "--json")

    changes = [json.loads(line) for line in done.stdout.splitlines()]
    changed = sorted(
        (change["verdict"], change["verdict_now"]) for change in changes if "session" in change
    )
    assert changed == [("AC", "WA"), ("WA", "AC")]
    assert done.returncode == 1


def test_another_reward_is_a_change(record: str, run_envhost: Run) -> None:
    """A verdict that is worth something else is a change too."""
    done = run_envhost("rescore", record, "--env-config", '{"reward_wrong": -1.0}')

    assert "3 of 4 would change" in done.stdout
    assert done.returncode == 1


def test_a_problem_that_is_gone_is_told(tmp_path: Path, record: str, run_envhost: Run) -> None:
    """Programs whose problem the data set no longer has are counted as gone."""
    other = tmp_path / "other.jsonl"
    write_problems(other, TESTS, problem_id="other")

    done = run_envhost("rescore", record, "--problems", str(other))

    assert sum(number for (_, now), number in counts(done).items() if now == "gone") == 4
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("place", "said"),
    [("nowhere", "No such file"), (".", "expected files programs-"), ("data.jsonl", "the keys")],
)
def test_what_is_no_record_ends_with_2(
    tmp_path: Path, run_envhost: Run, place: str, said: str
) -> None:
    """A missing, empty or foreign record is one line on standard error."""
    write_problems(tmp_path / "data.jsonl", TESTS)
    with (tmp_path / "data.jsonl").open("a") as file:
        file.write("\n")

    done = run_envhost("rescore", str(tmp_path / place))

    assert said in done.stderr
    assert (done.stderr.count("\n"), done.returncode) == (1, 2)
