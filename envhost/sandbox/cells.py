"""Cells: where programs run, each apart from all others.

Owns the two kinds: cold cells, one bubblewrap for each run, and plain subprocesses without any
isolation. bubblewrap's command line is `bwrap`'s work, following a run is `run`'s. A run that is
cancelled has killed its processes before the cancellation goes on.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import trio
from attrs import frozen

from ..errors import NotScored
from .bwrap import CELL_UID, Interpreter, cell_environment, find_bubblewrap
from .limits import CellLimits, Outcome, Program
from .memory import MemoryGroup, MemoryGroups, find_memory_groups
from .run import Command, Run, sealed_file
from .seccomp import deny_filter
from .staging import staged_prefix
from .watch import StepAside, stay

__all__ = [
    "PACKAGE",
    "RUNNER",
    "Cells",
    "OpenCells",
    "bwrap_cells",
    "failures_not_scored",
    "memory_group",
    "memory_groups",
    "plain_cells",
]

RUNNER = (Path(__file__).parent / "runner.py").read_bytes()
PACKAGE = Path(__file__).parent.parent
_LEAVE_SECONDS = 5.0
_NAME = "envhost-run-"
_POLL_SECONDS = 0.01


class Cells(Protocol):
    """Runs programs, each apart from all others."""

    @property
    def isolation(self) -> str:
        """`bwrap` or `none`, and what is not enforced."""

    @property
    def kind(self) -> str:
        """`warm`, `cold` or `plain`, and why not warm."""

    def run(
        self, program: Program, limits: CellLimits, step_aside: StepAside = ..., /
    ) -> Awaitable[Outcome]:
        """Run a program to its end, or until a limit or a cancellation ends it.

        A program that computes or sleeps for long is set back once `step_aside` says that it may
        be; by default it never is.

        Raises:
            NotScored: The cell failed, not the program.
        """


@asynccontextmanager
async def bwrap_cells(
    interpreter: Interpreter, *, hidden: Sequence[Path] = ()
) -> AsyncIterator[Cells]:
    """Give cold cells: one bubblewrap and one interpreter for each run.

    `hidden` are files of the host with expected outputs in them; no cell shows them, nor this
    package with its bundled problems.

    Raises:
        ConfigError: There is no bubblewrap, or the interpreter cannot be reached.
    """
    bubblewrap = find_bubblewrap()
    # As root, bwrap would leave the program's real uid 0: no limit on processes would hold.
    user = CELL_UID if os.geteuid() == 0 else None
    seccomp = deny_filter()
    unseen = [path.resolve() for path in (PACKAGE, *hidden)]
    async with memory_groups(user) as groups:
        with staged_prefix(interpreter.prefix, user) as prefix_source:

            async def run(
                program: Program, limits: CellLimits, step_aside: StepAside = stay
            ) -> Outcome:
                files = [("/cell/main.py", program.source), ("/cell/runner.py", RUNNER)]
                files += [(f"/cell/{name}", content) for name, content in program.files]
                with (
                    failures_not_scored(),
                    ExitStack() as stack,
                    memory_group(groups, limits) as group,
                ):
                    given = [(path, sealed_file(stack, content)) for path, content in files]
                    fds = [fd for _, fd in given]
                    filter_fd = None
                    if seccomp is not None:
                        filter_fd = sealed_file(stack, seccomp)
                        fds.append(filter_fd)
                    argv = bubblewrap.cell(
                        interpreter,
                        limits,
                        prefix_source=prefix_source,
                        hidden=unseen,
                        files=given,
                        seccomp_fd=filter_fd,
                    )
                    argv.append("/cell/runner.py")
                    command = Command(
                        argv=argv, fds=fds, user=user, cwd="/", env=cell_environment(), depth=3
                    )
                    return await Run(program, limits, group, step_aside).follow(command)

            missing = {
                "seccomp": seccomp is None,
                "user namespaces closed": "--disable-userns" not in bubblewrap.options,
                "memory beyond RLIMIT_AS": groups is None,
            }
            named = ", ".join(name for name, is_missing in missing.items() if is_missing)
            yield OpenCells("bwrap" + (f", not enforced: {named}" if named else ""), "cold", run)


@asynccontextmanager
async def plain_cells(interpreter: Interpreter) -> AsyncIterator[Cells]:
    """Give plain subprocesses with the same limits and no isolation at all.

    Raises:
        ConfigError: The interpreter cannot be reached.
    """
    _remove_abandoned()
    user = CELL_UID if os.geteuid() == 0 else None
    async with memory_groups(user) as groups:
        with staged_prefix(interpreter.prefix, user) as prefix_source:
            executable = prefix_source + interpreter.executable.removeprefix(interpreter.prefix)
            environment = cell_environment()
            if prefix_source != interpreter.prefix:
                # A shared libpython is looked for where it was installed, and then in the system,
                # where another release's may lie.
                environment["LD_LIBRARY_PATH"] = f"{prefix_source}/lib"

            async def run(
                program: Program, limits: CellLimits, step_aside: StepAside = stay
            ) -> Outcome:
                files = [("main.py", program.source), ("runner.py", RUNNER), *program.files]
                with (
                    failures_not_scored(),
                    tempfile.TemporaryDirectory(
                        prefix=f"{_NAME}{os.getpid()}-", ignore_cleanup_errors=True
                    ) as place,
                    memory_group(groups, limits) as group,
                ):
                    _write_files(Path(place), files)
                    command = Command(
                        argv=[executable, "-S", "-s", "-P", f"{place}/runner.py"],
                        user=user,
                        cwd=place,
                        env=environment,
                        depth=1,
                        processes=_process_count(os.geteuid() if user is None else user),
                    )
                    return await Run(program, limits, group, step_aside).follow(command)

            yield OpenCells("none", "plain", run)


class RunProgram(Protocol):
    """The function that cells are; see `Cells.run`."""

    def __call__(
        self, program: Program, limits: CellLimits, step_aside: StepAside = ..., /
    ) -> Awaitable[Outcome]: ...


@frozen
class OpenCells:
    """Cells as a function that runs programs."""

    isolation: str
    kind: str
    run: RunProgram


@contextmanager
def failures_not_scored() -> Iterator[None]:
    """Too few descriptors, processes or memory for a cell is our failure, not the program's."""
    try:
        yield
    except OSError as error:
        raise NotScored(f"the cell could not be started: {error}") from error


@asynccontextmanager
async def memory_groups(user: int | None) -> AsyncIterator[MemoryGroups | None]:
    """Give the maker of memory groups, None where there is none; none of them is left after it."""
    groups = find_memory_groups(user)
    try:
        yield groups
    finally:
        with trio.move_on_after(_LEAVE_SECONDS, shield=True):
            while groups is not None and not groups.remove_left():  # noqa: ASYNC110 - the kernel's
                await trio.sleep(_POLL_SECONDS)


@contextmanager
def memory_group(groups: MemoryGroups | None, limits: CellLimits) -> Iterator[MemoryGroup | None]:
    """Give a cell's memory group, None where there are none."""
    if groups is None:
        yield None
        return
    with groups.group(limits.memory_limit_bytes) as group:
        yield group


def _write_files(place: Path, files: Sequence[tuple[str, bytes]]) -> None:
    for name, content in files:
        (place / name).write_bytes(content)
    place.chmod(0o755)


def _remove_abandoned() -> None:
    """Remove the files of runs whose server was killed: ours only, and never a whole tree."""
    for place in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        pid = place.name.removeprefix(_NAME).partition("-")[0]
        if not pid.isdecimal() or Path("/proc", pid).exists() or place.is_symlink():
            continue
        with suppress(OSError):
            for file in place.iterdir():
                file.unlink()
            place.rmdir()


def _process_count(user: int) -> int:
    """Return how many processes and threads of a user there are: RLIMIT_NPROC counts them all."""
    count = 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdecimal() and entry.stat().st_uid == user:
                count += len(os.listdir(f"/proc/{entry.name}/task"))  # noqa: PTH208 - many
        except OSError:
            continue  # it has ended
    return count
