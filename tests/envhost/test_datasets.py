"""Parquet, saved data sets and the hub's cache, loaded by the server's child process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
from server_process import serve

from envhost.client import EnvClient
from envhost.errors import ConfigError
from envhost.judge import aside, loading
from envhost.judge.aside import load_problems_aside
from envhost.judge.loading import Request
from envhost.judge.problems import Problem, ProblemSet
from envhost.judge.problems import Test as Case

pytestmark = pytest.mark.slow

OLD, NEW = "a" * 40, "b" * 40
MAKE = """
import json, sys
import datasets
rows = json.loads(sys.argv[2])
made = datasets.Dataset.from_list(rows)
made.to_parquet(sys.argv[1] + "/one.parquet")
as_structs = [{**row, "tests": json.loads(row["tests"])} for row in rows]
datasets.Dataset.from_list(as_structs).to_parquet(sys.argv[1] + "/structs.parquet")
made.save_to_disk(sys.argv[1] + "/saved")
splits = {"train": made.select(range(2)), "valid": made.select(range(2, 3))}
datasets.DatasetDict(splits).save_to_disk(sys.argv[1] + "/splits")
for name, half in (("00000", range(2)), ("00001", range(2, 4))):
    made.select(half).to_parquet(f"{sys.argv[1]}/hub/data/train-{name}-of-00002.parquet")
"""
TEXTS = ("double it", "square it", "halve it", "broken")
ROWS = [
    {"problem": text, "tests": json.dumps({"inputs": ["2\n"], "outputs": out})}
    for text, out in zip(TEXTS, (["4\n"], ["4\n"], ["1\n"], []), strict=True)
]
PROGRAM = "```python\nprint(int(input()) * 2)\n```"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the same four rows in each format; the last is broken."""
    path = tmp_path_factory.mktemp("made")
    (path / "hub" / "data").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", MAKE, path, json.dumps(ROWS)], check=True)
    return path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the libraries an empty cache and no network, and return the cache."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "hf"


def lay_out(home: Path, copy_of: Path, *, commit: str = NEW, refs: Sequence[str] = ()) -> Path:
    """Lay a data set into the hub's cache as if it had been fetched, and return its snapshot."""
    repository = home / "hub" / "datasets--axon-rl--TACO-8k"
    snapshot = repository / "snapshots" / commit
    for path in copy_of.rglob("*.parquet"):
        target = snapshot / path.relative_to(copy_of)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (repository / "refs").mkdir(exist_ok=True)
    for name in refs:
        (repository / "refs" / name).write_text(commit)
    return snapshot


async def load(dataset: str | Path, *, fraction: float = 0.0, **more: Any) -> ProblemSet:
    """Load a data set as the server does."""
    return await load_problems_aside(
        Request(dataset=str(dataset), **more), evaluation_fraction=fraction, shuffle_seed=0
    )


def content(problems: Sequence[Problem]) -> list[tuple[str, tuple[Case, ...]]]:
    return [(problem.text, problem.tests) for problem in problems]


EXPECTED = [
    ("double it", (Case("2\n", "4\n"),)),
    ("square it", (Case("2\n", "4\n"),)),
    ("halve it", (Case("2\n", "1\n"),)),
]


@pytest.mark.parametrize("name", ["one.parquet", "structs.parquet", "saved", "hub"])
async def test_formats(made: Path, name: str) -> None:
    """A Parquet file, a saved data set and a folder as on the hub give the same problems.

    Tests may be JSON text or a column of lists.
    """
    loaded = await load(made / name, split="train")

    assert content(loaded.training) == EXPECTED
    assert [each.text for each in loaded.prompts("train")] == [text for text, _ in EXPECTED]
    assert (
        "3 training and 0 held-out rows, 3 tests; dropped 1 rows: 1 with unequal" in loaded.report
    )


@pytest.mark.parametrize("name", ["rows.jsonl", "folders"])
async def test_large_files_are_read_by_the_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """JSON lines of many megabytes and folders of tests need none of the libraries."""
    monkeypatch.setattr(loading, "_LIGHT_BYTES", 0)
    monkeypatch.setattr(aside, "prepare", None)
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    for number, (text, (case,)) in enumerate(EXPECTED):
        folder = tmp_path / "folders" / str(number)
        folder.mkdir(parents=True)
        (folder / "problem.md").write_text(text)
        (folder / "1.in").write_text(case.input)
        (folder / "1.out").write_text(case.expected)

    assert content((await load(tmp_path / name)).training) == EXPECTED


async def test_splits_of_a_saved_data_set(made: Path) -> None:
    """`evaluation_split` is a split of the data set's own; an unknown one is told."""
    loaded = await load(made / "splits", evaluation_split="valid")
    assert content(loaded.training) == EXPECTED[:2]
    assert content(loaded.evaluation) == EXPECTED[2:]
    assert loaded.evaluation[0].problem_id == "splits/valid/0"
    with pytest.raises(
        ConfigError, match="no split 'vald' for evaluation_split; did you mean valid"
    ):
        await load(made / "splits", evaluation_split="vald")


async def test_the_hub_without_network(made: Path, home: Path) -> None:
    """A data set of the hub is taken from its cache, in the revision asked for."""
    lay_out(home, made / "hub", commit=NEW, refs=["main"])
    (made / "old").mkdir()
    (made / "old" / "one.parquet").write_bytes((made / "one.parquet").read_bytes())
    lay_out(home, made / "old", commit=OLD, refs=["v1"])

    newest = await load("axon-rl/TACO-8k")
    pinned = await load("axon-rl/TACO-8k", revision="v1", max_rows=1)

    assert content(newest.training) == EXPECTED
    assert newest.report.startswith(f"axon-rl/TACO-8k@{NEW[:12]}: 3 training")
    assert pinned.report.startswith(f"axon-rl/TACO-8k@{OLD[:12]}: 1 training")
    assert pinned.training[0].problem_id == "TACO-8k/train/0"
    assert newest.place == newest.name == "axon-rl/TACO-8k"


async def test_neither_network_nor_copy(home: Path) -> None:
    """One line says what cannot be reached, where a copy was looked for, and what else goes."""
    message = f"TACO-8k: the hub cannot be reached .* the cache {home / 'hub'} has no copy .* path"
    with pytest.raises(ConfigError, match=message):
        await load("axon-rl/TACO-8k")


@pytest.mark.parametrize("name", ["train-00000-of-00002", "train-00000-of-00002-0a1b2c3d"])
async def test_a_copy_that_was_not_fetched_to_its_end(made: Path, home: Path, name: str) -> None:
    """Missing shards are refused: fewer rows would be served without a word."""
    folder = lay_out(home, made / "hub", refs=["main"]) / "data"
    (folder / "train-00001-of-00002.parquet").unlink()
    (folder / "train-00000-of-00002.parquet").rename(folder / f"{name}.parquet")
    with pytest.raises(ConfigError, match=r"has 1 of 2 files data/train-\*\.parquet"):
        await load("axon-rl/TACO-8k")


async def test_what_is_no_parquet(tmp_path: Path) -> None:
    """A file that cannot be read is one line, not a traceback."""
    path = tmp_path / "text.parquet"
    path.write_text("nothing of the kind")
    with pytest.raises(ConfigError, match=r"text\.parquet: cannot be read: .*Parquet"):
        await load(path)


@pytest.fixture
def silent_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Take the place of the hub and answer nothing, so that a fetch hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.delenv("HF_HUB_OFFLINE")
        yield listener


async def test_a_fetch_can_be_cancelled(silent_hub: socket.socket) -> None:
    """A load that is cancelled while the hub is silent leaves no process."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load, "axon-rl/TACO-8k")
        connection, _ = await trio.to_thread.run_sync(silent_hub.accept)
        assert len(psutil.Process().children()) == 1
        nursery.cancel_scope.cancel()
    connection.close()
    assert psutil.Process().children() == []


@pytest.mark.parametrize("with_signal", [signal.SIGKILL, signal.SIGTERM])
def test_a_fetch_ends_with_its_server(
    silent_hub: socket.socket, tmp_path: Path, with_signal: signal.Signals
) -> None:
    """A server that is ended while it loads takes the child with it."""
    config = json.dumps({"dataset": "axon-rl/TACO-8k"})
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "envhost", "serve", "--port", "0", "--env-config", config],
            stderr=log,
            env=dict(os.environ),
        )
    connection, _ = silent_hub.accept()
    (child,) = psutil.Process(server.pid).children()
    server.send_signal(with_signal)
    server.wait(timeout=30)
    assert child.wait(timeout=30) is None
    connection.close()


@pytest.mark.parametrize("where", ["cache", "path"])
def test_the_command_of_the_tutorial(made: Path, home: Path, tmp_path: Path, where: str) -> None:
    """`gem:make` with `code:Taco8k` is served from the hub's cache, or from a local copy."""
    env_config: dict[str, Any] = {"env_id": "code:Taco8k", "sandbox_type": "bwrap"}
    env_config["evaluation_fraction"] = 0
    if where == "cache":
        lay_out(home, made / "hub", refs=["main"])
    else:
        env_config["dataset"] = str(made / "hub")

    with (
        serve(tmp_path, "gem:make", "--env-config", json.dumps(env_config)) as server,
        EnvClient(server.url) as env,
    ):
        prompt, info = env.reset(row_index=0)
        _, reward, terminated, _, verdict = env.step(PROGRAM)
        log = server.log()

    assert prompt == "double it"
    assert info["problem_id"] == ("TACO-8k/train/0" if where == "cache" else "hub/train/0")
    assert (reward, terminated, verdict["verdict"]) == (1.0, True, "AC")
    assert ("doing=fetching" in log) == (where == "cache")
    assert "doing=unpacking" in log
    assert "dropped 1 rows: 1 with unequal numbers of inputs and outputs" in log
