"""Faults found by reading: each with the fact that holds once it is repaired."""

from __future__ import annotations

import math
from typing import Any

import pytest

from envhost.envs.code import make
from envhost.errors import ConfigError, NotScored, ProtocolError
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
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    """An option of a wrong type or range is one clear error that names it."""
    with pytest.raises(ConfigError, match=f"env_config.{next(iter(options))}: expected"):
        make(**options)


async def test_limits_too_low_are_refused() -> None:
    """The proof at start uses the limits that programs get."""
    with pytest.raises(ConfigError, match="limits too low"):
        async with make(memory_limit_bytes=1000).serving():
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
