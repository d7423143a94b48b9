"""Preparing a data set in a child process, so that the server stays small and can be ended at once.

Owns the child and what it says: a JSON line for each event. It ends with the server, whose end
closes its standard input.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio
from attrs import asdict

from ..errors import ConfigError
from ..process import start_child
from ..telemetry import log_event
from .loading import Part, Prepared, Request, is_light, prepare, problem_set
from .problems import Columns, ProblemSet
from .scan import Scan

__all__ = ["load_problems_aside"]

_PACKAGE_ROOT = str(Path(__file__).parent.parent.parent)


async def load_problems_aside(
    request: Request, *, evaluation_fraction: float, shuffle_seed: int
) -> ProblemSet:
    """Load a data set, the log telling how far it is; a large one by a child process.

    Raises:
        ConfigError: No such data set, or no row of it can be used.
    """
    if is_light(request.dataset):
        prepared = prepare(request, lambda *_: None)
    else:
        prepared = await _prepared_by_child(request)
    return problem_set(
        request, prepared, evaluation_fraction=evaluation_fraction, shuffle_seed=shuffle_seed
    )


async def _prepared_by_child(request: Request) -> Prepared:
    started = time.monotonic()
    lifeline, lifeline_end = os.pipe()
    said, said_end = os.pipe()
    found: Prepared | None = None
    try:
        async with (
            start_child(
                [sys.executable, "-P", "-m", __name__, json.dumps(asdict(request))],
                stdin=lifeline,
                stdout=said_end,
                stderr=2,
                pass_fds=(),
                user=None,
                cwd=str(Path.cwd()),
                env=_environment(),
            ),
            trio.lowlevel.FdStream(os.dup(said)) as stream,
        ):
            os.close(said_end)
            said_end = -1
            rest = b""
            async for chunk in stream:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    found = _heard(request, json.loads(line), started) or found
    finally:
        for fd in (lifeline, lifeline_end, said, said_end):
            if fd >= 0:
                os.close(fd)
    if found is None:
        raise ConfigError(f"data set {request.dataset!r}: loading it failed, as said above")
    return found


def _heard(request: Request, event: Mapping[str, Any], started: float) -> Prepared | None:
    """Return what was prepared, if the child says so.

    Raises:
        ConfigError: The child says that it cannot be.
    """
    if "error" in event:
        raise ConfigError(event["error"])
    seconds = time.monotonic() - started
    if "doing" in event:
        log_event(
            "dataset.loading",
            dataset=request.dataset,
            doing=event["doing"],
            rows=event["rows"] or None,
            seconds=seconds,
        )
        return None
    log_event("dataset.loaded", logging.DEBUG, dataset=request.dataset, seconds=seconds)
    values = event["prepared"]
    return Prepared(
        kind=values["kind"],
        revision=values["revision"],
        training=_part(values["training"]),
        evaluation=None if values["evaluation"] is None else _part(values["evaluation"]),
    )


def _part(values: Mapping[str, Any]) -> Part:
    scan = {**values["scan"], "dropped": [(id_, why) for id_, why in values["scan"]["dropped"]]}
    return Part(name=values["name"], files=tuple(values["files"]), scan=Scan(**scan))


def _environment() -> dict[str, str]:
    paths = [_PACKAGE_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if not sys.stderr.isatty():
        for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
            environment.setdefault(name, "1")
    return environment


def _main() -> None:
    """Be the child: prepare what the first argument asks for."""
    threading.Thread(target=_end_with_server, daemon=True).start()
    # What libraries print must not be taken for our words.
    with os.fdopen(os.dup(1), "w") as said:
        os.dup2(2, 1)

        def say(**event: Any) -> None:
            print(json.dumps(event), file=said, flush=True)

        values = json.loads(sys.argv[1])
        request = Request(**{**values, "columns": Columns(**values["columns"])})
        try:
            prepared = prepare(request, lambda doing, rows: say(doing=doing, rows=rows))
        except ConfigError as error:
            say(error=str(error))
        else:
            say(prepared=asdict(prepared))


def _end_with_server() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


if __name__ == "__main__":
    _main()
