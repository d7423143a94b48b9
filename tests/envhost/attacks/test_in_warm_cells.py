"""The attacks in warm cells: each program gets its verdict, and reaches neither parent nor next."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from leftovers import nothing_left
from programs import ATTACKS, Attack, in_warm_cell
from rawclient import RawClient, wait_until
from test_programs import (
    NEIGHBOUR,
    SECRET,
    SUM,
    flat_memory,
    given_to_attacks,
    judged,
    marked,
)
from test_sudden_ends import LOOP as LOOPING_ANSWER
from test_sudden_ends import descriptors

from envhost.judge.judging import Judge, JudgeRules
from envhost.process import children, descendants
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.limits import CellLimits, Program
from envhost.sandbox.warm import warm_cells

LOOP = Program(source=b"import os\nos.fork()\nwhile True: pass\n", stdin=b"")
GOOD = Program(source=SUM.encode(), stdin=b"1 2\n")
ESCAPES = Path(__file__).parents[3] / "envhost" / "sandbox" / "escapes.py"
MOST_DELAY_SECONDS = 0.01
SPARES = 2


@pytest.mark.parametrize("attack", marked([in_warm_cell(attack) for attack in ATTACKS]))
async def test_in_a_warm_cell(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets its verdict, leaves nothing, and the cells serve the next as ever."""
    monkeypatch.setenv("HOST_SECRET", SECRET)
    with (
        nothing_left(),
        flat_memory(),
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        given = given_to_attacks(listener, abstract)
        async with warm_cells(find_interpreter(None), size=1) as cells:
            if attack.needs_memory_group and "memory" in cells.isolation:
                pytest.skip(f"no memory cgroup here: {cells.isolation}")
            verdict = await judged(cells, attack, given)
            judge = Judge(cells, JudgeRules(), processors=1)
            for _ in range(3):  # every cell that there is
                assert (await judge.judge(NEIGHBOUR, SUM, max_tests=1)).name == "AC"
                outcome = await cells.run(
                    Program(source=ESCAPES.read_bytes(), stdin=b""), CellLimits()
                )
                assert outcome.stdout == b"held\n"
    assert verdict.name in attack.verdicts, verdict.stderr_tail
    if attack.exit_code is not None:
        assert verdict.exit_code == attack.exit_code


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
async def test_runs_cancelled_after_a_start(times: int) -> None:
    """A run that is cancelled 0 to 10 ms after its start leaves no process and no descriptor."""
    random.seed(55)
    with nothing_left():
        async with warm_cells(find_interpreter(None)) as cells:
            for _ in range(times):
                # With that a cell is ready, and the next run begins at once.
                assert (await cells.run(GOOD, CellLimits())).stdout == b"3\n"
                with trio.move_on_after(random.uniform(0, MOST_DELAY_SECONDS)):
                    await cells.run(LOOP, CellLimits())
            assert (await cells.run(GOOD, CellLimits())).stdout == b"3\n"


def serving(start_server: Callable[..., Any], sessions: int) -> Any:
    """Start a code environment's server with warm cells."""
    config = {"cpu_limit_seconds": 60.0, "wall_limit_seconds": 120.0, "cells": "warm"}
    return start_server("--env-config", json.dumps(config), "--max-concurrent-envs", str(sessions))


def is_quiet(pid: int) -> bool:
    """Whether all of a server's cells stand ready, and no program runs in any."""
    cells = children(pid)
    ready = len(os.sched_getaffinity(0)) + SPARES
    return len(cells) == ready and all(len(descendants(cell)) == 3 for cell in cells)


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_sockets_closed_after_submit(start_server: Callable[..., Any], times: int) -> None:
    """55: A socket closed 0 to 10 ms after its answer leaves no process of it."""
    random.seed(55)
    with nothing_left():
        server = serving(start_server, 4)
        pid = server.process.pid
        wait_until(lambda: is_quiet(pid))
        before = descriptors(pid)
        for _ in range(times):
            with RawClient(server.port) as client:
                client.reset(seed=0)
                client.send({"type": "step", "data": {"message": LOOPING_ANSWER}})
                time.sleep(random.uniform(0, MOST_DELAY_SECONDS))
        wait_until(lambda: is_quiet(pid))
        wait_until(lambda: descriptors(pid) == before)
        server.stop()
        server.process.stdout.close()


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_server_killed_in_mid_test(start_server: Callable[..., Any], times: int) -> None:
    """56: A server that is killed while programs run or cells start leaves none of them."""
    random.seed(56)
    with nothing_left():
        for _ in range(times):
            server = serving(start_server, 4)
            clients = [RawClient(server.port) for _ in range(4)]
            for client in clients:
                client.reset(seed=0)
                client.send({"type": "step", "data": {"message": LOOPING_ANSWER}})
            time.sleep(random.uniform(0, 10 * MOST_DELAY_SECONDS))
            server.process.kill()
            server.process.wait()
            server.process.stdout.close()
            for client in clients:
                client.drop()
        server = serving(start_server, 1)  # removes the killed ones' directories and groups
        server.stop()
        server.process.stdout.close()
