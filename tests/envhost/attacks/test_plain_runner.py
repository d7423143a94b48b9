"""The runner outside of a cell, where nobody but itself ends what a program leaves behind."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from leftovers import nothing_left

from envhost.sandbox import runner

LEAVES_A_CHILD = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    time.sleep(1e9)
sys.stdin.read()
"""
LIMITS = ("256", str(1 << 30), "4096", "10")


def command(place: Path, result: int, lifeline: int) -> list[str]:
    """Write a program's files and return what runs it."""
    (place / "main.py").write_text(LEAVES_A_CHILD)
    shutil.copy(runner.__file__, place / "runner.py")
    numbers = [str(result), str(lifeline), "", *LIMITS, ""]
    return [sys.executable, "-S", "-s", "-P", str(place / "runner.py"), *numbers]


def test_a_report_that_nobody_reads(tmp_path: Path) -> None:
    """A host that dies as a program ends keeps the runner from no duty."""
    with nothing_left():
        lifeline, lifeline_end = os.pipe()
        reports, result = os.pipe()
        process = subprocess.Popen(
            command(tmp_path, result, lifeline), stdin=subprocess.PIPE, pass_fds=(result, lifeline)
        )
        os.close(result)
        assert os.read(reports, 100) == b"begun\n"
        os.close(reports)
        process.communicate(b"", timeout=60)
        assert process.returncode == 0
        os.close(lifeline)
        os.close(lifeline_end)


def test_a_host_with_less_than_the_limits(tmp_path: Path) -> None:
    """Where the host's own hard limits are lower than a program's, these hold, and it runs."""
    lifeline, lifeline_end = os.pipe()
    reports, result = os.pipe()
    lower = {resource.RLIMIT_CORE: 0, resource.RLIMIT_SIGPENDING: 60, resource.RLIMIT_CPU: 5}

    def limit() -> None:
        for name, most in lower.items():
            resource.setrlimit(name, (most, most))

    done = subprocess.run(
        command(tmp_path, result, lifeline),
        check=False,
        stdin=subprocess.DEVNULL,
        pass_fds=(result, lifeline),
        preexec_fn=limit,
        timeout=60,
    )
    assert done.returncode == 0
    # Nothing but what the runner says tells how the program ended.
    assert os.read(reports, 100).startswith(b"begun\ndone 0 ")
    for fd in (lifeline, lifeline_end, reports, result):
        os.close(fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a pid namespace and nothing else")
def test_a_host_that_is_the_first_process(tmp_path: Path) -> None:
    """In a container a host may be process 1, or leave its orphans to it: nothing is left then."""
    reports, result = os.pipe()
    script = '"$@" </dev/null; ls /proc | grep -c "^[0-9]"'
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "sh", "-c", script, "sh"]
    lifeline, lifeline_end = os.pipe()
    shown = subprocess.run(
        [*namespace, *command(tmp_path, result, lifeline)],
        check=False,
        capture_output=True,
        text=True,
        pass_fds=(result, lifeline),
        timeout=60,
    )
    for fd in (reports, result, lifeline, lifeline_end):
        os.close(fd)
    assert shown.stdout == "3\n", shown  # the shell, and the two that count
