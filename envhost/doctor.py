"""The doctor: proof that each guard of the sandbox holds, by a program that tries to break it.

Every guard is tried in cold cells, which any server can fall back to, and in warm ones where they
are to be had, since a server prefers them.

Owns the probes and what their outcomes mean. A guard that is vital and does not hold makes serving
programs of a model unsafe, or every reward wrong.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import trio
from attrs import evolve, field, frozen

from .errors import ConfigError, NotScored
from .judge.judging import JudgeRules
from .judge.opening import open_judge
from .processors import usable_processors
from .sandbox.bwrap import find_interpreter
from .sandbox.cells import Cells, bwrap_cells
from .sandbox.limits import CPU, EXITED, OUTPUT, STARVED, WALL, CellLimits, Outcome, Program
from .sandbox.warm import warm_cells

__all__ = ["Guard", "examine"]

_MIB = 1024 * 1024
_MEMORY_REMEDY = (
    "let the server make memory cgroups: run it as root with /sys/fs/cgroup writable, or under "
    "systemd with Delegate=yes"
)
_SECCOMP_REMEDY = "install libseccomp (Debian, Ubuntu: apt-get install libseccomp2)"
_COLD_REMEDY = 'serve with --env-config \'{"cells": "cold"}\' and report this'
_NEWER_REMEDY = "install bubblewrap 0.8 or later"

# Notes in `got` what succeeds and should not; printing nothing is a guard that holds.
_HEAD = """\
import ctypes, os, resource, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
got = []
def fails(name, call, *arguments):
    try:
        if call(*arguments) != -1: got.append(name)
    except OSError: pass
"""
_TAIL = "\nprint(*got, sep=', ')\n"


@frozen(kw_only=True)
class Guard:
    """One guard: whether it holds here, what was seen, and what to do where it does not."""

    name: str
    is_enforced: bool
    detail: str
    remedy: str = ""
    is_vital: bool = True


def _prints_nothing(outcome: Outcome) -> str:
    """Return what a probe got hold of; an empty text for nothing."""
    if outcome.ending != EXITED or outcome.exit_code != 0:
        said = outcome.stderr_tail.decode("utf-8", "replace").strip()[-200:]
        return f"the probe failed ({outcome.ending}, exit code {outcome.exit_code}): {said}"
    return outcome.stdout.decode("utf-8", "replace").strip()


def _ends_by(*endings: str) -> Callable[[Outcome], str]:
    def fault(outcome: Outcome) -> str:
        return "" if outcome.ending in endings else f"the run ended by {outcome.ending}"

    return fault


def _runs_out_of_memory(outcome: Outcome) -> str:
    return "" if outcome.is_out_of_memory else "only RLIMIT_AS, which bounds each process by itself"


@frozen(kw_only=True)
class _Probe:
    name: str
    does: str
    """What a program cannot do where the guard holds."""
    source: str
    fault: Callable[[Outcome], str] = _prints_nothing
    limits: CellLimits = field(factory=CellLimits)
    remedy: str = ""
    is_vital: bool = True


def _attempt(
    name: str,
    does: str,
    source: str,
    *,
    limits: CellLimits | None = None,
    remedy: str = "",
    is_vital: bool = True,
) -> _Probe:
    """Return a probe whose program notes what succeeds in `got`."""
    return _Probe(
        name=name,
        does=does,
        source=_HEAD + source + _TAIL,
        limits=limits or CellLimits(),
        remedy=remedy,
        is_vital=is_vital,
    )


def _probes(*, port: int, token: str) -> list[_Probe]:
    """Return the probes; `port` listens on the host, `token` names a process to leave behind."""
    package = str(Path(__file__).resolve().parent)
    return [
        _attempt(
            "host files",
            "see files of the host",
            f"for path in ('/etc/passwd', '/home', '/var', '/sys', {package + '/doctor.py'!r}):\n"
            "    if os.path.exists(path): got.append(path)",
        ),
        _attempt(
            "host processes",
            "see processes of the host",
            "pids = [name for name in os.listdir('/proc') if name.isdecimal()]\n"
            "if len(pids) > 8: got.append(f'{len(pids)} processes')",
        ),
        _attempt(
            "network",
            "reach a network",
            f"fails('loopback', socket.create_connection, ('127.0.0.1', {port}), 1)\n"
            "with open('/proc/net/dev') as file: names = file.read().split()[19:]\n"
            "if [name for name in names if name.endswith(':')] != ['lo:']: got.append(names)",
        ),
        _attempt(
            "read-only files",
            "write to the interpreter or to its own source",
            "for path in (__file__, os.__file__, sys.executable, '/x'):\n"
            "    fails(path, os.open, path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)",
        ),
        _attempt(
            "capabilities",
            "mount, change its root or its user",
            "fails('mount', libc.mount, b'none', b'/tmp', b'tmpfs', 0, None)\n"
            "fails('chroot', os.chroot, '/tmp')\n"
            "fails('setuid', os.setuid, 0)\n"
            "if '0000000000000000' not in open('/proc/self/status').read().split('CapEff:')[1]"
            "[:20]: got.append('capabilities')",
        ),
        _attempt(
            "namespaces",
            "open a user namespace of its own",
            "fails('unshare', libc.unshare, 0x10000000)",
            remedy=_NEWER_REMEDY,
            is_vital=False,
        ),
        _attempt(
            "system calls",
            "trace a process or reach a virtual machine's host",
            "fails('ptrace', libc.ptrace, 0, 0, 0, 0)\n"
            "def vsock(): socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()\n"
            "fails('AF_VSOCK', vsock)",
            remedy=_SECCOMP_REMEDY,
            is_vital=False,
        ),
        _attempt(
            "processes",
            "fork without end",
            "for number in range(100):\n"
            "    try: pid = os.fork()\n"
            "    except OSError: break\n"
            "    if not pid: time.sleep(60)\n"
            "else: got.append('100 processes')",
            limits=CellLimits(process_limit=16),
        ),
        _attempt(
            "files",
            "fill the disk or the memory with files",
            "for name in ('/tmp/x', '/dev/shm/x'):\n"
            "    try:\n"
            "        with open(name, 'wb', buffering=0) as file:\n"
            "            for _ in range(16): file.write(bytes(1 << 20))\n"
            "        got.append('16 MiB in ' + name)\n"
            "    except OSError: pass\n"
            "    os.unlink(name)",
            limits=CellLimits(tmp_limit_bytes=4 * _MIB),
            remedy=_NEWER_REMEDY,
            is_vital=False,
        ),
        _attempt(
            "memory of a process",
            "take more memory than its limit",
            "try: got.append(f'{len(bytearray(1 << 30)) >> 20} MiB')\nexcept MemoryError: pass",
            limits=CellLimits(memory_limit_bytes=256 * _MIB),
        ),
        _Probe(
            name="memory of all processes",
            does="take more memory together than the limit of one",
            source="import os, signal\n"
            "reader, writer = os.pipe()\n"
            "signal.signal(signal.SIGCHLD, lambda *_: os._exit(1))\n"
            "for _ in range(3):\n"
            "    if os.fork(): continue\n"
            "    held = bytearray(b'x') * (60 << 20)\n"
            "    os.write(writer, b'x')\n"
            "    signal.pause()\n"
            "for _ in range(3): os.read(reader, 1)\n",  # all of them hold it, or one is dead
            fault=_runs_out_of_memory,
            limits=CellLimits(memory_limit_bytes=128 * _MIB),
            remedy=_MEMORY_REMEDY,
            is_vital=False,
        ),
        _Probe(
            name="CPU time",
            does="compute beyond its limit",
            source="while True: pass",
            fault=_ends_by(CPU),
            limits=CellLimits(cpu_limit_seconds=0.2),
        ),
        _Probe(
            name="wall time",
            does="sleep beyond its limit",
            source="import time; time.sleep(60)",
            fault=_ends_by(WALL, STARVED),  # the same limit, on a busy machine
            limits=CellLimits(wall_limit_seconds=0.3),
        ),
        _Probe(
            name="output",
            does="print without end",
            source="while True: print('x' * 1000)",
            fault=_ends_by(OUTPUT),
            limits=CellLimits(output_limit_bytes=_MIB),
        ),
        _Probe(
            name="nothing left",
            does="leave a process behind",
            source="import os, sys\n"
            "if not os.fork():\n"
            "    os.setsid()\n"
            f"    code, token = 'import time; time.sleep(60)', {token!r}\n"
            "    if not os.fork(): os.execv(sys.executable, ['python', '-c', code, token])\n"
            "    os._exit(0)\n"
            "os.wait()\n",
            fault=lambda _: _still_running(token),
        ),
    ]


def _still_running(token: str) -> str:
    """Return the ids of this machine's processes that a probe left."""
    left = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if token.encode() in entry.read_bytes() and entry.parent.name != str(os.getpid()):
                left.append(entry.parent.name)
        except OSError:
            continue  # it has ended
    return f"process {', '.join(left)}" if left else ""


async def examine(python: str | None = None) -> list[Guard]:
    """Try to break each guard of a cell and return what held, the canary first.

    Where a known-right program is not judged right, that is the only result.

    Args:
        python: The interpreter that runs the programs; None for our own.
    """
    rules = JudgeRules()
    try:
        async with open_judge(rules, kind="cold", python=python, hidden=()):
            pass
    except ConfigError as error:
        return [Guard(name="programs run", is_enforced=False, detail=str(error))]
    interpreter = find_interpreter(python)
    canary = f"a known-right program is judged right, by {interpreter.executable}"
    guards = [Guard(name="programs run", is_enforced=True, detail=canary)]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        probes = _probes(port=listener.getsockname()[1], token=f"envhost-{os.urandom(8).hex()}")
        async with bwrap_cells(interpreter) as cells:
            cold = await _try_all(cells, probes)
        return [*guards, *cold, *await _examine_warm(warm_cells(interpreter), probes, cold)]


async def _examine_warm(
    opened: AbstractAsyncContextManager[Cells], probes: list[_Probe], cold: list[Guard]
) -> list[Guard]:
    """Return whether warm cells hold as cold ones do, and which of the two a server would use."""
    try:
        async with opened as cells:
            warm = await _try_all(cells, probes)
    except ConfigError as error:
        return [
            Guard(
                name="warm cells",
                is_enforced=False,
                detail=f"off: {error}",
                remedy="programs run in cold cells, which take more time",
                is_vital=False,
            ),
            Guard(name="cells", is_enforced=True, detail="serve uses cold cells"),
        ]
    missing = {guard.name for guard in cold if not guard.is_enforced}
    worse = [
        evolve(guard, name=f"warm cells: {guard.name}")
        for guard in warm
        if not guard.is_enforced and guard.name not in missing
    ]
    detail = "their self-test passed, and what a program cannot do in a cold one it "
    detail += "can" if worse else "cannot here"
    return [
        Guard(
            name="warm cells",
            is_enforced=not worse,
            detail=detail,
            remedy=_COLD_REMEDY if worse else "",
        ),
        *worse,
        Guard(name="cells", is_enforced=True, detail="serve uses warm cells"),
    ]


async def _try_all(cells: Cells, probes: list[_Probe]) -> list[Guard]:
    """Run the probes, as many at once as there are processors."""
    found: dict[str, Guard] = {}
    slots = trio.CapacityLimiter(usable_processors())

    async def attempt(probe: _Probe) -> None:
        async with slots:
            try:
                outcome = await cells.run(
                    Program(source=probe.source.encode(), stdin=b""), probe.limits
                )
                fault = probe.fault(outcome)
            except NotScored as error:
                fault = str(error)
        found[probe.name] = _guard(probe, fault)

    async with trio.open_nursery() as nursery:
        for probe in probes:
            nursery.start_soon(attempt, probe)
    return [*(found[probe.name] for probe in probes), await _try_to_share(cells)]


def _guard(probe: _Probe, fault: str) -> Guard:
    return Guard(
        name=probe.name,
        is_enforced=not fault,
        detail=f"a program {'can' if fault else 'cannot'} {probe.does}"
        + (f": {fault}" if fault else ""),
        remedy=probe.remedy if fault else "",
        is_vital=probe.is_vital,
    )


async def _try_to_share(cells: Cells) -> Guard:
    """Let one test leave files and the next one look for them."""
    places = "for place in ('/tmp', '/dev/shm', '/cell', '/dev/mqueue'):\n    "
    leave = _attempt("", "", f"{places}fails('', open, place + '/left', 'w')")
    look = _attempt(
        "tests apart",
        "find what an earlier test left",
        f"{places}if os.path.exists(place + '/left'): got.append(place)",
    )
    for probe in (leave, look):
        outcome = await cells.run(Program(source=probe.source.encode(), stdin=b""), probe.limits)
    return _guard(look, look.fault(outcome))
