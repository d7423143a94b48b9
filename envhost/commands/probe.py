"""`python -m envhost probe`: does a server answer, and what does a first prompt look like?"""

from __future__ import annotations

import time
from typing import TextIO

import click

from ..client import EnvClient, capacity
from ..settings import read_token
from ..telemetry import printable

__all__ = ["probe"]


@click.command(short_help="Check a server: reach it, open a session, reset.")
@click.argument("url")
@click.option("--seed", type=int, default=0, help="Seed of the reset.  [default: 0]")
@click.option(
    "--answer", type=click.File(), help="Send a file's text, - for standard input, as one step."
)
@click.option("--token-file", help="File with the server's token.")
@click.option("--ca-file", help="PEM file of the authority behind the server's certificate.")
def probe(
    url: str, seed: int, answer: TextIO | None, token_file: str | None, ca_file: str | None
) -> None:
    """Reach the server at URL, open a session, reset it and show the start of the prompt."""
    token = read_token(token_file) if token_file else None
    total, taken = capacity(url, token=token, ca_file=ca_file)
    if total is not None:
        click.echo(f"server: {taken} of {total} sessions open")
    with EnvClient(url, token=token, ca_file=ca_file, retry_seconds=0) as client:
        started = time.perf_counter()
        prompt, info = client.reset(seed=seed)
        click.echo(f"reset: {1000 * (time.perf_counter() - started):.1f} ms, seed {seed}")
        facts = {key: value for key, value in info.items() if key != "observation"}
        click.echo(printable(f"metadata: {facts}"))
        click.echo(printable(f"prompt: {prompt[:200]}"))
        if answer is not None:
            _, reward, _, _, info = client.step(answer.read())
            verdict = info.get("verdict", "none")
            click.echo(printable(f"step: reward {reward}, verdict {verdict}"))
