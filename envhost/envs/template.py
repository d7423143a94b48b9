"""The server's end of a template process: start it, fork workers from it, see them end.

Owns the process (on this machine or in bubblewrap), its socket of packets and what it prints;
`worker_child` is the other end, `worker` what a session makes of a fork.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import trio
from attrs import frozen

from ..errors import ConfigError, NotScored
from ..process import descendants, start_child
from ..sandbox.bwrap import find_bubblewrap, find_interpreter
from ..sandbox.limits import CellLimits
from ..sandbox.run import sealed_file
from ..sandbox.seccomp import deny_filter
from ..telemetry import log_event

__all__ = ["Fork", "Template", "Wanted", "open_template"]

ROOT = Path(__file__).parent.parent.parent
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[2]); "
    "from envhost.envs.worker_child import main; main(int(sys.argv[1]))"
)
_PACKET_BYTES = 1 << 16
_FORK_SECONDS = 30.0
_LINE_BYTES = 1 << 14
_QUIET_LIBRARIES = {
    # A pool of threads made by an import would make the template unfit to fork.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # Sets are walked in the same order everywhere, or a seed would not mean the same.
    "PYTHONHASHSEED": "0",
}


@frozen(kw_only=True)
class Wanted:
    """What a template is to import and how its workers are kept."""

    entrypoint: str
    options: Mapping[str, Any]
    is_sandboxed: bool = False
    readable: Sequence[str] = ()
    memory_limit_bytes: int = 0


class Fork:
    """One worker's process: its socket, and its end."""

    def __init__(self, name: str, link: socket.socket) -> None:
        self.name = name
        self.link = link
        self.status: int | None = None
        self.begun = trio.Event()
        self.ended = trio.Event()
        self._pidfd = -1

    def note_begun(self, pidfd: int) -> None:
        """Take the descriptor by which the process can be killed for sure."""
        self._pidfd = pidfd
        self.begun.set()

    def note_end(self, status: int | None) -> None:
        """Take down how it ended; the template has killed what it left."""
        self.status = status
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        self.begun.set()
        self.ended.set()

    def kill(self) -> None:
        """Kill the worker and all below it; the template does the same to its orphans."""
        if self._pidfd < 0:
            return
        with suppress(ProcessLookupError):
            below = descendants(_pid_of(self._pidfd))
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            for pid in below:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _pid_of(pidfd: int) -> int:
    """Return a process's id as we see it, from whatever namespace the descriptor came."""
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    pid = next(int(line.split()[1]) for line in lines if line.startswith("Pid:"))
    if pid <= 0:
        raise ProcessLookupError
    return pid


class Template:
    """A warm process that workers are forked from; `open_template` makes it and ends it."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._forks: dict[str, Fork] = {}
        self._made = 0
        self.gone = trio.Event()

    async def get_ready(self) -> None:
        """Wait until the entrypoint is imported.

        Raises:
            ConfigError: It could not be.
        """
        await trio.lowlevel.wait_readable(self._control)
        packet = self._control.recv(_PACKET_BYTES)
        told = json.loads(packet) if packet else {"failed": "the template process ended"}
        if "failed" in told:
            if told.get("traceback"):
                log_event("template.failed", logging.ERROR)
                for line in told["traceback"].splitlines():
                    log_event("template.traceback", logging.ERROR, text=line)
            raise ConfigError(told["failed"])

    async def fork(self, memory_procs_fd: int | None = None) -> Fork:
        """Return a new worker, which joins the memory group of the descriptor.

        Raises:
            NotScored: The template has gone.
        """
        if self.gone.is_set():
            raise NotScored("the template process has gone")
        self._made += 1
        near, far = socket.socketpair()
        with far:
            fork = Fork(str(self._made), near)
            self._forks[fork.name] = fork
            fds = [far.fileno(), *(() if memory_procs_fd is None else (memory_procs_fd,))]
            try:
                socket.send_fds(self._control, [fork.name.encode()], fds)
            except OSError as error:
                del self._forks[fork.name]
                near.close()
                raise NotScored(f"the template process has gone: {error}") from error
        with trio.move_on_after(_FORK_SECONDS, shield=True):  # until it can be killed
            await fork.begun.wait()
            return fork
        raise NotScored(f"the template process did not fork within {_FORK_SECONDS:g} s")

    async def follow(self) -> None:
        """Take the template's reports until it ends; all its workers have ended then."""
        try:
            while True:
                await trio.lowlevel.wait_readable(self._control)
                packet, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, 1)
                if not packet:
                    return
                told = json.loads(packet)
                if "forked" in told:
                    self._forks[told["forked"]].note_begun(fds[0])
                else:
                    self._forks.pop(told["ended"]).note_end(told["status"])
        except OSError:
            return
        finally:
            for fork in self._forks.values():
                fork.kill()
                fork.note_end(None)
            self._forks.clear()
            self.gone.set()


@asynccontextmanager
async def open_template(wanted: Wanted) -> AsyncIterator[Template]:
    """Start a template and hold it; on every way out it and all its workers are gone.

    Raises:
        ConfigError: The entrypoint cannot be imported, or there is no sandbox.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.callback(control.close)
        theirs.callback(far.close)
        output, far_output = os.pipe()
        ours.callback(os.close, output)
        theirs.callback(os.close, far_output)
        argv, fds, environment = _command(wanted, far.fileno(), theirs)
        settings = {
            "entrypoint": _absolute(wanted.entrypoint),
            "options": wanted.options,
            "memory_limit_bytes": wanted.memory_limit_bytes,
        }
        async with start_child(
            argv,
            stdin=sealed_file(theirs, json.dumps(settings).encode()),
            stdout=far_output,
            stderr=far_output,
            pass_fds=fds,
            user=None,
            cwd="/" if wanted.is_sandboxed else str(Path.cwd()),
            env=environment,
        ):
            theirs.close()
            control.setblocking(False)
            template = Template(control)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_log_output, output)
                await template.get_ready()
                nursery.start_soon(template.follow)
                yield template
                nursery.cancel_scope.cancel()


async def _log_output(fd: int) -> None:
    """Log what the template and its workers print, line by line."""
    async with trio.lowlevel.FdStream(os.dup(fd)) as stream:
        rest = b""
        async for chunk in stream:
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_BYTES:
                lines, rest = [*lines, rest], b""
            for line in lines:
                text = line.decode("utf-8", "replace")
                log_event("environment.printed", logging.DEBUG, text=text)


def _search_path() -> list[str]:
    return [str(ROOT), *(str(Path(entry).absolute()) for entry in sys.path if entry != str(ROOT))]


def _absolute(entrypoint: str) -> str:
    """Return a file's entrypoint with its full path; a module's as it is."""
    place, _, name = entrypoint.rpartition(":")
    return f"{Path(place).absolute()}:{name}" if place.endswith(".py") else entrypoint


def _command(
    wanted: Wanted, control: int, theirs: ExitStack
) -> tuple[list[str], list[int], dict[str, str]]:
    """Return the template's command line, the descriptors it is given, and its environment."""
    path = json.dumps(_search_path())
    if not wanted.is_sandboxed:
        environment = {**_QUIET_LIBRARIES, **os.environ, "PYTHONHASHSEED": "0"}
        return [sys.executable, "-c", _BOOT, str(control), path], [control], environment
    bubblewrap, interpreter, seccomp = find_bubblewrap(), find_interpreter(None), deny_filter()
    fds = [control]
    seccomp_fd = None
    if seccomp is not None:
        seccomp_fd = sealed_file(theirs, seccomp)
        fds.append(seccomp_fd)
    argv = bubblewrap.cell(
        interpreter,
        CellLimits(),
        prefix_source=interpreter.prefix,
        hidden=(),
        files=(),
        seccomp_fd=seccomp_fd,
        shown=_shown(wanted),
        variables=_QUIET_LIBRARIES,
    )
    return [*argv, "-c", _BOOT, str(control), path], fds, dict(os.environ)


def _shown(wanted: Wanted) -> list[Path]:
    """Return what of the host a sandboxed environment may read, beside the interpreter."""
    place = _absolute(wanted.entrypoint).rpartition(":")[0]
    files = [str(Path(place).parent)] if place.endswith(".py") else []
    wishes = [Path(name) for name in wanted.readable]
    for wish in wishes:
        if not wish.exists():
            raise ConfigError(f"readable: no such file or directory: {wish}")
    candidates = [Path(name) for name in (*_search_path(), sys.prefix, *files)]
    return [path.absolute() for path in (*candidates, *wishes) if path.exists()]
