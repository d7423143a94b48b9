"""`python -m envhost`: the commands, and the one place where errors become exit statuses."""

from __future__ import annotations

import sys

import click

from .commands.check import check
from .commands.check_data import check_data
from .commands.doctor import doctor
from .commands.list_ids import list_ids
from .commands.probe import probe
from .commands.rescore import rescore
from .commands.score import score
from .commands.serve import serve
from .errors import EnvhostError
from .telemetry import printable

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def commands() -> None:
    """Host reinforcement learning environments over WebSocket sessions."""


commands.add_command(serve)
commands.add_command(probe)
commands.add_command(doctor)
commands.add_command(score)
commands.add_command(rescore)
commands.add_command(check_data)
commands.add_command(check)
commands.add_command(list_ids)


def main() -> None:
    """Run a command; a user's mistake is one line on standard error and exit status 2."""
    try:
        sys.exit(commands(prog_name="envhost", standalone_mode=False))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        click.echo(f"envhost: {error.format_message()}", err=True)
        sys.exit(error.exit_code)
    except EnvhostError as error:
        # A server's own words may stand in it: they must not steer a terminal or look like ours.
        click.echo(f"envhost: {printable(str(error))}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)


if __name__ == "__main__":
    main()
