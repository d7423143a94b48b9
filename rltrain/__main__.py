"""The command line: `python -m rltrain manifest.yaml`, and `python -m rltrain report DIR…`."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import time
from pathlib import Path

import click

from .errors import PeerStopped, RltrainError, RunStopped, SetupError
from .manifest_file import read_manifest
from .text import visible

__all__ = ["main"]

# Threads that wait by spinning take the processors from the programs that are being judged: a step
# took 2.3 s instead of 0.35 s on two busy cores. Set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@click.command()
@click.argument("manifest", type=click.Path(path_type=Path))
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    show_default=True,
    help="Where to train.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="The run's folder.  [default: runs/NAME-DATE-TIME]",
)
@click.option("--check", "is_check", is_flag=True, help="Check everything and do not train.")
@click.option(
    "--resume", "is_resumed", is_flag=True, help="Go on from the newest checkpoint in --output."
)
@click.option("--local_rank", "--local-rank", type=int, hidden=True, expose_value=False)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Override a key of the manifest; repeatable.",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    help="Where dequantised models are kept for vLLM.  [default: ~/.cache/rltrain]",
)
def command(
    manifest: Path,
    *,
    device: str,
    output: Path | None,
    is_check: bool,
    is_resumed: bool,
    overrides: tuple[str, ...],
    cache_dir: Path | None,
) -> None:
    """Train a language model as MANIFEST says, against environments behind a URL.

    `rltrain report DIR…` writes the page of a run, or compares several.
    """
    values, warnings = read_manifest(manifest, overrides)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if is_resumed and output is None:
        raise SetupError("--resume: say which run's folder with --output")

    _quiet_libraries()
    # torch and its kin take seconds to import: only after the manifest has been read.
    from .base_cache import default_cache
    from .launch import Launch, resolve_device
    from .ranks import launched

    place = launched()
    launch = Launch(
        manifest=values,
        source=manifest,
        folder=output or Path("runs") / f"{manifest.stem}-{time.strftime('%Y%m%d-%H%M%S')}",
        device=resolve_device(device, place),
        place=place,
        is_resumed=is_resumed,
        overrides=overrides,
        cache=cache_dir or default_cache(),
    )
    if is_check and not place.is_leader:
        return
    if is_check:
        for line in launch.check():
            click.echo(line)
        return
    changes = [part for override in overrides for part in ("--set", override)]
    changes += ["--cache-dir", str(cache_dir)] if cache_dir else []
    again = shlex.join([str(manifest), *changes, "--resume", "--output", str(launch.folder)])
    program = "python" if place.world_size == 1 else "LAUNCHER"
    resume = f"to go on: {program} -m rltrain {again}"
    try:
        is_complete = launch.run()
    except RunStopped:
        if place.is_leader:
            click.echo(resume)
        raise
    if not place.is_leader:
        return
    click.echo(f"run folder: {launch.folder}")
    if not is_complete:
        click.echo(f"stopped on request; {resume}")


@click.command("report")
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    default=Path("comparison.html"),
    show_default=True,
    help="The page to write, for several runs.",
)
def report_command(folders: tuple[Path, ...], output: Path) -> None:
    """Write the page of one run's folder, or one that compares several."""
    from .report import compare_runs, write_report

    if len(folders) == 1:
        write_report(folders[0])
        click.echo(folders[0] / "report.html")
    else:
        compare_runs(folders, output)
        click.echo(output)


def _quiet_libraries() -> None:
    """Keep the libraries' notes about themselves out of the run's own lines."""
    for name in ("bitsandbytes", "transformers", "peft", "torch"):
        logging.getLogger(name).setLevel(logging.ERROR)


def main() -> None:
    """Run the command line; errors that are the user's to mend come without a traceback."""
    try:
        if sys.argv[1:2] == ["report"]:
            report_command.main(sys.argv[2:], prog_name="rltrain report", standalone_mode=False)
        else:
            command.main(prog_name="rltrain", standalone_mode=False)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except PeerStopped:
        sys.exit(1)
    except SetupError as error:
        if os.environ.get("LOCAL_RANK", "0") == "0":  # the others of this machine say the same
            click.echo(f"rltrain: {visible(str(error))}", err=True)
        sys.exit(2)
    except (RunStopped, RltrainError) as error:
        click.echo(f"rltrain: stopped: {visible(str(error))}", err=True)
        sys.exit(1)
    except (KeyboardInterrupt, click.Abort):
        click.echo("rltrain: interrupted; the newest checkpoint is kept", err=True)
        sys.exit(130)


if __name__ == "__main__":
    main()
