"""Sessions, sockets and servers that end at the worst moment leave nothing behind."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from leftovers import nothing_left
from rawclient import RawClient, wait_until

from envhost.judge.judging import Judge, JudgeRules, Verdict
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case
from envhost.process import descendants
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import bwrap_cells
from envhost.sandbox.limits import CellLimits, Program

LOOP = "```python\nimport os\nos.fork()\nwhile True: pass\n```"
MOST_DELAY_SECONDS = 0.01
ROOT = Path(__file__).parents[3]


def serving(start_server: Callable[..., Any], sessions: int) -> Any:
    """Start a code environment's server with cold cells: what runs is then a program's."""
    config = {"cpu_limit_seconds": 60.0, "wall_limit_seconds": 120.0, "cells": "cold"}
    return start_server("--env-config", json.dumps(config), "--max-concurrent-envs", str(sessions))


def descriptors(pid: int) -> int:
    """Return how many descriptors a process holds."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.slow
async def test_a_long_sleep_within_the_limit() -> None:
    """53: A program that sleeps for 11 s before its answer is right, and nothing ends it early."""
    problem = Problem(problem_id="53", text="", tests=(Case("", "42\n"),))
    rules = JudgeRules(limits=CellLimits(wall_limit_seconds=20))
    async with bwrap_cells(find_interpreter(None)) as cells:
        judge = Judge(cells, rules, processors=1)
        source = "import time; time.sleep(11); print(42)"
        verdict = await judge.judge(problem, source, max_tests=1)
    assert verdict.name == "AC"


@pytest.mark.slow
async def test_twelve_busy_sessions() -> None:
    """54: Twelve right programs of 1.5 s CPU at once are right; waiting is not charged to them."""
    problem = Problem(problem_id="54", text="", tests=(Case("", "42\n"),))
    rules = JudgeRules(limits=CellLimits(cpu_limit_seconds=3))
    source = "import time\nwhile time.process_time() < 1.5: pass\nprint(42)"
    verdicts: list[Verdict] = []
    async with bwrap_cells(find_interpreter(None)) as cells:
        judge = Judge(cells, rules, processors=len(os.sched_getaffinity(0)))

        async def one() -> None:
            verdicts.append(await judge.judge(problem, source, max_tests=1))

        async with trio.open_nursery() as nursery:
            for _ in range(12):
                nursery.start_soon(one)
    assert [verdict.name for verdict in verdicts] == ["AC"] * 12


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_sockets_closed_after_submit(start_server: Callable[..., Any], times: int) -> None:
    """55: A socket closed 0 to 10 ms after its answer leaves no process of it."""
    random.seed(55)
    with nothing_left():
        server = serving(start_server, 4)
        pid = server.process.pid
        before = descriptors(pid)
        for _ in range(times):
            with RawClient(server.port) as client:
                client.reset(seed=0)
                client.send({"type": "step", "data": {"message": LOOP}})
                time.sleep(random.uniform(0, MOST_DELAY_SECONDS))
        wait_until(lambda: not descendants(pid))
        wait_until(lambda: descriptors(pid) == before)
        with RawClient(server.port) as client:
            client.reset(seed=0)
            assert client.step("no code")["data"]["reward"] == -0.1
        server.stop()
        server.process.stdout.close()


@pytest.mark.slow
def test_sessions_closed_at_once(start_server: Callable[..., Any]) -> None:
    """57: 200 sessions that close at once leave descriptors and processes as they were."""
    with nothing_left():
        server = serving(start_server, 200)
        pid = server.process.pid
        before = descriptors(pid)
        clients = [RawClient(server.port) for _ in range(200)]
        for client in clients:
            client.reset(seed=0)
            client.send({"type": "step", "data": {"message": LOOP}})
        wait_until(lambda: descendants(pid))
        for client in clients:
            client.drop()
        wait_until(lambda: not descendants(pid))
        wait_until(lambda: descriptors(pid) == before)
        server.stop()
        server.process.stdout.close()


@pytest.mark.slow
def test_server_killed_in_mid_test(start_server: Callable[..., Any]) -> None:
    """56: A server that is killed while programs run leaves none of them."""
    with nothing_left():
        server = serving(start_server, 4)
        clients = [RawClient(server.port) for _ in range(4)]
        for client in clients:
            client.reset(seed=0)
            client.send({"type": "step", "data": {"message": LOOP}})
        wait_until(lambda: len(descendants(server.process.pid)) > 4)
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
        for client in clients:
            client.drop()
    with nothing_left():  # the next server removes the killed one's empty directories and groups
        server = serving(start_server, 1)
        server.stop()
        server.process.stdout.close()


def run_host(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts beside this file, whose children are hosts that are killed."""
    return subprocess.run(
        [sys.executable, Path(__file__).parent / script, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
    )


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["bwrap", "plain", "warm"])
def test_host_killed_after_a_start(kind: str, times: int) -> None:
    """56: A host that is killed 0 to 10 ms after it started a cell leaves nothing of the cell."""
    with nothing_left():
        host = run_host("killed_host.py", kind, str(times))
        assert host.returncode == 0, host.stderr


@pytest.mark.parametrize("lifeline", ["with", "without"])
@pytest.mark.parametrize("kind", ["bwrap", "warm"])
def test_a_cell_orphaned_at_its_start(kind: str, lifeline: str) -> None:
    """56: What ends a cell whose host died before bubblewrap tied itself to it is the lifeline."""
    with nothing_left():
        host = run_host("orphaned_cell.py", kind, lifeline)
        assert host.returncode == 0, host.stderr


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
async def test_runs_cancelled_after_a_start(times: int) -> None:
    """A run that is cancelled at any moment leaves no process and no descriptor."""
    source = LOOP.removeprefix("```python\n").removesuffix("```").encode()
    program = Program(source=source, stdin=b"")
    random.seed(58)
    with nothing_left():
        async with bwrap_cells(find_interpreter(None)) as cells:
            before = descriptors(os.getpid())
            for _ in range(times):
                with trio.move_on_after(
                    random.uniform(0, random.choice((1, 10)) * MOST_DELAY_SECONDS)
                ):
                    await cells.run(program, CellLimits())
            assert descriptors(os.getpid()) == before
