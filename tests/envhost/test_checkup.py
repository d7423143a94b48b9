"""`python -m envhost check`: each usual mistake is found, and what to do stands beside it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from envhost.checkup import Trial, checkup, foreign
from envhost.config import ServerConfig

pytestmark = pytest.mark.slow

FILE = Path(__file__).parent / "kept" / "wrong_envs.py"
PATIENT = Trial(limit_seconds=30.0, slow_seconds=30.0)
TRIALS = {
    "Slow": Trial(limit_seconds=30.0, slow_seconds=0.25),
    "HangingClose": Trial(limit_seconds=4.0, slow_seconds=30.0),
    "HangingStep": Trial(limit_seconds=4.0, slow_seconds=30.0),
}
MISTAKES = {
    "ThreeTuple": ("step on {'message': 'hello'} failed", "got a tuple of 3"),
    "OneReturn": ("reset failed", "expected an observation or (observation, info), got NoneType"),
    "ForeignInfo": ("step's info is not serialisable", "why.lock is a builtin_function_or_method"),
    "NotANumber": ("wrong reward", "nan travels as null"),
    "Random": ("seed ignored", "draw everything from random.Random(seed)"),
    "Clock": ("seed ignored", "two sessions with one seed began differently"),
    "Unseeded": ("seed ignored", "write reset(self, seed=None)"),
    "Shared": ("state shared between sessions", "keep what changes in self"),
    "Slow": ("slow reset", "load what does not change at the top of the module"),
    "Strict": ("step on {'message': 'hello'} failed", "a model may answer anything"),
    "HangingClose": ("close hangs", "bound every wait"),
    "HangingStep": ("step on {'message': 'hello'} hangs", "longer than 4 s"),
    "Mute": ("empty prompt", "reset gave no text"),
    "Unbuilt": ("it cannot be served", "FileNotFoundError: no such simulator"),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_mistake_is_found(name: str) -> None:
    """It alone, and in words that say what to do."""
    config = ServerConfig(entrypoint=f"{FILE}:{name}")

    findings = await checkup(config, TRIALS.get(name, PATIENT))

    mistake, remedy = MISTAKES[name]
    assert [finding.mistake for finding in findings] == [mistake]
    assert remedy in findings[0].remedy


@pytest.mark.parametrize(
    "entrypoint", [f"{FILE}:Right", "envhost.envs.repeat:Repeat", "envhost.envs.code:make"]
)
async def test_what_is_right_passes(entrypoint: str) -> None:
    """In a process, on the loop, and a factory of our own."""
    assert await checkup(ServerConfig(entrypoint=entrypoint), PATIENT) == []


def test_the_command_says_it_in_a_line_and_exits_with_1(
    run_envhost: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """0 where nothing is found, 2 where there is nothing to check."""
    wrong = run_envhost("check", f"{FILE}:Unseeded")
    right = run_envhost("check", f"{FILE}:Right", "--action", "5", "--action", '{"message": "7"}')
    nothing = run_envhost("check", f"{FILE}:Nothing")

    assert (wrong.returncode, right.returncode, nothing.returncode) == (1, 0, 2)
    assert wrong.stdout == (
        "WRONG  seed ignored: reset takes no seed; write reset(self, seed=None) and draw from it\n"
    )
    assert right.stdout.endswith("nothing found\n")
    assert "has no 'Nothing'" in nothing.stderr
    assert wrong.stderr == right.stderr == ""


def test_foreign_values_are_named_by_their_place() -> None:
    """What JSON holds, arrays and images are none."""
    value = {"a": [1, "x", None, {"b": {1, 2.5}}], "c": (object(), b"bytes")}

    assert foreign(value) == [("c[0]", "object")]
