"""Cells: one run of a program, start to end, under every limit.

Owns the descriptors and the watching of a run; bubblewrap's command line is `bwrap`'s work, the
process `process`'. A run that is cancelled has killed its processes before the cancellation goes
on.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol

import trio
from attrs import frozen

from ..errors import NotScored
from ..process import (
    Child,
    children,
    cpu_seconds,
    descendants,
    read_bounded,
    read_tail,
    run_delay_seconds,
    start_child,
)
from .bwrap import CELL_UID, Interpreter, cell_environment, find_bubblewrap
from .limits import CPU, EXITED, OUTPUT, STARVED, WALL, CellLimits, Outcome, Program
from .seccomp import deny_filter
from .staging import staged_prefix

__all__ = ["Cells", "bwrap_cells", "plain_cells"]

_RUNNER = (Path(__file__).parent / "runner.py").read_bytes()
_NOFILE = 256
_STDERR_BYTES = 8192
_RESULT_BYTES = 4096
_DRAIN_SECONDS = 1.0
_POLL_SECONDS = 0.05
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_SIGXCPU, _SIGKILL = -24, -9


class Cells(Protocol):
    """Runs programs, each apart from all others."""

    @property
    def isolation(self) -> str:
        """`bwrap` or `none`, and what is not enforced."""

    def run(self, program: Program, limits: CellLimits) -> Awaitable[Outcome]:
        """Run a program to its end, or until a limit or a cancellation ends it.

        Raises:
            NotScored: The cell failed, not the program.
        """


@asynccontextmanager
async def bwrap_cells(interpreter: Interpreter) -> AsyncIterator[Cells]:
    """Give cold cells: one bubblewrap and one interpreter for each run.

    Raises:
        ConfigError: There is no bubblewrap, or the interpreter cannot be reached.
    """
    bubblewrap = find_bubblewrap()
    # As root, bwrap would leave the program's real uid 0: no limit on processes would hold.
    user = CELL_UID if os.geteuid() == 0 else None
    seccomp = deny_filter()
    missing = [] if seccomp else ["seccomp"]
    if "--disable-userns" not in bubblewrap.options:
        missing.append("user namespaces closed")
    isolation = "bwrap" + (f", not enforced: {', '.join(missing)}" if missing else "")
    with staged_prefix(interpreter.prefix, user) as prefix_source:

        async def run(program: Program, limits: CellLimits) -> Outcome:
            with ExitStack() as stack:
                files = [("/cell/main.py", program.source), ("/cell/runner.py", _RUNNER)]
                files += [(f"/cell/{name}", content) for name, content in program.files]
                given = [(path, _memfd(stack, content)) for path, content in files]
                filter_fd = None if seccomp is None else _memfd(stack, seccomp)
                argv = bubblewrap.cell(
                    interpreter,
                    limits,
                    prefix_source=prefix_source,
                    files=given,
                    seccomp_fd=filter_fd,
                )
                fds = [fd for _, fd in given] + ([] if filter_fd is None else [filter_fd])
                run = _Run(program, limits, depth=3)
                return await run.start([*argv, "/cell/runner.py"], fds, user=user, cwd="/")

        yield _Cells(isolation, run)


@asynccontextmanager
async def plain_cells(interpreter: Interpreter) -> AsyncIterator[Cells]:
    """Give plain subprocesses with the same limits and no isolation at all."""
    user = CELL_UID if os.geteuid() == 0 else None
    with staged_prefix(interpreter.prefix, user) as prefix_source:
        executable = prefix_source + interpreter.executable.removeprefix(interpreter.prefix)

        async def run(program: Program, limits: CellLimits) -> Outcome:
            with tempfile.TemporaryDirectory(
                prefix="envhost-", ignore_cleanup_errors=True
            ) as place:
                _write_files(
                    Path(place),
                    [("main.py", program.source), ("runner.py", _RUNNER), *program.files],
                )
                argv = [executable, "-S", "-s", "-P", f"{place}/runner.py"]
                return await _Run(program, limits, depth=1).start(argv, [], user=user, cwd=place)

        yield _Cells("none", run)


def _write_files(place: Path, files: Sequence[tuple[str, bytes]]) -> None:
    for name, content in files:
        (place / name).write_bytes(content)
    place.chmod(0o755)


@frozen
class _Cells:
    isolation: str
    run: Callable[[Program, CellLimits], Awaitable[Outcome]]


def _memfd(stack: ExitStack, content: bytes) -> int:
    """Return a sealed read-only file in memory, closed with the stack."""
    fd = os.memfd_create("cell", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, fd)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


class _Run:
    """One run: what is known of it so far, and the tasks that follow it.

    `depth` is how far below the started child the program is: the child itself, and between them
    bubblewrap's first process and the runner.
    """

    def __init__(self, program: Program, limits: CellLimits, *, depth: int) -> None:
        self._program = program
        self._limits = limits
        self._depth = depth
        self._ending = EXITED
        self._begun = trio.Event()
        self._begun_at = self._ended_at = 0.0
        self._is_compiled = True
        self._exit_code: int | None = None
        self._cpu_seconds = 0.0
        self._peak_memory_bytes = 0
        self._stdout = self._stderr = b""

    async def start(
        self, argv: Sequence[str], fds: Sequence[int], *, user: int | None, cwd: str
    ) -> Outcome:
        """Start the runner and follow it to the end."""
        limits, program = self._limits, self._program
        with ExitStack() as ours, ExitStack() as theirs:
            stdin = _memfd(theirs, program.stdin)
            stdout, stderr, result = (_pipe(ours, theirs) for _ in range(3))
            lifeline, lifeline_end = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, lifeline)
            ours.callback(os.close, lifeline_end)
            numbers = (
                result[1],
                lifeline,
                _NOFILE,
                limits.memory_limit_bytes,
                limits.process_limit,
                int(limits.cpu_limit_seconds) + 1,
            )
            call = program.fn_name or ""
            async with start_child(
                [*argv, *map(str, numbers), call, *program.arguments],
                stdin=stdin,
                stdout=stdout[1],
                stderr=stderr[1],
                pass_fds=[*fds, result[1], lifeline],
                user=user,
                cwd=cwd,
                env=cell_environment(),
            ) as child:
                theirs.close()
                await self._follow(child, stdout[0], stderr[0], result[0])
        return self._outcome()

    async def _follow(self, child: Child, stdout: int, stderr: int, result: int) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, child)
            async with trio.open_nursery() as readers:
                readers.start_soon(self._read_stdout, stdout, child)
                readers.start_soon(self._read_stderr, stderr)
                readers.start_soon(self._read_result, result)
                await child.wait()
                self._ended_at = trio.current_time()
                child.kill()
                # All writers have ended with their pid namespace; without one, some may live on.
                readers.cancel_scope.deadline = self._ended_at + _DRAIN_SECONDS
            nursery.cancel_scope.cancel()

    async def _read_stdout(self, fd: int, child: Child) -> None:
        def overflow() -> None:
            self._cut(child, OUTPUT)

        self._stdout = await read_bounded(fd, self._limits.output_limit_bytes, overflow)

    async def _read_stderr(self, fd: int) -> None:
        self._stderr = await read_tail(fd, _STDERR_BYTES)

    async def _read_result(self, fd: int) -> None:
        received = b""
        async with trio.lowlevel.FdStream(os.dup(fd)) as stream:
            async for chunk in stream:
                received = (received + chunk)[:_RESULT_BYTES]
                while b"\n" in received:
                    line, _, received = received.partition(b"\n")
                    self._take_report(line.split())

    def _take_report(self, words: list[bytes]) -> None:
        match words:
            case [b"begun"]:
                self._begun_at = trio.current_time()
                self._begun.set()
            case [b"uncompiled"]:
                self._is_compiled = False
            case [b"done", status, seconds, memory]:
                self._exit_code = os.waitstatus_to_exitcode(int(status))
                self._cpu_seconds = max(self._cpu_seconds, float(seconds))
                self._peak_memory_bytes = int(memory)

    def _cut(self, child: Child, ending: str) -> None:
        if self._ending == EXITED:
            self._ending = ending
        child.kill()

    async def _watch(self, child: Child) -> None:
        """End the run at its CPU or wall limit."""
        await self._begun.wait()
        limits = self._limits
        cores = len(os.sched_getaffinity(0))
        while True:
            now = trio.current_time()
            left = limits.cpu_limit_seconds - self._cpu_seconds
            wall_left = self._begun_at + limits.wall_limit_seconds - now
            if wall_left <= 0:
                wall_left = self._stretched_wall_left(child, now)
                if wall_left <= 0:
                    self._cut(child, STARVED if self._is_starved else WALL)
                    return
            await trio.sleep(max(_POLL_SECONDS, min(left / cores, wall_left)))
            self._cpu_seconds = max(self._cpu_seconds, self._used(child))
            if self._cpu_seconds > limits.cpu_limit_seconds:
                self._cut(child, CPU)
                return

    _is_starved = False

    def _stretched_wall_left(self, child: Child, now: float) -> float:
        """Return the seconds left when waiting for a processor does not count, twice at most.

        Only a program of one process is believed: a crowd of its own makes its own delay.
        """
        crowd = self._program_processes(child)
        delay = run_delay_seconds(crowd[0]) if len(crowd) == 1 else 0.0
        wall = self._limits.wall_limit_seconds
        self._is_starved = delay > wall / 2
        return self._begun_at + wall + min(delay, wall) - now

    def _program_processes(self, child: Child) -> list[int]:
        level = [child.pid]
        for _ in range(self._depth):
            level = [grandchild for pid in level for grandchild in children(pid)]
        return level + [pid for one in level for pid in descendants(one)]

    def _used(self, child: Child) -> float:
        """Return the CPU seconds of the whole tree, without bubblewrap's and the runner's own."""
        level, seconds = [child.pid], 0.0
        for depth in range(1, 1000):
            if not level:
                break
            if depth > 1:
                seconds += sum(cpu_seconds(pid, own=depth > self._depth) for pid in level)
            level = [grandchild for pid in level for grandchild in children(pid)]
        return seconds

    def _outcome(self) -> Outcome:
        if not self._begun.is_set():
            said = self._stderr.decode("utf-8", "replace").strip()[-300:]
            raise NotScored(f"the cell did not start: {said or 'it was killed'}")
        exit_code = self._exit_code
        if exit_code is None and self._ending == EXITED:
            exit_code = _SIGKILL  # the program killed its own cell
        is_over = self._cpu_seconds > self._limits.cpu_limit_seconds
        if self._ending == EXITED and (is_over or exit_code == _SIGXCPU):
            self._ending = CPU
        return Outcome(
            ending=self._ending,
            exit_code=exit_code if self._ending == EXITED else None,
            is_compiled=self._is_compiled,
            stdout=self._stdout,
            stderr_tail=self._stderr,
            cpu_seconds=self._cpu_seconds,
            wall_seconds=max(0.0, self._ended_at - self._begun_at),
            peak_memory_bytes=self._peak_memory_bytes,
        )


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, read_end)
    theirs.callback(os.close, write_end)
    return read_end, write_end
