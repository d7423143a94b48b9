"""Opening a judge: its cells, and the proof that a known-right program is judged right.

Owns the refusal to judge where programs cannot run, and what to do about it.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ..errors import ConfigError, NotScored
from ..sandbox.bwrap import find_interpreter
from ..sandbox.cells import bwrap_cells, plain_cells
from ..sandbox.remedy import remedy_for
from .judging import Judge, JudgeRules
from .problems import Problem, Test

__all__ = ["open_judge"]


@asynccontextmanager
async def open_judge(
    rules: JudgeRules, *, in_bwrap: bool, python: str | None, hidden: Sequence[Path]
) -> AsyncIterator[Judge]:
    """Open cells and a judge that runs as many programs as there are processors.

    Args:
        rules: How programs are judged.
        in_bwrap: Whether they are isolated.
        python: The interpreter that runs them; None for our own.
        hidden: Files of this machine with expected outputs in them.

    Raises:
        ConfigError: Programs do not run here; every verdict would be wrong.
    """
    interpreter = find_interpreter(python)
    opened = bwrap_cells(interpreter, hidden=hidden) if in_bwrap else plain_cells(interpreter)
    async with opened as cells:
        judge = Judge(cells, rules, processors=len(os.sched_getaffinity(0)))
        await _prove(judge)
        yield judge


async def _prove(judge: Judge) -> None:
    """Refuse to judge where a known-right program is not judged right.

    Raises:
        ConfigError: Programs do not run here; every reward would be wrong.
    """
    canary = Problem(problem_id="canary", text="", tests=(Test("20 22\n", "42\n"),))
    code = "import json, sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
    try:
        verdict = await judge.judge(canary, code, max_tests=1)
    except NotScored as error:
        remedy = remedy_for(str(error))
        raise ConfigError(
            f"programs cannot be run here: {error}" + (f"; {remedy}" if remedy else "")
        ) from None
    if verdict.name != "AC":
        raise ConfigError(
            f"a known-right program got {verdict.name} here, so that every reward would be wrong; "
            f"are the limits too low? {verdict.stderr_tail[-300:]}".rstrip()
        )
