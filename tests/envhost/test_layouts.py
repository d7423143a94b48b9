"""The interpreter that programs run under, in every layout that Python is installed in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from envhost.errors import ConfigError
from envhost.sandbox.bwrap import Interpreter, find_interpreter
from envhost.sandbox.cells import bwrap_cells
from envhost.sandbox.limits import CellLimits, Program
from envhost.sandbox.warm import warm_cells

LIMITS = CellLimits()
SAY = Program(source=b"import json, math, sys; print(sys.prefix, sys.version_info[1])", stdin=b"")
NEWER = [Path.home() / ".pyenv" / "versions" / name for name in ("3.12.1", "3.13.0")]


async def said(interpreter: Interpreter) -> list[str]:
    """Return what a program in a cold cell says of its interpreter: the prefix and the release."""
    async with bwrap_cells(interpreter) as cells:
        outcome = await cells.run(SAY, LIMITS)
    assert outcome.exit_code == 0, outcome.stderr_tail
    return outcome.stdout.decode().split()


async def test_a_virtual_environment_of_uv(tmp_path: Path) -> None:
    """Through an environment that uv made the interpreter behind it is found, and runs."""
    environment = tmp_path / "venv"
    uv = Path(sys.executable).with_name("uv")
    made = [uv, "venv", "--no-config", "--offline", "--python", sys.executable, environment]
    subprocess.run(made, check=True, capture_output=True)
    found = find_interpreter(str(environment / "bin" / "python"))
    assert found == find_interpreter(None)
    assert await said(found) == [found.prefix, str(sys.version_info[1])]


def standalone() -> Path:
    """Return an interpreter that needs no library of its own beside it, as conda's does not."""
    for command in (sys.executable, "/usr/bin/python3"):
        try:
            found = find_interpreter(command)
        except ConfigError:
            continue
        needs = subprocess.run(["ldd", found.executable], capture_output=True, check=True).stdout
        if b"libpython" not in needs:
            return Path(found.executable)
    pytest.skip("no interpreter here that is one file")


def conda_prefix(place: Path) -> Path:
    """Lay an interpreter and its library out as conda does, and return the prefix."""
    executable = standalone()
    name = executable.name
    library = executable.parents[1] / "lib" / name
    prefix = place / "conda" / "envs" / "train"
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(executable, prefix / "bin" / name)
    (prefix / "bin" / "python").symlink_to(name)
    unneeded = shutil.ignore_patterns("*-packages", "__pycache__", "test", "config-*", "idlelib")
    shutil.copytree(library, prefix / "lib" / name, ignore=unneeded)
    (prefix / "conda-meta").mkdir()
    (prefix / "conda-meta" / "history").touch()
    return prefix


async def test_conda(tmp_path: Path) -> None:
    """An interpreter in a prefix of conda's, and one in a virtual environment of it, are found."""
    prefix = conda_prefix(tmp_path)
    found = find_interpreter(str(prefix / "bin" / "python"))
    assert found.prefix == str(prefix)
    assert Path(found.executable).parent == prefix / "bin"
    assert not Path(found.executable).is_symlink()
    assert (await said(found))[0] == str(prefix)

    environment = tmp_path / "venv"
    made = [prefix / "bin" / "python", "-m", "venv", "--without-pip", environment]
    subprocess.run(made, check=True, capture_output=True)
    assert find_interpreter(str(environment / "bin" / "python")) == found


def test_a_shim(tmp_path: Path) -> None:
    """What pyenv puts on PATH is a script; the interpreter that it starts is found."""
    shim = tmp_path / "python"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    shim.chmod(0o755)
    assert find_interpreter(str(shim)) == find_interpreter(None)


@pytest.mark.parametrize("home", NEWER, ids=[home.name for home in NEWER])
async def test_a_newer_release(home: Path) -> None:
    """Programs may run under another release than the server, in cold cells and in warm ones."""
    if not home.exists():
        pytest.skip(f"{home} is not there")
    found = find_interpreter(str(home / "bin" / "python3"))
    release = home.name.split(".")[1]
    assert await said(found) == [os.path.realpath(home), release]
    async with warm_cells(found, size=1) as cells:
        outcome = await cells.run(SAY, LIMITS)
    assert outcome.stdout.decode().split()[1] == release
