"""Judges the attacks in a process of its own, a verdict a line: `as_user.py KIND NUMBER…`.

For the test that runs it as a normal user, whom it tells apart from root by nothing but its uid.
"""

from __future__ import annotations

import json
import sys

import trio
from programs import ATTACKS

from envhost.judge.judging import Judge, JudgeRules
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import bwrap_cells
from envhost.sandbox.limits import CellLimits
from envhost.sandbox.warm import warm_cells


async def main(kind: str, numbers: list[str]) -> None:
    """Judge the attacks of these numbers, one after the other."""
    open_cells = warm_cells if kind == "warm" else bwrap_cells
    async with open_cells(find_interpreter(None)) as cells:
        for attack in ATTACKS:
            if attack.number not in numbers:
                continue
            tests = tuple(Case(*test) for test in attack.tests)
            problem = Problem(problem_id=attack.number, text="", tests=tests)
            judge = Judge(cells, JudgeRules(limits=CellLimits(**attack.limits)), processors=1)
            verdict = await judge.judge(problem, attack.source, max_tests=12)
            shown = {"number": attack.number, "verdict": verdict.name}
            print(json.dumps(shown | {"said": verdict.stderr_tail}), flush=True)


trio.run(main, sys.argv[1], sys.argv[2:])
