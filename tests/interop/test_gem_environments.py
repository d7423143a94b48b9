"""GEM's environments by their ids, through a server that runs where GEM is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from server_process import serve

from envhost.client import EnvClient, EnvPool

ROOT = Path(__file__).parent.parent.parent
ANY_GEM = Path(__file__).parent / "peers" / "any_gem.py"
SESSIONS = 64
TURNS = 50
MOVES = [f"\\boxed{{{move}}}" for move in ("up", "left", "down", "right", "left")]
# These fetch word lists or data sets when they are made.
WORDS = ("game:Wordle", "game:Hangman", "game:WordSearch")
DATA_SETS = ("math:", "code:", "logic:", "qa:", "eval:")
# GEM itself cannot make or begin these: each raises in its own constructor or reset.
BROKEN = {
    "game:FifteenPuzzle-v0-random",
    "game:Crosswords-v0-random",
    "rg:composite",
    "rg:boxnet",
}
# One of each kind of game whose reset is quick, and of each way in which reasoning-gym draws.
SEEDED = (
    "game:GuessTheNumber-v0-random",
    "game:Mastermind-v0-random",
    "game:Minesweeper-v0-random",
    "game:Sudoku-v0-easy",
    "game:TowerofHanoi-v0-random",
    "game:Game2048-v0-random",
    "game:FifteenPuzzle-v0-easy",
    "rg:basic_arithmetic",
    "rg:leg_counting",
    "rg:word_sorting",
)
ROWS = [{"problem": f"What is {row} + {row}?", "answer": str(2 * row)} for row in range(100)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="gem-llm needs Python 3.11"),
]

Start = Callable[..., Any]


@pytest.fixture(scope="module")
def start_gem(tmp_path_factory: pytest.TempPathFactory, gem_python: str) -> Iterator[Start]:
    """Return a function that serves an entrypoint where GEM is."""
    with ExitStack() as stack:
        place = tmp_path_factory.mktemp("gem")

        def start(entrypoint: str, **options: Any) -> Any:
            config = ("--env-config", json.dumps(options))
            capacity = ("--max-concurrent-envs", str(SESSIONS))
            return stack.enter_context(
                serve(place, entrypoint, *config, *capacity, python=gem_python, cwd=ROOT)
            )

        yield start


@pytest.fixture(scope="module")
def any_gem(start_gem: Start) -> Any:
    """A server whose sessions play whatever their resets name."""
    return start_gem(f"{ANY_GEM}:AnyGem", run_in="process")


def _ids(python: str) -> list[str]:
    listed = subprocess.run(
        [python, "-m", "envhost", "list"], stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    return [line for line in listed.stdout.splitlines() if " " not in line]


def _first_observations(url: str, count: int, **options: Any) -> list[str]:
    """Return what as many sessions see at once after the same reset."""
    with EnvPool([url], count, request_timeout_seconds=120) as pool:
        for slot in range(count):
            pool.submit_reset(slot, **options)
        results = list(pool.results())
    assert [result.error for result in results if result.error] == []
    return [result.prompt_or_observation for result in results]


def test_every_id_that_needs_no_network_is_played(gem_python: str, any_gem: Any) -> None:
    """Opened, reset to the same episode in two sessions, stepped and closed through a server."""
    ids = _ids(gem_python)
    chosen = [i for i in ids if not i.startswith((*WORDS, *DATA_SETS)) and i not in BROKEN]
    assert len(ids) > 150
    assert len(chosen) > 120
    assert {name.partition(":")[0] for name in chosen} == {"game", "rg"}

    with EnvPool([any_gem.url], 2, request_timeout_seconds=300) as pool:
        for name in chosen:
            for slot in range(2):
                pool.submit_reset(slot, seed=7, env_id=name)
                pool.submit(slot, "\\boxed{1}")
            results = list(pool.results())
            assert [(name, r.error) for r in results if r.error] == []
            begun, stepped = ([r for r in results if r.kind == kind] for kind in ("reset", "step"))
            assert len({r.prompt_or_observation for r in begun}) == 1, name
            assert len({(r.prompt_or_observation, r.reward) for r in stepped}) == 1, name


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_means_the_same_in_sixty_four_sessions(any_gem: Any, name: str) -> None:
    """At once, and after an episode of another seed."""
    first = _first_observations(any_gem.url, SESSIONS, seed=11, env_id=name)
    assert len(set(first)) == 1

    with EnvClient(any_gem.url) as client:
        client.reset(seed=12, env_id=name)
        client.step("\\boxed{1}")
        assert client.reset(seed=11, env_id=name)[0] == first[0]


def test_sixty_four_games_at_once_go_as_each_alone(gem_python: str, start_gem: Start) -> None:
    """Fifty turns of 2048, whose tiles are drawn from the process's one generator."""
    options = {"max_turns": TURNS + 10}
    server = start_gem("gem:make", env_id="game:Game2048-v0-extreme-hard", **options)
    actions = [MOVES[turn * turn % len(MOVES)] for turn in range(TURNS)]

    seen: list[list[Any]] = [[] for _ in range(SESSIONS)]
    with EnvPool([server.url], SESSIONS) as pool:
        for slot in range(SESSIONS):
            pool.submit_reset(slot, seed=slot)
        seen = [[result.prompt_or_observation] for result in _in_order(pool)]
        for action in actions:
            for slot in range(SESSIONS):
                pool.submit(slot, action)
            for slot, result in enumerate(_in_order(pool)):
                ends = [result.terminated, result.truncated]
                seen[slot].append([result.prompt_or_observation, result.reward, *ends])

    arguments = map(json.dumps, (options, list(range(SESSIONS)), actions))
    played = subprocess.run(
        [gem_python, ANY_GEM, "game:Game2048-v0-extreme-hard", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    alone = json.loads(played.stdout)
    assert all(len(episode) == TURNS + 1 for episode in alone)
    assert seen == alone


def _in_order(pool: EnvPool) -> list[Any]:
    results = sorted(pool.results(), key=lambda result: result.slot)
    assert [result.error for result in results if result.error] == []
    return results


@pytest.mark.parametrize(
    ("env_id", "question", "answer"),
    [
        ("math:GSM8K", "What is {0} + {0}?", "\\boxed{{{0}}}"),
        ("logic:RuleTaker-d0", "What is {0} + {0}?", "\\boxed{{{0}}}"),
        ("qa:NaturalQuestions", "What is {0} + {0}?", "<answer>{0}</answer>"),
    ],
)
def test_a_data_set_is_loaded_once_and_seeded(
    start_gem: Start, tmp_path: Path, env_id: str, question: str, answer: str
) -> None:
    """From a folder; the same seed or row is the same question in sixty-four sessions."""
    key = "question" if env_id.startswith("logic") else "problem"
    rows = [{key: row["problem"], "answer": row["answer"]} for row in ROWS]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    server = start_gem("gem:make", env_id=env_id, dataset_name=str(tmp_path))

    seeded = _first_observations(server.url, SESSIONS, seed=5)
    rowed = _first_observations(server.url, 4, row_index=3)

    assert len(set(seeded)) == len(set(rowed)) == 1
    with EnvClient(server.url) as client:
        prompt, _ = client.reset(seed=5)
        number = next(row for row in range(100) if question.format(row) in prompt)
        assert prompt == seeded[0]
        assert client.step(answer.format(2 * number))[1] == 1.0
        client.reset(seed=5)
        assert client.step(answer.format(2 * number + 1))[1] == 0.0
        assert client.state()["dataset_size"] == len(ROWS)


def test_a_data_set_that_is_not_there_is_told(gem_python: str, tmp_path: Path) -> None:
    """In a line: where it was looked for, and the alternative."""
    options = json.dumps({"env_id": "math:GSM8K", "dataset_name": "nobody/nothing"})
    command = ("-m", "envhost", "serve", "gem:make", "--port", "0", "--env-config", options)
    ended = subprocess.run(
        [gem_python, *command],
        capture_output=True,
        text=True,
        env={"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        timeout=120,
        check=False,
    )

    assert ended.returncode == 2
    last = ended.stderr.splitlines()[-1]
    assert "the data set nobody/nothing could not be loaded" in last
    assert str(tmp_path) in last
