"""The page about writing an environment tells the truth: its example is run."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from envhost.checkup import Trial, checkup
from envhost.client import EnvClient
from envhost.config import ServerConfig

PAGE = Path(__file__).parent.parent / "docs" / "writing-an-environment.md"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """Return the page's first program, as the file that the page names."""
    source = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    path = tmp_path / "guess.py"
    path.write_text(source)
    return path


def test_the_example_has_twelve_lines(example: Path) -> None:
    """No more are needed."""
    assert len(example.read_text().splitlines()) == 12


def test_the_example_is_served_and_won(example: Path, start_server: Callable[..., Any]) -> None:
    """Two sessions of one seed begin alike; halving finds the number."""
    server = start_server(f"{example}:Guess")
    with EnvClient(server.url) as one, EnvClient(server.url) as other:
        found = []
        for client in (one, other):
            prompt, info = client.reset(seed=3)
            assert prompt == "Guess a number from 1 to 100."
            assert info["seed"] == 3
            low, high, is_right = 1, 100, False
            while not is_right:
                guess = (low + high) // 2
                hint, reward, is_right, _, info = client.step(str(guess))
                assert (reward, info["guess"]) == (float(is_right), guess)
                low, high = (guess + 1, high) if hint == "higher" else (low, guess - 1)
            found.append(guess)
    assert found[0] == found[1]


async def test_the_check_finds_nothing_in_the_example(example: Path) -> None:
    """And says so in the page's words."""
    assert await checkup(ServerConfig(entrypoint=f"{example}:Guess"), Trial(slow_seconds=30)) == []


def test_the_careless_one_is_told_as_the_page_says(
    example: Path, run_envhost: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The output under the check's table."""
    source = example.read_text().replace("seed=None", "").replace("Random(seed).", "")
    (example.parent / "careless.py").write_text(source.replace("self, )", "self)"))

    told = run_envhost("check", f"{example.parent / 'careless.py'}:Guess")

    assert told.returncode == 1
    assert told.stdout in PAGE.read_text()
