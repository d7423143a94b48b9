"""Opening a judge: its cells, and the proof that a known-right program is judged right.

Owns the refusal to judge where programs cannot run, and what to do about it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Literal

from ..errors import ConfigError, NotScored
from ..processors import usable_processors
from ..sandbox.bwrap import Interpreter, find_interpreter
from ..sandbox.cells import Cells, OpenCells, bwrap_cells, plain_cells
from ..sandbox.remedy import remedy_for
from ..sandbox.warm import CONTEST_MODULES, warm_cells
from .judging import Judge, JudgeRules
from .problems import Problem, Test

__all__ = ["CellsKind", "open_judge"]

CellsKind = Literal["auto", "warm", "cold", "plain"]
"""`plain` is no isolation; `auto` is warm cells where they hold, else cold ones."""


@asynccontextmanager
async def open_judge(
    rules: JudgeRules,
    *,
    kind: CellsKind,
    python: str | None,
    hidden: Sequence[Path],
    preload: Sequence[str] = (),
) -> AsyncIterator[Judge]:
    """Open cells and a judge that runs as many programs as there are processors.

    Args:
        rules: How programs are judged.
        kind: Which cells they run in.
        python: The interpreter that runs them; None for our own.
        hidden: Files of this machine with expected outputs in them.
        preload: Modules that warm cells load ahead, besides those that programs usually import.

    Raises:
        ConfigError: Programs do not run here; every verdict would be wrong.
    """
    interpreter = find_interpreter(python)
    async with _open_cells(interpreter, kind, hidden, preload) as cells:
        judge = Judge(cells, rules, processors=usable_processors(), python=interpreter.executable)
        await _prove(judge)
        yield judge


@asynccontextmanager
async def _open_cells(
    interpreter: Interpreter, kind: CellsKind, hidden: Sequence[Path], preload: Sequence[str]
) -> AsyncIterator[Cells]:
    """Open the cells asked for.

    Raises:
        ConfigError: They cannot be had here.
    """
    async with AsyncExitStack() as stack:
        if kind == "plain":
            cells = await stack.enter_async_context(plain_cells(interpreter))
        elif kind == "cold":
            cells = await stack.enter_async_context(bwrap_cells(interpreter, hidden=hidden))
        else:
            try:
                modules = (*CONTEST_MODULES, *preload)
                warm = warm_cells(interpreter, hidden=hidden, modules=modules)
                cells = await stack.enter_async_context(warm)
            except ConfigError as error:
                if kind == "warm":
                    raise
                cold = await stack.enter_async_context(bwrap_cells(interpreter, hidden=hidden))
                cells = OpenCells(cold.isolation, f"cold: {error}", cold.run)
        yield cells


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
