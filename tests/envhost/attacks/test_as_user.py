"""The cells of a server that a normal user runs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
from leftovers import nothing_left
from programs import ATTACKS, in_warm_cell

from envhost.sandbox.staging import staged_prefix

HERE = Path(__file__).parent
UID = 4242  # nobody's: a user needs no name to run programs

# In a mount namespace of its own: what hides the interpreter is covered, the interpreter is not.
UNCOVER = """
set -e
if [ "$1" != "$2" ]; then
    mount -t tmpfs -o mode=755 none "$3"
    mkdir -p "$2"
    mount --bind "$1" "$2"
fi
shift 3
exec setpriv --reuid "$USER_ID" --regid "$USER_ID" --clear-groups "$@"
"""


# A script of the attacks' directory: `RUN DIRECTORY NAME ARGUMENT…`.
RUN = """
import os, runpy, sys
sys.argv[:2] = [os.path.join(sys.argv[1], sys.argv.pop(2))]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_as_user(python_of_user: list[str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script as the user; nothing of it may be left."""
    with nothing_left(UID):
        return subprocess.run(
            [*python_of_user, *words],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env={"HOME": "/", "PATH": os.environ["PATH"], "USER_ID": str(UID)},
        )


@pytest.fixture
def python_of_user() -> Iterator[list[str]]:
    """Return the start of a command line: an interpreter that the user reaches, with everything."""
    if os.geteuid() != 0:
        pytest.skip("not root: every other test of the cells runs as a normal user already")
    executable = os.path.realpath(sys._base_executable)
    prefix = os.path.realpath(sys.base_prefix)
    packages = str(Path(attrs.__file__).parents[1])
    with ExitStack() as stack:
        staged = stack.enter_context(staged_prefix(prefix, UID))
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="envhost-test-")))
        place.chmod(0o755)
        shutil.copytree(HERE.parents[2] / "envhost", place / "envhost")
        shutil.copytree(HERE, place / "attacks")
        packages = stack.enter_context(staged_prefix(packages, UID))
        command = ["unshare", "--mount", "sh", "-c", UNCOVER, "sh"]
        command += [staged, prefix, str(Path("/", *Path(prefix).parts[1:2]))]
        path = f"PYTHONPATH={place}:{place}/attacks:{packages}"
        yield [*command, "env", path, executable, "-c", RUN, f"{place}/attacks"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cold", "warm"])
def test_attacks_on_a_users_server(python_of_user: list[str], kind: str) -> None:
    """A server without root keeps the same promises: the whole list, and nothing left."""
    shown = run_as_user(python_of_user, "as_user.py", kind)
    assert shown.returncode == 0, shown.stderr
    told, *verdicts = map(json.loads, shown.stdout.splitlines())
    assert told["isolation"].startswith("bwrap")
    right = {attack.number: attack for attack in ATTACKS}
    if "memory" in told["isolation"]:
        right = {number: each for number, each in right.items() if not each.needs_memory_group}
    if kind == "warm":
        right = {number: in_warm_cell(each) for number, each in right.items()}
    assert {verdict["number"] for verdict in verdicts} == right.keys()
    assert [one for one in verdicts if one["verdict"] not in right[one["number"]].verdicts] == []
    codes = {one["number"]: one["exit_code"] for one in verdicts}
    expected = {number: each.exit_code for number, each in right.items() if each.exit_code}
    assert {number: codes[number] for number in expected} == expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bwrap", "warm"])
def test_a_users_host_killed_after_a_start(python_of_user: list[str], kind: str) -> None:
    """56: A user's host that is killed 0 to 10 ms after a start leaves nothing of the cell."""
    shown = run_as_user(python_of_user, "killed_host.py", kind, "40")
    assert shown.returncode == 0, shown.stderr
