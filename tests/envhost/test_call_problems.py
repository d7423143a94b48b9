"""Call-based problems: a function's return value against the expected one, on a real data set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from envhost.judge.judging import Judge, JudgeRules, Verdict
from envhost.judge.loading import load_problems
from envhost.judge.problems import Problem
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import bwrap_cells

MBPP = Path(__file__).parents[3] / "shared" / "data" / "mbpp.jsonl"
SPOILED = """
__right = {name}
def {name}(*arguments):
    return ["not", __right(*arguments)]
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MBPP.exists(), reason=f"no data set at {MBPP}"),
]


async def verdicts(programs: list[tuple[Problem, str]]) -> dict[str, Verdict]:
    """Judge every program, as many at once as there are processors."""
    found: dict[str, Verdict] = {}
    async with bwrap_cells(find_interpreter(None)) as cells:
        processors = len(os.sched_getaffinity(0))
        judge = Judge(cells, JudgeRules(), processors=processors)
        waiting = iter(programs)

        async def work() -> None:
            for problem, code in waiting:
                found[problem.problem_id] = await judge.judge(problem, code, max_tests=12)

        async with trio.open_nursery() as nursery:
            for _ in range(processors + 1):
                nursery.start_soon(work)
    return found


def problems() -> list[Problem]:
    """Return all rows; none may be dropped at load."""
    loaded = load_problems(str(MBPP))
    assert "dropped" not in loaded.report
    return [*loaded.training, *loaded.evaluation]


async def test_every_solution_is_right() -> None:
    """All 913 reference solutions are accepted."""
    found = await verdicts([(problem, problem.solutions[0]) for problem in problems()])
    assert len(found) == 913
    assert {name: one for name, one in found.items() if one.name != "AC"} == {}


async def test_every_spoiled_solution_is_wrong() -> None:
    """None of them is accepted when its return value is made wrong."""
    spoiled = [
        (problem, problem.solutions[0] + SPOILED.format(name=problem.fn_name))
        for problem in problems()
    ]
    found = await verdicts(spoiled)
    # A function that calls itself gets the wrong value in its midst, and may fail on it.
    assert {name: one for name, one in found.items() if one.name not in {"WA", "RE"}} == {}
