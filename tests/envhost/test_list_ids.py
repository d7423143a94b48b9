"""`python -m envhost list`, without GEM; with it, see tests/interop."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_what_needs_no_gem_is_listed(run_envhost: Run) -> None:
    """The bundled environments and GEM's code ids; how to get the others is told."""
    listed = run_envhost("list")

    assert listed.returncode == 0
    names = [line.split()[0] for line in listed.stdout.splitlines()]
    assert names[:2] == ["envhost.envs.code:make", "envhost.envs.repeat:Repeat"]
    assert "code:Taco8k" in names
    assert "pip install gem-llm" in listed.stderr


def test_a_prefix_chooses(run_envhost: Run) -> None:
    """Only ids that begin with it."""
    assert run_envhost("list", "code:T").stdout == "code:Taco8k\n"


def test_an_id_without_gem_is_refused_in_a_line(run_envhost: Run) -> None:
    """Status 2, and what to install."""
    config = '{"env_id": "game:Sudoku-v0-easy"}'

    ended = run_envhost("serve", "gem:make", "--env-config", config, "--port", "0")

    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1] == (
        "envhost: gem:make needs GEM: pip install gem-llm (it needs Python 3.12.0 or earlier)"
    )
