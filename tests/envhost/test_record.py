"""The record: whole lines, a bounded number of files, and a server that never fails by it."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from envhost.client import EnvClient
from envhost.envs.code import make
from envhost.errors import ConfigError, NotScored
from envhost.judge.record import Recorded, open_record, read_record
from envhost.telemetry import session_id

NONE: dict[str, Any] = {"sandbox_type": "none", "unsafe_no_sandbox": True}


def entry(program: str = "print(1)", **changes: Any) -> Recorded:
    values: dict[str, Any] = {
        "time": "2000-01-01T00:00:00.000+00:00",
        "session": "0badcafe",
        "dataset": "bundled:lists",
        "split": "train",
        "row_index": 3,
        "problem_id": "lists/003",
        "seed": 7,
        "reward": 0.0,
        "result": {"verdict": "WA", "tests_run": 1},
        "options": {"max_tests": 12},
        "program": program,
    }
    return Recorded(**values | changes)


def lines_of(directory: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for path in sorted(directory.glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


async def test_entries_are_read_as_written(tmp_path: Path) -> None:
    """Whatever a program holds comes back as it was, and nothing of it can end a line."""
    programs = ["print(1)\n", "\ud800\0\x1b[2J\u2028", "", "é" * 100]

    async with open_record(str(tmp_path / "new" / "record")) as record:
        assert record is not None
        for program in programs:
            record.add(entry(program))

    assert list(read_record(tmp_path / "new" / "record")) == [entry(text) for text in programs]


async def test_no_directory_is_no_record() -> None:
    """Without a directory there is no record."""
    async with open_record(None) as record:
        assert record is None


async def test_files_rotate_by_size(tmp_path: Path) -> None:
    """A full file is followed by a new one, and only the newest few are kept."""
    async with open_record(str(tmp_path), file_bytes=2000, file_count=3) as record:
        assert record is not None
        for number in range(40):
            record.add(entry(f"print({number})", row_index=number))

    names = [path.name for path in sorted(tmp_path.iterdir())]
    rows = [line["row_index"] for line in lines_of(tmp_path)]
    assert len(names) == 3
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    assert rows == list(range(40 - len(rows), 40))


async def test_each_start_begins_a_new_file(tmp_path: Path) -> None:
    """A line that a kill cut short stays at its file's end, and readers leave it out."""
    for number in range(2):
        async with open_record(str(tmp_path)) as record:
            assert record is not None
            record.add(entry(row_index=number))
        with (tmp_path / f"programs-{number + 1:06}.jsonl").open("a") as file:
            file.write('{"time": "20')

    assert [each.row_index for each in read_record(tmp_path)] == [0, 1]


WRITER = """
import sys, trio
from test_record import entry
from envhost.judge.record import open_record

async def main():
    async with open_record(sys.argv[1], file_bytes=200_000, file_count=100) as record:
        is_going = False
        for number in range(10**9):
            record.add(entry("x" * 20_000, row_index=number))
            await trio.sleep(0)
            if not is_going and record._files._size_bytes:
                is_going = True
                print("going", flush=True)

trio.run(main)
"""


def test_a_kill_leaves_whole_lines(tmp_path: Path) -> None:
    """After kills in the midst of writing, every line but a file's last is whole."""
    path = [str(Path(__file__).parent), *sys.path]
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(path)},
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"going\n"
            process.kill()

    rows = [each.row_index for each in read_record(tmp_path)]
    assert rows.count(0) == 3
    assert {each.program for each in read_record(tmp_path)} == {"x" * 20_000}


async def test_an_unused_record_leaves_no_file(tmp_path: Path) -> None:
    """A server that judged nothing leaves no empty file."""
    async with open_record(str(tmp_path)):
        assert len(list(tmp_path.iterdir())) == 1

    assert list(tmp_path.iterdir()) == []


async def test_two_servers_cannot_share_a_record(tmp_path: Path) -> None:
    """A directory has one writer at a time."""
    async with open_record(str(tmp_path)):
        with pytest.raises(ConfigError, match="another server records there"):
            async with open_record(str(tmp_path)):
                pass

    async with open_record(str(tmp_path)):
        pass


async def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    """What cannot be a directory is refused at the start."""
    (tmp_path / "file").touch()

    for place in ("file", "file/below"):
        with pytest.raises(ConfigError, match=r"--record .* cannot be written to"):
            async with open_record(str(tmp_path / place)):
                pass


async def test_a_full_disk_is_one_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a line does not fit, none of it stays, and later ones are written again."""
    monkeypatch.setattr(logging.getLogger("envhost"), "propagate", True)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    async def until_logged(event: str) -> None:
        with trio.fail_after(10):
            while event not in caplog.text:
                await trio.sleep(0.01)

    try:
        async with open_record(str(tmp_path)) as record:
            assert record is not None
            record.add(entry("short"))
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
            for _ in range(5):
                record.add(entry("long" * 1024))
            await until_logged("record.failing")
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            record.add(entry("long again" * 1024))
            await until_logged("record.resumed")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)

    written = [line["program"] for line in lines_of(tmp_path)]
    assert written[0] == "short"
    assert written[-1] == "long again" * 1024
    assert [line.split()[0] for line in caplog.messages] == ["record.failing", "record.resumed"]


async def test_a_disk_that_hangs_delays_nobody(tmp_path: Path) -> None:
    """Entries beyond the queue are lost at once, not waited for."""
    async with open_record(str(tmp_path)) as record:
        assert record is not None
        hung, go_on = trio.Event(), threading.Event()
        token = trio.lowlevel.current_trio_token()
        append = record._files.append

        def hang(line: bytes) -> None:
            token.run_sync_soon(hung.set)
            go_on.wait()
            append(line)

        record._files.append = hang  # type: ignore[method-assign]
        record.add(entry())
        await hung.wait()
        started = trio.current_time()
        for _ in range(5000):
            record.add(entry())
        assert trio.current_time() - started < 1
        go_on.set()

    assert 1 < len(lines_of(tmp_path)) < 1000


@pytest.mark.parametrize(
    ("content", "said"),
    [("nonsense\n", "line 1: expected JSON"), ("{}\n", "line 1: expected an object with the keys")],
)
def test_foreign_lines_are_named(tmp_path: Path, content: str, said: str) -> None:
    """A line that is none of ours is told with its file and number."""
    (tmp_path / "programs-000001.jsonl").write_text(content)

    with pytest.raises(ConfigError, match=said):
        list(read_record(tmp_path))


def test_an_empty_directory_is_no_record(tmp_path: Path) -> None:
    """Where there is no record, the reader says what it looked for."""
    with pytest.raises(ConfigError, match="programs-"):
        list(read_record(tmp_path))


async def test_the_environment_records_each_program(tmp_path: Path) -> None:
    """A step leaves a line with the session, the row, the verdict, the program and the options."""
    factory = make(record_dir=str(tmp_path), max_tests=3, reward_wrong=-0.5, **NONE)
    session_id.set("0badcafe")
    async with factory.serving():
        environment = await factory.build()
        await environment.reset(seed=5)
        await environment.step({"message": "```python\nprint('x')\n```"})
        await environment.reset(seed=6)
        await environment.step({"message": "no code"})

    (line,) = lines_of(tmp_path)
    assert line["session"] == "0badcafe"
    assert line["seed"] == 5
    assert line["dataset"] == "bundled:lists"
    assert line["reward"] == -0.5
    assert line["result"]["verdict"] == "WA"
    assert line["result"]["tests_total"] == 3
    assert line["options"]["max_tests"] == 3
    assert line["program"] == "print('x')\n"
    assert line["problem_id"].startswith("lists/")
    assert "expected" not in line["result"]


async def test_a_failure_of_ours_is_recorded_without_reward(tmp_path: Path) -> None:
    """A program that could not be judged stands in the record as IE, with no reward."""
    dataset = tmp_path / "broken.jsonl"
    row = {"problem": "p", "split": "train", "checker": "import nothing"}
    dataset.write_text(json.dumps(row | {"tests": {"inputs": [""], "outputs": ["1\n"]}}))
    factory = make(record_dir=str(tmp_path / "record"), dataset=str(dataset), **NONE)
    async with factory.serving():
        environment = await factory.build()
        await environment.reset(seed=0)
        with pytest.raises(NotScored):
            await environment.step({"message": "```python\nprint(1)\n```"})

    (line,) = lines_of(tmp_path / "record")
    assert line["reward"] is None
    assert line["result"]["verdict"] == "IE"


def test_a_served_environment_records(tmp_path: Path, start_server: Callable[..., Any]) -> None:
    """`serve --record DIR` writes the session's id with what it judged."""
    server = start_server("--record", str(tmp_path / "record"))
    with EnvClient(server.url) as client:
        client.reset(seed=0)
        client.step("```python\nprint(1)\n```")
    assert server.stop() == 0

    (line,) = lines_of(tmp_path / "record")
    assert f"session={line['session']} " in server.log()
    assert line["program"] == "print(1)\n"


def test_an_environment_without_a_record_refuses_one(
    tmp_path: Path, echo_entrypoint: str, run_envhost: Callable[..., Any]
) -> None:
    """Another entrypoint than one that takes `record_dir` cannot be served with --record."""
    done = run_envhost("serve", echo_entrypoint, "--port", "0", "--record", str(tmp_path))

    assert done.returncode == 2
    assert done.stderr.startswith("envhost: --record: entrypoint")
    assert done.stderr.count("\n") == 1
