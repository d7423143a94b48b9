"""The code environment: its options, its episodes and its rewards."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from envhost.envs.code import CodeEnvironment, make
from envhost.errors import ConfigError, EpisodeError, NotScored, ProtocolError
from envhost.judge import problems
from envhost.judge.compare import Tolerance, values_match
from envhost.judge.judging import Judge, JudgeRules
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import bwrap_cells

CHECKER = """\
import sys
sys.exit(0 if int(open(sys.argv[3]).read()) == int(open(sys.argv[2]).read()) else 1)
"""


def test_integer_beyond_floats_is_wrong() -> None:
    """An integer that no float can hold is compared without an exception."""
    assert not values_match(0.5, 10**400, Tolerance())


@pytest.mark.parametrize(
    "options",
    [
        {"cpu_limit_seconds": math.inf},
        {"reward_right": math.nan},
        {"dataset": 5},
        {"evaluation_max_tests": "x"},
        {"evaluation_max_tests": 0},
        {"max_rows": "x"},
        {"prompt_template": 5},
        {"checker": "linez"},
        {"prelude": 1},
        {"preload": "numpy, scipy"},
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """An option of a wrong type or range is one clear error that names it."""
    with pytest.raises(ConfigError, match=f"env_config.{next(iter(options))}: expected"):
        make(**options)


async def test_limits_too_low_are_refused() -> None:
    """The proof at start uses the limits that programs get."""
    with pytest.raises(ConfigError, match="limits too low"):
        async with make(memory_limit_bytes=1000, cells="cold").serving():
            pass


@pytest.mark.parametrize(
    "arguments", [{"seed": "a"}, {"seed": 1.5}, {"row_index": "3"}, {"evaluation": "no"}]
)
async def test_wrong_reset_arguments(arguments: dict[str, Any]) -> None:
    """A reset argument of a wrong type is the client's fault, not an exception of ours."""
    factory = make(sandbox_type="none", unsafe_no_sandbox=True)
    async with factory.serving():
        environment = await factory.build()
        with pytest.raises(ProtocolError):
            await environment.reset(**arguments)


@pytest.mark.parametrize(("checker", "is_scored"), [(CHECKER, True), ("import nothing", False)])
async def test_checker_that_an_output_breaks(checker: str, is_scored: bool) -> None:
    """An output that breaks a working checker is wrong; a broken checker scores nothing."""
    problem = problems.Problem(
        problem_id="p", text="", tests=(problems.Test("", "7\n"),), checker=checker
    )
    async with bwrap_cells(find_interpreter(None)) as cells:
        judge = Judge(cells, JudgeRules(), processors=1)
        if is_scored:
            assert (await judge.judge(problem, "print('seven')", max_tests=1)).name == "WA"
            assert (await judge.judge(problem, "print(' 7')", max_tests=1)).name == "AC"
        else:
            with pytest.raises(NotScored):
                await judge.judge(problem, "print(7)", max_tests=1)


RIGHT = "```python\nprint(int(input()) * 2)\n```"
WRONG = "```python\nprint(0)\n```"
HALF = "```python\nn = int(input())\nprint(n * 2 if n < 10 else 0)\n```"


@pytest.fixture
def doubling(tmp_path: Path) -> str:
    """Return a data set of rows that ask to double a number."""
    path = tmp_path / "doubling.jsonl"
    tests = {"inputs": ["1\n", "2\n", "30\n", "40\n"], "outputs": ["2\n", "4\n", "60\n", "80\n"]}
    rows = [
        {"problem": f"double {n}", "tests": tests, "split": "test" if n < 2 else "train"}
        for n in range(5)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@asynccontextmanager
async def environment(**options: Any) -> AsyncIterator[CodeEnvironment]:
    """Give one session's environment."""
    factory = make(**options)
    async with factory.serving():
        yield await factory.build()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [1.0, 0.0, 0.0, -0.1]),
        ({"reward_mode": "fraction"}, [1.0, 0.0, 0.5, -0.1]),
        (
            {"reward_right": 2, "reward_wrong": -1, "reward_no_code": -3.0},
            [2.0, -1.0, -1.0, -3.0],
        ),
        ({"reward_mode": "fraction", "reward_wrong": -1.0}, [1.0, -1.0, 0.0, -0.1]),
    ],
)
async def test_rewards(doubling: str, options: dict[str, Any], expected: list[float]) -> None:
    """Right, wrong, half right and no program each get the reward that the options say."""
    got = []
    async with environment(dataset=doubling, **options) as one:
        for answer in (RIGHT, WRONG, HALF, "no program"):
            await one.reset(seed=0)
            result = await one.step({"message": answer})
            assert result.terminated
            got.append(result.reward)
    assert got == expected


async def test_a_group_shares_its_problem(doubling: str) -> None:
    """Sessions with one seed get one problem, and the metadata says which."""
    factory = make(dataset=doubling)
    async with factory.serving():
        members = [await factory.build() for _ in range(3)]
        first = [await member.reset(seed=7) for member in members]
    assert len({one.observation["prompt"] for one in first}) == 1
    metadata = first[0].metadata
    assert (metadata["seed"], metadata["split"]) == (7, "train")
    assert metadata["problem_id"].startswith("doubling.jsonl/")
    assert metadata["isolation"].startswith("bwrap")


async def test_evaluation_walks_in_order(doubling: str) -> None:
    """Without a seed, evaluation goes through its split; a row wins over a seed."""
    async with environment(dataset=doubling) as one:
        rows = [(await one.reset(evaluation=True)).metadata["row_index"] for _ in range(3)]
        assert rows == [0, 1, 0]
        chosen = await one.reset(seed=1, row_index=2)
        assert chosen.observation["prompt"] == "double 4"
        with pytest.raises(ProtocolError, match="expected 0 to 1 in the test split"):
            await one.reset(row_index=2, evaluation=True)
        assert dict(await one.state()) == {"dataset_size": 3, "evaluation_size": 2}


async def test_a_step_needs_an_episode(doubling: str) -> None:
    """Before a reset and after the end there is nothing to answer."""
    async with environment(dataset=doubling) as one:
        with pytest.raises(EpisodeError):
            await one.step({"message": RIGHT})
        await one.reset(seed=0)
        with pytest.raises(ProtocolError, match="'message'"):
            await one.step({"text": RIGHT})
        await one.step({"message": RIGHT})
        with pytest.raises(EpisodeError):
            await one.step({"message": RIGHT})


async def test_metadata_of_a_step(doubling: str) -> None:
    """The step's metadata has every key of the protocol's table, and no expected output."""
    async with environment(dataset=doubling) as one:
        await one.reset(seed=0)
        metadata = (await one.step({"message": HALF})).metadata
    assert {
        "verdict",
        "tests_run",
        "tests_passed",
        "tests_total",
        "first_failed",
        "cpu_seconds",
        "wall_seconds",
        "queue_seconds",
        "peak_memory_bytes",
        "stderr_tail",
        "isolation",
    } <= metadata.keys()
    assert (metadata["verdict"], metadata["tests_passed"], metadata["first_failed"]) == ("WA", 2, 2)
    assert "60" not in metadata["stderr_tail"]


async def test_metadata_without_code(doubling: str) -> None:
    """An answer without a program has the same keys as any other, and no test was run."""
    async with environment(dataset=doubling) as one:
        await one.reset(seed=0)
        judged = (await one.step({"message": HALF})).metadata
        await one.reset(seed=0)
        none = (await one.step({"message": "I do not know."})).metadata
    assert none.keys() == judged.keys()
    assert (none["verdict"], none["tests_run"], none["tests_passed"]) == ("NC", 0, 0)
    assert none["tests_total"] == judged["tests_total"] > 0
    assert none["first_failed"] is None


async def test_unsafe_needs_words(doubling: str) -> None:
    """Without a sandbox nothing is served but by an option and a flag."""
    with pytest.raises(ConfigError, match="--unsafe-no-sandbox"):
        make(dataset=doubling, sandbox_type="none")
    async with environment(dataset=doubling, sandbox_type="none", unsafe_no_sandbox=True) as one:
        await one.reset(seed=0)
        result = await one.step({"message": RIGHT})
    assert (result.reward, result.metadata["isolation"]) == (1.0, "none")


def test_an_unknown_option_names_its_neighbour() -> None:
    """A misspelt option is one clear error."""
    with pytest.raises(ConfigError, match="did you mean max_tests"):
        make(max_test=3)
