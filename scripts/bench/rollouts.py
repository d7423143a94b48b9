"""Rollouts a second behind a server of sessions: ours, and GEM's code environment beside it.

Owns the servers' loads and what is left behind by them. GEM's environment is served by OpenEnv,
one problem of twelve tests for both, eight sessions, each of which takes the next program once its
last one is judged. A server gets its loads one after the other and is then killed, with all that it
has left; the servers take turns.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from envhost.process import descendants

from .programs import problem, some_programs
from .servers import PEER_PIN, ROOT, Target, running

sys.path.insert(0, str(ROOT / "tests"))

from rawclient import RawClient

__all__ = ["GEM_PINS", "measure_rollouts", "show_rollouts"]

GEM_PINS = ("gem-llm==0.1.0", "datasets>=4,<6", PEER_PIN)
_GEM = ROOT / "tests" / "interop" / "peers" / "gem_server.py"
_SESSIONS = 8
_PATIENCE_SECONDS = 600.0
_SETTLE_SECONDS = 20.0
_SAME = 10
Result = dict[str, float]


@frozen
class Load:
    """Some programs of a mix; `alike` of them in a row are the same."""

    name: str
    mix: str
    count: int
    alike: int = 1


LOADS = (
    Load("right", "right", 60),
    Load("mixed", "mixed", 120),
    Load("5 % endless", "hanging", 80),
    Load("mixed, after it", "mixed", 60),
)
# Ours alone: nine more runs in the same server.
AGAIN = tuple(Load(f"mixed, run {number}", "mixed", 60) for number in range(2, 11))
# Not shown: after it every cell of a pool is there and has served.
_FIRST = Load("first", "right", 16)
ALIKE = Load("mixed, 8 alike", "mixed", 30, alike=_SESSIONS)


def measure_rollouts(gem: str | None, rounds: int, share: float) -> dict[str, dict[str, Result]]:
    """Load each server in turn, again and again; return medians by server and load.

    `share` is how much of each load is put on them.
    """
    seen: dict[str, dict[str, list[Result]]] = {}
    turns: list[tuple[str, Callable[[], AbstractContextManager[Target]], tuple[Load, ...]]] = [
        ("envhost", _ours, (*LOADS, *AGAIN, ALIKE)),
        ("sharing", partial(_ours, share_verdicts=True), (LOADS[0], ALIKE)),
    ]
    if gem is not None:
        turns.append(("gem", partial(_gem, gem), LOADS))
    for number in range(rounds):
        for name, serve, loads in turns:
            before = frozenset(descendants(os.getpid()))
            with serve() as target:
                _drive(target, _FIRST, f"{number}")
                for load in loads:
                    some = evolve(load, count=max(_SESSIONS, round(share * load.count)))
                    result = _drive(target, some, f"{number}")
                    seen.setdefault(name, {}).setdefault(load.name, []).append(result)
                    print(f"  round {number + 1}: {name}, {load.name}: {result}", file=sys.stderr)
            _end_all(before)
    return {
        name: {load: _medians(results) for load, results in loads.items()}
        for name, loads in seen.items()
    }


def show_rollouts(results: dict[str, dict[str, Result]]) -> None:
    """Print a table, and how the tenth run compares with the first."""
    ours, gem = results["envhost"], results.get("gem", {})
    print(f"\nrollouts/s, {_SESSIONS} sessions, 12 tests, CPU limit 10 s (GEM: 10 s of wall clock)")
    print(f"{'':18}{'envhost':>10}{'GEM':>10}{'ratio':>8}{'mean reward':>18}{'left':>12}")
    for load in LOADS:
        mine, its = ours[load.name], gem.get(load.name)
        row = f"{load.name:18}{mine['rollouts_a_second']:10.2f}"
        if its is not None:
            rate = its["rollouts_a_second"]
            rewards = f"{mine['mean_reward']:.3f} {its['mean_reward']:.3f}"
            left = f"{mine['left']:.0f} {its['left']:.0f}"
            row += f"{rate:10.2f}{mine['rollouts_a_second'] / rate:8.1f}{rewards:>18}{left:>12}"
        else:
            row += f"{'-':>10}{'-':>8}{mine['mean_reward']:18.3f}{mine['left']:12.0f}"
        print(row)
    first, tenth = ours["mixed"]["rollouts_a_second"], ours[AGAIN[-1].name]["rollouts_a_second"]
    print(f"envhost, mixed: first run {first:.2f}, tenth {tenth:.2f} rollouts/s")
    alike = [results[name][ALIKE.name]["rollouts_a_second"] for name in ("envhost", "sharing")]
    print(f"envhost, mixed, 8 sessions alike: {alike[0]:.2f}, with share_verdicts {alike[1]:.2f}")


def _medians(results: list[Result]) -> Result:
    return {key: statistics.median(result[key] for result in results) for key in results[0]}


def _drive(target: Target, load: Load, salt: str) -> Result:
    """Put a load on a server; return its rate, the mean reward, and the processes it has left."""
    programs = some_programs(load.mix, load.count, f"{load.name} {salt}")
    waiting = iter([program for program in programs for _ in range(load.alike)])
    rewards: list[float | None] = []
    lock = threading.Lock()

    def session() -> None:
        client = RawClient(int(target.url.rpartition(":")[2]))
        client.socket.settimeout(_PATIENCE_SECONDS)
        while True:
            with lock:
                program = next(waiting, None)
            if program is None:
                return client.drop()
            client.reset(seed=1)
            reply = client.step(f"```python\n{program}\n```")
            rewards.append(reply["data"].get("reward"))

    before = _count_at_rest()
    threads = [threading.Thread(target=session) for _ in range(_SESSIONS)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.monotonic() - begun
    scored = [reward for reward in rewards if reward is not None]
    return {
        "rollouts_a_second": len(rewards) / seconds,
        "mean_reward": sum(scored) / max(1, len(scored)),
        "not_scored": len(rewards) - len(scored),
        "left": max(0, _count_at_rest() - before),
    }


def _count_at_rest() -> int:
    """Return how many processes are below us, once they stay as many for a while."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    counts: list[int] = []
    while len(set(counts[-_SAME:])) > 1 or len(counts) < _SAME:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass  # an orphan
        counts.append(len(descendants(os.getpid())))
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return counts[-1]


@contextmanager
def _ours(**options: Any) -> Iterator[Target]:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "sum.jsonl")
        row = {"problem": "Add two numbers.", "tests": _tests(), "split": "train"}
        path.write_text(json.dumps(row) + "\n")
        argv = [sys.executable, "-m", "envhost", "serve", "--port", "0"]
        argv += ["--max-concurrent-envs", str(_SESSIONS), "--log-level", "warning"]
        argv += ["--env-config", json.dumps({"dataset": str(path)} | options)]
        with running(argv) as target:
            yield target


@contextmanager
def _gem(python: str) -> Iterator[Target]:
    """Serve with the packages of an interpreter that has GEM, under its base interpreter."""
    ask = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('purelib'))"
    told = subprocess.run([python, "-c", ask], stdout=subprocess.PIPE, text=True, check=True)
    base, packages = told.stdout.split()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        tests = Path(place, "tests.json")
        tests.write_text(json.dumps(_tests()))
        argv = ["env", "-C", place, f"PYTHONPATH={packages}", f"{base}/bin/python3", str(_GEM)]
        with running([*argv, str(port), str(_SESSIONS), str(tests)]) as target:
            yield target


def _tests() -> dict[str, list[Any]]:
    tests = problem().tests
    return {"inputs": [test.input for test in tests], "outputs": [test.expected for test in tests]}


def _end_all(before: frozenset[int]) -> None:
    """Kill what a server has left: all below us that was not there before it."""
    while left := set(descendants(os.getpid())) - before:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.05)
