"""`python -m envhost doctor`: which guards of the sandbox hold on this machine."""

from __future__ import annotations

import json
import sys

import click
import trio
from attrs import asdict

from ..doctor import Guard, examine
from ..telemetry import printable

__all__ = ["doctor"]


@click.command(short_help="Prove each guard of the sandbox by trying to break it.")
@click.option("--python", metavar="PATH", help="Interpreter that runs the programs.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of lines.")
def doctor(python: str | None, as_json: bool) -> None:
    """Try to break each guard of the sandbox and say which held.

    The exit status is 1 where programs of a model could not be run safely, or not at all.
    """
    guards = trio.run(examine, python)
    if as_json:
        click.echo(json.dumps([asdict(guard) for guard in guards], indent=2))
    else:
        for guard in guards:
            click.echo(printable(_line(guard)))
    if any(guard.is_vital and not guard.is_enforced for guard in guards):
        sys.exit(1)


def _line(guard: Guard) -> str:
    if guard.is_enforced:
        return f"enforced      {guard.name}: {guard.detail}"
    weight = "" if guard.is_vital else " (not vital)"
    remedy = f"; {guard.remedy}" if guard.remedy else ""
    return f"NOT ENFORCED  {guard.name}{weight}: {guard.detail}{remedy}"
