"""The real packages, each in a virtual environment of its own that is kept between runs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = Path(__file__).parent / "peers"
# GEM grades with pylatexenc, which it does not name.
GEM_PINS = ("gem-llm==0.1.0", "datasets>=4,<6", "pylatexenc==2.10")


@cache
def _python(*pins: str) -> str:
    done = subprocess.run(
        [ROOT / "scripts" / "interop_venv.sh", *pins],
        stdout=subprocess.PIPE,
        env={"PYTHON": sys.executable, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def peer_python() -> Callable[[str], str]:
    """Return a function from a pin to the Python that has it."""
    return _python


def _own_pins() -> tuple[str, ...]:
    """Return what envhost itself needs, in the tried versions."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split(r"[^\w-]", need)[0] for need in project["dependencies"]}
    pins = (ROOT / "constraints-cpu.txt").read_text().split()
    return tuple(sorted(pin for pin in pins if pin.partition("==")[0] in names))


@pytest.fixture(scope="session")
def gem_python() -> str:
    """Return a Python with GEM in it, which can run envhost too."""
    return _python(*GEM_PINS, *_own_pins())


@pytest.fixture(scope="session")
def gem_packages(gem_python: str) -> str:
    """Return the directory where GEM and what it needs lie."""
    (found,) = Path(gem_python).parent.parent.glob("lib/python*/site-packages")
    return str(found)


@pytest.fixture
def run_client() -> Callable[..., Any]:
    """Return a function that runs a scenario of `openenv_client.py` and returns what it saw."""

    def run(pin: str, scenario: str, *arguments: str) -> Any:
        argv = [_python(pin), PEERS / "openenv_client.py", scenario, *arguments]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
        told = json.loads(done.stdout)
        assert told["version"].startswith(pin.partition("==")[2].rstrip("*"))
        return told["seen"]

    return run
