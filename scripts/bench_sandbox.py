"""Measure how fast programs are judged, and what a test costs, in each kind of cell.

    bench_sandbox.py                              every kind and mix, as many sessions as cores
    bench_sandbox.py --kinds warm cold --sessions 1 8
    bench_sandbox.py --mixes mixed --seconds 20 --json result.json
    bench_sandbox.py --suite --gem                what the documentation claims, GEM beside us
    bench_sandbox.py --suite --gem /path/to/python    the same with a GEM that is installed

`--suite` judges right programs in each kind of cell, for what a test costs, and then puts the loads
of `bench/rollouts.py` on servers. GEM's packages are installed at the first use.

A session judges one rollout after the other, each against twelve tests; every program is made
unique by a comment. CPU time is that of this process and all it started, orphans among them reaped
here; what a killed program had used is not seen. `machine` is how long the whole machine was busy,
the kernel's own threads and whoever else included. Each round takes the kinds in turn, so that the
machine's noise hits all; the table shows medians.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import trio
from attrs import frozen
from bench.programs import HANGING, MIXES, RIGHT, TESTS, problem, programs
from bench.rollouts import GEM_PINS, measure_rollouts, show_rollouts
from bench.servers import ROOT

from envhost.judge.judging import Judge, JudgeRules
from envhost.process import cpu_seconds, descendants
from envhost.sandbox.bwrap import Interpreter, find_interpreter
from envhost.sandbox.cells import Cells, bwrap_cells, plain_cells
from envhost.sandbox.limits import CellLimits
from envhost.sandbox.warm import warm_cells

PR_SET_CHILD_SUBREAPER = 36
KINDS: dict[str, Callable[[Interpreter], AbstractAsyncContextManager[Cells]]] = {
    "warm": warm_cells,
    "cold": bwrap_cells,
    "plain": plain_cells,
}


@frozen(kw_only=True)
class Case:
    """One load: how many sessions, which programs, for how long."""

    mix: str
    sessions: int
    seconds: float
    cpu_limit_seconds: float


def used_seconds() -> float:
    """Return the CPU time of this process and of all that it has started, alive or dead."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    own = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    dead = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    return own + dead + sum(cpu_seconds(pid, own=True) for pid in descendants(os.getpid()))


def busy_seconds() -> float:
    """Return the CPU time that the machine was busy since its start."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split()[1:9]
    user, nice, system, _idle, _wait, interrupts, soft, steal = map(int, fields)
    return (user + nice + system + interrupts + soft + steal) / os.sysconf("SC_CLK_TCK")


async def measure(kind: str, case: Case) -> dict[str, float]:
    """Judge programs in one kind of cell for a while; return rates and costs."""
    rules = JudgeRules(limits=CellLimits(cpu_limit_seconds=case.cpu_limit_seconds))
    source = programs(case.mix)
    task = problem()
    rollouts = tests = right = 0
    own_seconds = 0.0
    async with KINDS[kind](find_interpreter(None)) as cells:
        judge = Judge(cells, rules, processors=len(os.sched_getaffinity(0)))
        for _ in range(8):  # every cell of a pool is there, and has served
            await judge.judge(task, next(source).replace(HANGING, RIGHT), max_tests=1)
        begun, used, busy = time.monotonic(), used_seconds(), busy_seconds()

        async def session() -> None:
            nonlocal rollouts, tests, right, own_seconds
            while time.monotonic() - begun < case.seconds:
                verdict = await judge.judge(task, next(source), max_tests=TESTS)
                rollouts += 1
                tests += verdict.tests_run
                right += verdict.name == "AC"
                own_seconds += verdict.cpu_seconds

        async with trio.open_nursery() as nursery:
            for _ in range(case.sessions):
                nursery.start_soon(session)
        elapsed = time.monotonic() - begun
        used, busy = used_seconds() - used, busy_seconds() - busy
    return {
        "rollouts_a_second": rollouts / elapsed,
        "tests_a_second": tests / elapsed,
        "cpu_ms_a_test": 1e3 * used / tests,
        "program_cpu_ms_a_test": 1e3 * own_seconds / tests,
        "machine_cpu_ms_a_test": 1e3 * busy / tests,
        "mean_reward": right / rollouts,
    }


def compare(kinds: list[str], case: Case, rounds: int) -> dict[str, Any]:
    """Measure each kind in turn, again and again; return medians by kind."""
    seen: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        for kind in kinds:
            print(f"  round {number + 1} of {rounds}: {kind}", file=sys.stderr, flush=True)
            seen.setdefault(kind, []).append(trio.run(measure, kind, case))
    return {
        kind: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for kind, runs in seen.items()
    }


def show(case: Case, results: dict[str, dict[str, float]]) -> None:
    """Print a table."""
    print(f"\n{case.mix}, {case.sessions} sessions, CPU limit {case.cpu_limit_seconds:g} s")
    print(" " * 24 + "".join(f"{name:>12}" for name in results))
    for key in next(iter(results.values())):
        values = [results[name].get(key) for name in results]
        shown = (f"{'-':>12}" if value is None else f"{value:12,.2f}" for value in values)
        print(f"{key:24}" + "".join(shown))


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument(
        "--mixes", nargs="+", choices=MIXES, help="default: all, with --suite: right"
    )
    parser.add_argument("--sessions", nargs="+", type=int, default=[cores])
    parser.add_argument("--seconds", type=float, default=5.0, help="of judging, a measurement")
    parser.add_argument("--cpu-limit", type=float, default=1.0, help="seconds; hanging ones use it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--suite", action="store_true", help="what the documentation claims")
    parser.add_argument(
        "--gem", metavar="PYTHON", nargs="?", const="", help="with --suite: GEM's CodeEnv too"
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="of the servers' loads; less where time is short"
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    asked = parser.parse_args()
    if asked.gem is not None and not asked.suite:
        parser.error("--gem goes with --suite")
    asked.mixes = asked.mixes or (["right"] if asked.suite else list(MIXES))
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    report = run_suite(asked) if asked.suite else run_cases(asked)
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def run_cases(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure each mix with each number of sessions, and show it."""
    report: list[dict[str, Any]] = []
    for mix, sessions in itertools.product(asked.mixes, asked.sessions):
        case = Case(
            mix=mix,
            sessions=sessions,
            seconds=asked.seconds,
            cpu_limit_seconds=asked.cpu_limit,
        )
        results = compare(asked.kinds, case, asked.rounds)
        show(case, results)
        report.append({"mix": mix, "sessions": sessions, "results": results})
    return report


def run_suite(asked: argparse.Namespace) -> dict[str, Any]:
    """Measure what the documentation claims, and show it."""
    gem = asked.gem
    if gem == "":
        maker = [str(ROOT / "scripts" / "interop_venv.sh"), *GEM_PINS]
        environment = {**os.environ, "PYTHON": sys.executable}
        made = subprocess.run(maker, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        gem = made.stdout.strip()
    print(f"load average before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors")
    cases = [run_cases(asked), measure_rollouts(gem, asked.rounds, asked.share)]
    show_rollouts(cases[1])
    return {"cells": cases[0], "rollouts": cases[1]}


if __name__ == "__main__":
    main()
