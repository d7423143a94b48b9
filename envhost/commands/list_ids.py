"""`python -m envhost list`: the environments that can be served by a name."""

from __future__ import annotations

import click

from ..envs.gem import known_ids
from ..envs.gem_code import KNOWN_IDS
from ..errors import ConfigError

__all__ = ["list_ids"]

_BUNDLED = (
    ("envhost.envs.code:make", "programs judged against tests; served when nothing is named"),
    ("envhost.envs.repeat:Repeat", "a small game of several turns"),
)


@click.command("list", short_help="Show the environments that can be served by a name.")
@click.argument("prefix", required=False, default="")
def list_ids(prefix: str) -> None:
    """Show the bundled environments, and GEM's ids that begin with PREFIX.

    An id is served with `serve gem:make --env-config '{"env_id": ID}'`.
    """
    if not prefix:
        for entrypoint, text in _BUNDLED:
            click.echo(f"{entrypoint}  {text}")
    try:
        ids, missing = known_ids(), ""
    except ConfigError as error:
        ids, missing = list(KNOWN_IDS), str(error)
    for env_id in ids:
        if env_id.startswith(prefix):
            click.echo(env_id)
    if missing:
        click.echo(f"envhost: only GEM's code ids are known: {missing}", err=True)
