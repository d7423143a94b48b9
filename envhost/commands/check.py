"""`python -m envhost check`: the usual mistakes of an environment, each in one line."""

from __future__ import annotations

import json
import logging
import sys

import click
import trio

from ..checkup import Trial, checkup
from ..config import ServerConfig
from ..settings import json_object
from ..telemetry import configure_logging, printable

__all__ = ["check"]


@click.command(short_help="Find the usual mistakes of an environment.")
@click.argument("entrypoint")
@click.option("--env-config", metavar="JSON", help="Options of the environment, a JSON object.")
@click.option(
    "--action",
    "texts",
    multiple=True,
    help="Text to answer with, or a JSON object for other actions; repeatable.",
)
@click.option("--limit", default=30.0, help="Seconds after which a call hangs.  [default: 30]")
def check(entrypoint: str, env_config: str | None, texts: tuple[str, ...], limit: float) -> None:
    """Play ENTRYPOINT (module:callable or file.py:callable) in two sessions and say what is wrong.

    Looked for are wrong results, information that JSON cannot hold, a seed without effect, state
    shared between sessions, a slow reset and a close that hangs. The exit status is 1 where
    something was found.
    """
    configure_logging(logging.getLevelName(logging.CRITICAL))
    options = json_object(env_config, "--env-config") if env_config else {}
    config = ServerConfig(entrypoint=entrypoint, env_config=options)
    actions = [_action(text) for text in texts] or Trial().actions
    findings = trio.run(checkup, config, Trial(actions=actions, limit_seconds=limit))
    for finding in findings:
        click.echo(printable(f"WRONG  {finding}"))
    if findings:
        sys.exit(1)
    click.echo(f"{entrypoint}: nothing found")


def _action(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"message": text}
