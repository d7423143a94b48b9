"""Cells start with the rights that the files of docs/deploy leave, and not with fewer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from rawclient import wait_until

from envhost.client import EnvPool

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


@contextmanager
def container(*command: str, before: str = "true") -> Iterator[tuple[list[str], dict[str, str]]]:
    """Hold a container's command line and environment; `before` changes something in it."""
    with tempfile.TemporaryDirectory() as stage:
        line = [
            *("unshare", "--mount", "--pid", "--fork", "--mount-proc"),
            *("sh", "-c", CONTAINER, "sh", f"{uncovered(Path(stage)) or 'true'}; {before}"),
            *command,
        ]
        yield (
            line,
            {
                "HOME": "/",
                "PATH": os.environ["PATH"],
                "UID_INSIDE": UID,
                "PYTHONPATH": str(ROOT),
            },
        )


def judged_inside(before: str = "true") -> subprocess.CompletedProcess[str]:
    """Judge a wrong program in a container."""
    score = (sys.executable, "-m", "envhost", "score", "bundled:lists", "-", "--row", "0")
    with container(*score, before=before) as (line, environment):
        return subprocess.run(
            line,
            cwd=ROOT,
            env=environment,
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


@pytest.mark.slow
def test_the_first_process_reaps_what_killed_cells_leave() -> None:
    """With tini, as in the Dockerfile: after endless programs none waits to be reaped."""
    serve = (sys.executable, "-m", "envhost", "serve", "--port", "0", "--log-level", "error")
    options = ("--env-config", '{"cpu_limit_seconds": 0.2}')
    with container("tini", "--", *serve, *options) as (line, environment):
        outside = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, text=True)
        try:
            assert outside.stdout is not None
            url = outside.stdout.readline().split()[1]
            (init,) = psutil.Process(outside.pid).children()
            with EnvPool(url, 3) as pool:
                for slot in range(3):
                    pool.submit_reset(slot, seed=slot)
                    pool.submit(slot, "```python\nwhile True: pass\n```")
                steps = [result for result in pool.results() if result.kind == "step"]
            assert [result.info["verdict"] for result in steps] == ["TLE"] * 3
            wait_until(lambda: _zombies(init) == [])
            init.send_signal(signal.SIGTERM)
            wait_until(lambda: not init.is_running())
        finally:
            # Changing its user has freed the first process inside from dying with `unshare`.
            for process in (*psutil.Process(outside.pid).children(), outside):
                process.kill()
            outside.communicate()


def _zombies(parent: psutil.Process) -> list[psutil.Process]:
    return [p for p in parent.children(recursive=True) if p.status() == psutil.STATUS_ZOMBIE]
