"""The real packages, each in a virtual environment of its own that is kept between runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PEERS = Path(__file__).parent / "peers"


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


@pytest.fixture(scope="session")
def packages_of() -> Callable[..., str]:
    """Return a function from pins to the directory where those packages lie."""

    def packages(*pins: str) -> str:
        (found,) = Path(_python(*pins)).parent.parent.glob("lib/python*/site-packages")
        return str(found)

    return packages


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
