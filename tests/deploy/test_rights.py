"""Cells start with the rights that the files of docs/deploy leave, and not with fewer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
UID = "10001"  # the Dockerfile's

# A container without an engine: namespaces of its own, a read-only root, a user without a name, no
# capability now or later. `$1` is run before the rights are given up.
CONTAINER = """
set -e
eval "$1"
shift
mount -o remount,bind,ro /
exec setpriv --reuid "$UID_INSIDE" --regid "$UID_INSIDE" --clear-groups \
    --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""


def uncovered(stage: Path) -> str:
    """Return commands that put back what another user cannot reach for the directories above it."""
    commands = []
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT}
    for number, path in enumerate(sorted(needed)):
        if all(parent.stat().st_mode & 0o001 for parent in path.parents):
            continue
        top = Path(*path.parts[:2])
        commands += [f"mkdir {stage}/{number}", f"mount --bind {path} {stage}/{number}"]
        commands += [f"mount -t tmpfs -o mode=755 none {top}", f"mkdir -p {path}"]
        commands += [f"mount --bind {stage}/{number} {path}"]
    return "; ".join(commands)


def judged_inside(before: str = "true") -> subprocess.CompletedProcess[str]:
    """Judge a wrong program in a container of which `before` changes something."""
    with tempfile.TemporaryDirectory() as stage:
        return subprocess.run(
            [
                *("unshare", "--mount", "--pid", "--fork", "--mount-proc"),
                *("sh", "-c", CONTAINER, "sh", f"{uncovered(Path(stage)) or 'true'}; {before}"),
                *(sys.executable, "-m", "envhost", "score", "bundled:lists", "-", "--row", "0"),
            ],
            cwd=ROOT,
            env={
                "HOME": "/",
                "PATH": os.environ["PATH"],
                "UID_INSIDE": UID,
                "PYTHONPATH": str(ROOT),
            },
            input="print('no number')",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(autouse=True)
def _needs_root() -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: only root can make such a container")


@pytest.mark.slow
def test_a_program_is_judged_in_a_container() -> None:
    """Not root, no capability, no new privileges, a read-only root: verdict WA."""
    ended = judged_inside()
    assert ended.stderr == ""
    assert " WA " in ended.stdout
    assert ended.returncode == 1  # not all programs were right


@pytest.mark.slow
def test_a_covered_proc_is_why_systempaths_are_unconfined() -> None:
    """With a part of /proc covered, as Docker covers some, no cell starts; the flag is named."""
    ended = judged_inside("mount --bind /dev/null /proc/version")
    assert ended.returncode == 2
    assert "Can't mount proc" in ended.stderr
    assert "--security-opt systempaths=unconfined" in ended.stderr
