"""The main job from outside: real servers, real programs, a model that learns."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from rawclient import RawClient, wait_until
from server_process import ServerProcess

from envhost.client import EnvClient, EnvPool
from envhost.errors import ServerBusy

ROOT = Path(__file__).parent.parent
StartServer = Callable[..., ServerProcess]


def descendants(pid: int) -> set[int]:
    """Return all live descendants of a process."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            for task in Path(f"/proc/{parent}/task").iterdir():
                text = (task / "children").read_text()
                waiting += map(int, text.split())
                found |= set(map(int, text.split()))
        except FileNotFoundError:
            continue
    return found


def test_groups_share_a_problem_and_the_tenth_session_is_refused(
    start_server: StartServer,
) -> None:
    """One seed is one problem in every session, another seed another; the cap of nine holds."""
    server = start_server("--max-concurrent-envs", "9", "--admission-wait", "0.1")
    with EnvPool(server.url, 9) as pool:
        for slot in range(9):
            pool.submit_reset(slot, seed=slot // 3)
        results = {result.slot: result for result in pool.results()}
        assert [results[slot].error for slot in range(9)] == [None] * 9
        problems = [results[slot].info["problem_id"] for slot in range(9)]
        prompts = [results[slot].prompt_or_observation for slot in range(9)]
        for group in range(3):
            assert len(set(problems[3 * group : 3 * group + 3])) == 1
            assert len(set(prompts[3 * group : 3 * group + 3])) == 1
        assert len(set(problems)) == 3
        tenth = EnvClient(server.url, retry_seconds=0)
        with pytest.raises(ServerBusy, match=r"9/9 sessions active.*--max-concurrent-envs"):
            tenth.reset(seed=0)


def test_a_closed_socket_ends_the_program_at_once(start_server: StartServer) -> None:
    """The client leaves in the middle of an endless program: no process of it is left."""
    server = start_server("--env-config", '{"cells": "cold"}')  # no cells stand by
    client = RawClient(server.port)
    client.send({"type": "reset", "data": {"seed": 1}})
    client.receive()
    client.send({"type": "step", "data": {"message": "```python\nwhile True: pass\n```"}})
    deadline = time.monotonic() + 30
    while True:
        # The program itself is the one that burns the processor, below bwrap and the runner.
        tree = descendants(server.process.pid)
        if len(tree) >= 4:
            break
        assert time.monotonic() < deadline, "the program did not start"
        select.select([], [], [], 0.01)
    pidfds = [os.pidfd_open(pid) for pid in tree]
    try:
        client.socket.close()
        waiting = set(pidfds)
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], 30)
            assert ready, f"{len(waiting)} processes live on"
            waiting -= set(ready)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)
    wait_until(lambda: not descendants(server.process.pid))  # the dead are reaped too


@pytest.mark.slow
@pytest.mark.train
def test_a_short_run_learns(tmp_path: Path, quickstart_model: Path) -> None:
    """A few steps of CISPO on the tiny model against real verdicts raise the reward."""
    run = tmp_path / "run"
    subprocess.run(
        [
            *(sys.executable, "-m", "rltrain", "scripts/quickstart.yaml", "--output", run),
            *("--set", f"network.pretrained_model_name_or_path={quickstart_model}"),
            *("--set", "training.max_steps=1536"),
            *("--set", "training.eval_loop=1"),
        ],
        check=True,
        cwd=ROOT,
    )
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rewards = [json.loads(line)["reward_mean"] for line in lines]
    assert len(rewards) == 12
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 0.1
    assert (run / "adapter" / "adapter_config.json").exists()


@pytest.mark.slow
@pytest.mark.train
def test_the_quickstart_learns_with_vllm(tmp_path: Path, quickstart_model: Path) -> None:
    """With `use_vllm: true` the quickstart learns as much; the policy gap is rounding."""
    if find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    run = tmp_path / "run"
    subprocess.run(
        [
            *(sys.executable, "-m", "rltrain", "scripts/quickstart.yaml", "--output", run),
            *("--cache-dir", tmp_path / "cache", "--device", "cpu"),
            *("--set", f"network.pretrained_model_name_or_path={quickstart_model}"),
            *("--set", "algorithm.use_vllm=true"),
        ],
        check=True,
        cwd=ROOT,
    )
    subprocess.run(
        [sys.executable, "scripts/show_run.py", run, "--expected-rise", "0.3"], check=True, cwd=ROOT
    )
    steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(steps) == 25
    assert all(step["policy_gap"] < 1e-5 for step in steps if step["optimiser_steps"])
