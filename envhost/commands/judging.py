"""What the commands that judge have in common: options, running, many at once, tables.

Owns no judging: the commands open the very judge that the server would, from the same options.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click
import trio

from ..embed import single_error
from ..envs.code_options import CodeOptions, checked_options
from ..errors import NotScored
from ..judge.judging import Judge, OnTest, Verdict
from ..judge.problems import Problem
from ..processors import usable_processors
from ..settings import json_object
from ..telemetry import printable

__all__ = [
    "Progress",
    "code_options",
    "echo_table",
    "for_each",
    "judging_options",
    "run",
    "verdict_of",
]

T = TypeVar("T")
_COLUMN_CHARACTERS = 60


def judging_options(command: Any) -> Any:
    """Add the options that all of them take: `env_config`, `unsafe_no_sandbox` and `as_json`."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON lines, not a table."),
        click.option(
            "--unsafe-no-sandbox", is_flag=True, help="Allow sandbox_type none: nothing isolated."
        ),
        click.option(
            "--env-config", metavar="JSON", help="Options of the environment, as for `serve`."
        ),
    ):
        command = option(command)
    return command


def code_options(
    dataset: str,
    env_config: str | None,
    *,
    unsafe_no_sandbox: bool,
    base: Mapping[str, Any] | None = None,
) -> CodeOptions:
    """Return the environment's options: those of `base`, and over them those of the command line.

    Raises:
        ConfigError: An option is unknown or has a wrong value.
    """
    given = json_object(env_config, "--env-config") if env_config else {}
    chosen = {**(base or {}), **given, "dataset": dataset}
    return checked_options(chosen, unsafe_no_sandbox=unsafe_no_sandbox)


def run(main: Callable[[], Awaitable[T]]) -> T:
    """Run a command's async part; a single error comes out as itself."""
    try:
        return trio.run(main)
    except BaseExceptionGroup as group:
        raise single_error(group) from None


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Do the work for each item, for as many at once as keep every processor busy."""
    waiting = iter(items)

    async def worker() -> None:
        for item in waiting:
            await work(item)

    async with trio.open_nursery() as nursery:
        for _ in range(2 * usable_processors()):
            nursery.start_soon(worker)


async def verdict_of(
    judge: Judge, problem: Problem, code: str, *, max_tests: int, on_test: OnTest | None = None
) -> Verdict | NotScored:
    """Judge a program; a failure to do so is returned too, since others go on."""
    try:
        return await judge.judge(problem, code, max_tests=max_tests, on_test=on_test)
    except NotScored as failure:
        return failure


def echo_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their cells; what comes from a model or a data set is escaped."""
    lines = [[*header], *([printable(str(cell))[:_COLUMN_CHARACTERS] for cell in r] for r in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


class Progress:
    """A line on a terminal's standard error that is written over; nothing where there is none."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._of = "" if total is None else f" of {total}"
        self._is_shown = sys.stderr.isatty()
        self._done = 0

    def step(self) -> None:
        """Count one more."""
        self._done += 1
        if self._is_shown:
            click.echo(f"\r{self._what}: {self._done}{self._of}", nl=False, err=True)

    def end(self) -> None:
        """Wipe the line."""
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
