"""One run of a program: its descriptors, and the tasks that follow it to its end.

Owns the pipes to a cell's first process, the limit on output, and what is made of the reports; the
limits on time are `watch`'s. What is started is the caller's choice: a command line that ends in
the runner.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol

import trio
from attrs import frozen

from ..errors import NotScored
from ..process import (
    read_at_once,
    read_bounded,
    read_tail,
    start_child,
    take_bounded,
    take_tail,
)
from .limits import CPU, EXITED, OUTPUT, CellLimits, Ending, Outcome, Program
from .memory import MemoryGroup
from .watch import StepAside, Watch

__all__ = ["Command", "Run", "Running", "numbers_of", "pipe", "sealed_file"]

_NOFILE = 256
_STDERR_BYTES = 8192
_RESULT_BYTES = 4096
_DRAIN_SECONDS = 5.0
_SOON_SECONDS = 0.02
_CELLS_SECONDS = 0.05  # what a warm cell's parents take for a run; a group counts them too
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_SIGXCPU, _SIGKILL = -24, -9


@frozen(kw_only=True)
class Command:
    """How the runner is started.

    `depth` is how far below the started child the program is: the runner, and above it bubblewrap's
    two processes. `processes` are those of the same user that RLIMIT_NPROC counts and that are not
    the program's.
    """

    argv: Sequence[str]
    fds: Sequence[int] = ()
    user: int | None
    cwd: str
    env: Mapping[str, str]
    depth: int
    processes: int = 0


def numbers_of(limits: CellLimits, *, processes: int) -> tuple[int, ...]:
    """Return the runner's limits: descriptors, address space, processes and CPU seconds.

    `processes` are others of the same user, which RLIMIT_NPROC counts too.
    """
    return (
        _NOFILE,
        limits.memory_limit_bytes,
        limits.process_limit + processes,
        int(limits.cpu_limit_seconds) + 1,
    )


def sealed_file(stack: ExitStack, content: bytes) -> int:
    """Return a sealed read-only file in memory, closed with the stack."""
    fd = os.memfd_create("cell", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, fd)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


class Running(Protocol):
    """What a run is followed by: a process above the program, and how to end the program."""

    @property
    def pid(self) -> int:
        """The process that all of the program's are below."""

    def kill(self) -> None:
        """Kill the program and all it started at once; harmless when it has ended."""

    async def wait(self) -> None:
        """Wait for the program's end."""


class Run:
    """One run: what is known of it so far, and the tasks that follow it."""

    def __init__(
        self,
        program: Program,
        limits: CellLimits,
        memory: MemoryGroup | None,
        step_aside: StepAside,
    ) -> None:
        self._program = program
        self._limits = limits
        self._memory = memory
        self._depth = 0
        self._ending: Ending = EXITED
        self._begun = trio.Event()
        self._begun_at = self._ended_at = 0.0
        self._is_compiled = True
        self._exit_code: int | None = None
        self._watch = Watch(limits, step_aside, self._counted_seconds)
        self._counted_before = 0.0
        self._peak_memory_bytes = 0
        self._stdout = bytearray()
        self._stderr = bytearray()

    async def follow(self, command: Command) -> Outcome:
        """Start the runner and follow it to the end; cancelled, every process of it is killed.

        Raises:
            NotScored: The program was not begun.
            OSError: The runner could not be started.
        """
        limits, program, memory = self._limits, self._program, self._memory
        self._depth = command.depth
        with ExitStack() as ours, ExitStack() as theirs:
            stdin = sealed_file(theirs, program.stdin)
            stdout, stderr, result = (pipe(ours, theirs) for _ in range(3))
            lifeline, lifeline_end = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, lifeline)
            ours.callback(os.close, lifeline_end)
            groups = () if memory is None else memory.procs_fds
            numbers = (
                result[1],
                lifeline,
                ",".join(map(str, groups)),
                *numbers_of(limits, processes=command.processes),
            )
            async with start_child(
                [*command.argv, *map(str, numbers), program.fn_name or "", *program.arguments],
                stdin=stdin,
                stdout=stdout[1],
                stderr=stderr[1],
                pass_fds=[*command.fds, result[1], lifeline, *groups],
                user=command.user,
                cwd=command.cwd,
                env=command.env,
            ) as child:
                theirs.close()
                child.give_way()
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._read_reports, result[0])
                    await self._watch_all(child, stdout[0], stderr[0])
        return self._outcome()

    async def follow_begun(self, running: Running, *, depth: int, stdout: int, stderr: int) -> None:
        """Follow a program that begins now, `depth` processes below a running one, to its end."""
        self._depth = depth
        self._begin()
        # Most programs end soon, and what they print lies in the pipes then: no task is needed.
        with trio.move_on_after(_SOON_SECONDS):
            await self._end(running)
            if self._take_all(running, stdout, stderr):
                return
        await self._watch_all(running, stdout, stderr)

    async def _end(self, child: Running) -> None:
        """Wait for the end of the run, and let none of its processes outlive it."""
        if not self._ended_at:
            await child.wait()
            self._ended_at = trio.current_time()
            child.kill()

    def _take_all(self, child: Running, stdout: int, stderr: int) -> bool:
        """Take what an ended run has left in its pipes; return whether that is all."""

        def take(chunk: bytes) -> None:
            output_bytes = self._limits.output_limit_bytes
            take_bounded(chunk, self._stdout, output_bytes, lambda: self._cut(child, OUTPUT))

        errors = read_at_once(stderr, lambda chunk: take_tail(chunk, self._stderr, _STDERR_BYTES))
        return read_at_once(stdout, take) and errors

    def conclude(self, reports: bytes) -> Outcome:
        """Return what came of a run that `follow_begun` has followed.

        Raises:
            NotScored: The program was not begun.
        """
        for line in reports.splitlines():
            self._take_report(line.split())
        return self._outcome()

    @property
    def is_cut(self) -> bool:
        """Whether a limit has ended the program."""
        return self._ending != EXITED or self._has_run_out()

    async def _watch_all(self, child: Running, stdout: int, stderr: int) -> None:
        def overflow() -> None:
            self._cut(child, OUTPUT)

        output_bytes = self._limits.output_limit_bytes
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_time, child)
            async with trio.open_nursery() as readers:
                readers.start_soon(read_bounded, stdout, self._stdout, output_bytes, overflow)
                readers.start_soon(read_tail, stderr, self._stderr, _STDERR_BYTES)
                await self._end(child)
                # All writers end with their pid namespace; without one, some may live on.
                readers.cancel_scope.deadline = self._ended_at + _DRAIN_SECONDS
            nursery.cancel_scope.cancel()

    async def _read_reports(self, fd: int) -> None:
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
                self._begin()
            case [b"uncompiled"]:
                self._is_compiled = False
            case [b"done", status, seconds, memory]:
                self._exit_code = os.waitstatus_to_exitcode(int(status))
                self._watch.cpu_seconds = max(self._watch.cpu_seconds, float(seconds))
                self._peak_memory_bytes = int(memory)

    def _begin(self) -> None:
        if not self._begun.is_set():
            self._begun_at = trio.current_time()
            self._counted_before = 0.0 if self._memory is None else self._memory.cpu_seconds
            self._begun.set()

    def _counted_seconds(self) -> float:
        """Return the least CPU time that the group says the program has used."""
        if self._memory is None:
            return 0.0
        return self._memory.cpu_seconds - self._counted_before - _CELLS_SECONDS

    def _cut(self, child: Running, ending: Ending) -> None:
        if self._ending == EXITED:
            self._ending = ending
        child.kill()

    async def _watch_time(self, child: Running) -> None:
        """End the run at its CPU or wall limit."""
        await self._begun.wait()
        self._cut(child, await self._watch.reach_limit(child.pid, self._depth))

    def _outcome(self) -> Outcome:
        if not self._begun.is_set():
            said = self._stderr.decode("utf-8", "replace").strip()[-300:]
            raise NotScored(f"the cell did not start: {said or 'it was killed'}")
        exit_code, memory = self._exit_code, self._memory
        if exit_code is None and self._ending == EXITED:
            exit_code = _SIGKILL  # the program killed its own cell
        cpu_seconds = max(self._watch.cpu_seconds, self._counted_seconds())
        is_over = cpu_seconds > self._limits.cpu_limit_seconds
        if self._ending == EXITED and (is_over or exit_code == _SIGXCPU):
            self._ending = CPU
        group_bytes = 0 if memory is None else memory.peak_bytes
        return Outcome(
            ending=self._ending,
            exit_code=exit_code if self._ending == EXITED else None,
            is_compiled=self._is_compiled,
            stdout=bytes(self._stdout),
            stderr_tail=bytes(self._stderr),
            cpu_seconds=cpu_seconds,
            wall_seconds=max(0.0, self._ended_at - self._begun_at),
            peak_memory_bytes=max(self._peak_memory_bytes, group_bytes),
            is_out_of_memory=self._has_run_out(),
        )

    def _has_run_out(self) -> bool:
        return self._memory is not None and self._memory.has_run_out


def pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """Return a pipe's read end, closed with `ours`, and its write end, closed with `theirs`."""
    read_end, write_end = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, read_end)
    theirs.callback(os.close, write_end)
    return read_end, write_end
