"""Warm cells: bubblewraps started ahead of need, in which an interpreter waits for programs.

Owns the pool of cells and the host's side of `warm_parent`'s socket; following a run is `run`'s
work. A cell serves one program at a time, and a test costs it two forks instead of two programs'
starts. A cell in which anything went wrong, a limit or a cancellation among it, is killed whole,
and the next is started meanwhile.
"""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import trio
from attrs import frozen

from ..background import background
from ..errors import ConfigError, NotScored
from ..process import Child, children, start_child
from ..processors import usable_processors
from .bwrap import CELL_UID, Bubblewrap, Interpreter, cell_environment, find_bubblewrap
from .cells import (
    PACKAGE,
    RUNNER,
    Cells,
    OpenCells,
    failures_not_scored,
    memory_group,
    memory_groups,
)
from .limits import CellLimits, Outcome, Program
from .memory import MemoryGroup, MemoryGroups
from .run import Run, numbers_of, pipe, sealed_file
from .seccomp import deny_filter
from .staging import staged_prefix
from .watch import StepAside, stay

__all__ = ["CONTEST_MODULES", "WarmCell", "warm_cells"]

CONTEST_MODULES = (
    "bisect", "collections", "copy", "dataclasses", "decimal", "fractions", "functools", "heapq",
    "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
    "threading", "typing",
)  # fmt: skip
"""What programs usually import, loaded once for a cell."""

_PARENT = (Path(__file__).parent / "warm_parent.py").read_bytes()
_ESCAPES = (Path(__file__).parent / "escapes.py").read_bytes()
_COVERED = ("/tmp", "/dev/shm", "/cell", "/proc")  # what each test has its own of
_CAPABILITIES = ("CAP_SYS_ADMIN", "CAP_SETPCAP")
_ALL_LIMITS = CellLimits()  # of a cell itself; each program brings its own
_MOST_RUNS = 4096
_SPARES = 2
_START_SECONDS = 60.0
_LEAVE_SECONDS = 15.0
_REPORT_BYTES = 4096
_SAID_BYTES = 4096
_PARENT_DEPTH = 3  # below bubblewrap: its inner process, and what entered a pid namespace
_PROGRAM_DEPTH = 2  # below the parent: the test's init, and its program
_OWN_PROCESSES = 2  # a test's init and the second of two parents, which a cold cell has not


class WarmCell:
    """One cell, ready or with a run in it; the pool makes it and ends it."""

    def __init__(
        self, child: Child, control: socket.socket, output: int, memory: MemoryGroup | None
    ) -> None:
        self.pid = -1
        self.is_fit = True
        """Whether another program may be run in it; once False, always."""
        self.is_succeeded = False
        """Whether a next cell has been started already: this one ends with its run."""
        self.discarded = trio.Event()
        self.ended = trio.Event()
        self._child = child
        self._control = control
        self._output = output
        self._memory = memory
        self._parents_bytes = 0
        self._reports = b""
        self._is_running = True
        self._runs_left = _MOST_RUNS

    async def get_ready(self) -> None:
        """Wait until the parent has loaded all it needs.

        Raises:
            NotScored: It ended, or took too long.
        """
        with trio.move_on_after(_START_SECONDS):
            await self.wait()
        below = [self._child.pid]
        for _ in range(_PARENT_DEPTH):
            below = [grandchild for pid in below for grandchild in children(pid)]
        if self._reports != b"ready\n" or len(below) != 1:
            raise NotScored(f"a warm cell did not start: {self._said()}")
        self.pid = below[0]
        self._parents_bytes = self._memory.used_bytes if self._memory else 0

    async def run(self, program: Program, limits: CellLimits, step_aside: StepAside) -> Outcome:
        """Run a program; cancelled, the whole cell is killed and its end awaited.

        Raises:
            NotScored: The cell failed, not the program.
            OSError: The run could not be begun.
        """
        run = Run(program, limits, self._memory, step_aside)
        try:
            with ExitStack() as ours, ExitStack() as theirs:
                stdout, stderr = pipe(ours, theirs), pipe(ours, theirs)
                self._send(program, limits, theirs, (stdout[1], stderr[1]))
                theirs.close()
                await run.follow_begun(
                    self, depth=_PROGRAM_DEPTH, stdout=stdout[0], stderr=stderr[0]
                )
            if not self.is_fit and not run.is_cut:
                raise NotScored(f"a warm cell ended in mid-run: {self._said()}")
            outcome = run.conclude(self._reports)
            self._runs_left -= 1
            # A group counts its out-of-memory kills for its whole life.
            self.is_fit &= self._runs_left > 0 and not outcome.is_out_of_memory
            self.is_fit &= not self.is_succeeded
        finally:
            self.kill()
            if not self.is_fit:
                self.discarded.set()
                with trio.move_on_after(_LEAVE_SECONDS, shield=True):
                    await self.ended.wait()
        return outcome

    def _send(
        self, program: Program, limits: CellLimits, theirs: ExitStack, outputs: tuple[int, int]
    ) -> None:
        if self._memory is not None:
            self._memory.limit(self._parents_bytes + limits.memory_limit_bytes)
            self._memory.forget_peak()
        files = [("main.py", program.source), *program.files]
        request = {
            "files": [(name, len(content)) for name, content in files],
            "limits": numbers_of(limits, processes=_OWN_PROCESSES),
            "tmp_limit_bytes": limits.tmp_limit_bytes,
            "call": program.fn_name or "",
            "arguments": program.arguments,
        }
        content = sealed_file(theirs, b"".join(content for _, content in files))
        stdin = sealed_file(theirs, program.stdin)
        self._is_running = True  # whatever comes of the sending
        socket.send_fds(self._control, [json.dumps(request).encode()], [content, stdin, *outputs])

    def _said(self) -> str:
        """Return what the parent has written, which it does only when it fails."""
        try:
            said = os.read(self._output, _SAID_BYTES)
        except BlockingIOError:
            said = b""
        return said.decode("utf-8", "replace").strip()[-300:] or "it was killed"

    def kill(self) -> None:
        """Kill the whole cell, if a program is running in it."""
        if self._is_running:
            self.is_fit = False
            self._child.kill()

    async def wait(self) -> None:
        """Wait for the running program's end, and take the parent's reports of it."""
        await trio.lowlevel.wait_readable(self._control)
        try:
            self._reports = self._control.recv(_REPORT_BYTES)
        except OSError:
            self._reports = b""
        self._is_running = False
        self.is_fit &= bool(self._reports)


@frozen(kw_only=True)
class _Opener:
    """Starts a cell: all that one needs and that all share."""

    bubblewrap: Bubblewrap
    interpreter: Interpreter
    prefix_source: str
    user: int | None
    hidden: Sequence[Path]
    modules: Sequence[str]
    seccomp: bytes
    groups: MemoryGroups | None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[WarmCell]:
        """Start a cell and wait until it is ready; on every way out it is killed.

        Raises:
            NotScored: It did not start.
        """
        with (
            failures_not_scored(),
            ExitStack() as ours,
            ExitStack() as theirs,
            memory_group(self.groups, _ALL_LIMITS) as group,
        ):
            control, far_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.callback(control.close)
            theirs.callback(far_control.close)
            control.setblocking(False)
            output = pipe(ours, theirs)
            os.set_blocking(output[0], False)
            argv, fds = self._command(theirs, far_control.fileno(), group)
            cell = None
            try:
                async with start_child(
                    argv,
                    stdin=sealed_file(theirs, b""),
                    stdout=output[1],
                    stderr=output[1],
                    pass_fds=fds,
                    user=self.user,
                    cwd="/",
                    env=cell_environment(),
                ) as child:
                    theirs.close()
                    child.give_way()
                    cell = WarmCell(child, control, output[0], group)
                    await cell.get_ready()
                    yield cell
            finally:
                if cell is not None:
                    cell.ended.set()

    def _command(
        self, theirs: ExitStack, control: int, group: MemoryGroup | None
    ) -> tuple[list[str], list[int]]:
        """Return a cell's command line, and the descriptors that it names."""
        contents = {"runner.py": RUNNER, "warm_parent.py": _PARENT, "filter": self.seccomp}
        files = [
            (f"/cell/{name}", sealed_file(theirs, content)) for name, content in contents.items()
        ]
        argv = self.bubblewrap.cell(
            self.interpreter,
            _ALL_LIMITS,
            prefix_source=self.prefix_source,
            hidden=self.hidden,
            files=files,
            seccomp_fd=None,
            capabilities=_CAPABILITIES,
        )
        groups = () if group is None else group.procs_fds
        fds = [control, *(fd for _, fd in files), *groups]
        joined = ",".join(map(str, groups))
        return [*argv, "/cell/warm_parent.py", str(control), joined, *self.modules], fds


class _Pool:
    """Cells that are ready, and the tasks that hold them."""

    def __init__(self, opener: _Opener, nursery: trio.Nursery) -> None:
        self._opener = opener
        self._nursery = nursery
        self._put, self._ready = trio.open_memory_channel[WarmCell | NotScored](math.inf)

    def start(self) -> None:
        """Start a cell; it is ready some time later."""
        self._nursery.start_soon(self._hold)

    async def _hold(self) -> None:
        try:
            async with self._opener.open() as cell:
                self._put.send_nowait(cell)
                await cell.discarded.wait()
        except NotScored as error:
            self._put.send_nowait(error)  # a run learns of it, and has the next one started

    async def run(
        self, program: Program, limits: CellLimits, step_aside: StepAside = stay
    ) -> Outcome:
        """Run a program in the next cell that is ready; one that steps aside gets a successor."""
        cell = await self._ready.receive()
        if isinstance(cell, NotScored):
            self.start()
            raise cell

        def step_aside_and_succeed() -> bool:
            if not step_aside():
                return False
            cell.is_succeeded = True
            self.start()
            return True

        try:
            with failures_not_scored():
                return await cell.run(program, limits, step_aside_and_succeed)
        finally:
            if cell.is_fit:
                self._put.send_nowait(cell)
            elif not cell.is_succeeded:
                self.start()


@asynccontextmanager
async def warm_cells(
    interpreter: Interpreter,
    *,
    hidden: Sequence[Path] = (),
    modules: Sequence[str] = CONTEST_MODULES,
    size: int | None = None,
) -> AsyncIterator[Cells]:
    """Give warm cells, proven to keep programs in and apart.

    `hidden` is as for cold cells; `modules` are loaded ahead in each cell; `size` is how many run
    programs at once, as many as processors by default, and some more stand ready.

    Raises:
        ConfigError: They cannot be had here, and why.
    """
    bubblewrap = find_bubblewrap()
    seccomp = deny_filter()
    if seccomp is None:
        raise ConfigError("warm cells need libseccomp; install it (Debian, Ubuntu: libseccomp2)")
    if "--disable-userns" not in bubblewrap.options:
        raise ConfigError(f"warm cells need bubblewrap 0.8 or later: {bubblewrap.path} is older")
    for path in _COVERED:
        if Path(interpreter.prefix).is_relative_to(path):
            raise ConfigError(f"warm cells cannot run an interpreter below {path}")
    user = CELL_UID if os.geteuid() == 0 else None
    async with memory_groups(user) as groups:
        with staged_prefix(interpreter.prefix, user) as prefix_source:
            opener = _Opener(
                bubblewrap=bubblewrap,
                interpreter=interpreter,
                prefix_source=prefix_source,
                user=user,
                hidden=[path.resolve() for path in (PACKAGE, *hidden)],
                modules=modules,
                seccomp=seccomp,
                groups=groups,
            )
            async with background() as nursery:
                pool = _Pool(opener, nursery)
                pool.start()
                fault = await _fault(pool)
                if fault is not None:
                    raise ConfigError(fault)
                for _ in range((size or usable_processors()) + _SPARES - 1):
                    pool.start()
                missing = "" if groups else ", not enforced: memory beyond RLIMIT_AS"
                yield OpenCells("bwrap" + missing, "warm", pool.run)


async def _fault(pool: _Pool) -> str | None:
    """Let a program try to get out of a cell, and to reach the next one; None if it cannot."""
    for _ in range(2):
        try:
            outcome = await pool.run(Program(source=_ESCAPES, stdin=b""), _ALL_LIMITS)
        except NotScored as error:
            return f"warm cells do not work here: {error}"
        if outcome.stdout != b"held\n":
            said = (outcome.stdout + outcome.stderr_tail).decode("utf-8", "replace")
            return f"warm cells do not hold here: {said.strip()[-300:]}"
    return None
