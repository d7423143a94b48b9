"""Measure how fast programs are judged, and what a test costs, in each kind of cell.

    bench_sandbox.py                              every kind and mix, as many sessions as cores
    bench_sandbox.py --kinds warm cold --sessions 1 8
    bench_sandbox.py --mixes mixed --seconds 20 --json result.json
    bench_sandbox.py --gem /path/to/python        GEM's own CodeEnv too, where gem-llm is installed

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
import random
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import trio
from attrs import frozen
from bench.gem import measure_gem

from envhost.judge.judging import Judge, JudgeRules
from envhost.judge.problems import Problem, Test
from envhost.process import cpu_seconds, descendants
from envhost.sandbox.bwrap import Interpreter, find_interpreter
from envhost.sandbox.cells import Cells, bwrap_cells, plain_cells
from envhost.sandbox.limits import CellLimits
from envhost.sandbox.warm import warm_cells

PR_SET_CHILD_SUBREAPER = 36
TESTS = 12
HEAD = "import sys, math, heapq, bisect, itertools, functools, collections\n"
RIGHT = HEAD + "print(sum(map(int, sys.stdin.read().split())))\n"
WRONG = HEAD + "print(-1)\n"
HANGING = HEAD + "while True: pass\n"
# Shares of right, wrong and hanging programs.
MIXES = {
    "right": (1.0, 0.0, 0.0),
    "wrong": (0.0, 1.0, 0.0),
    "mixed": (0.25, 0.75, 0.0),
    "hanging": (0.25, 0.70, 0.05),
}
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


def programs(mix: str) -> Iterator[str]:
    """Yield programs of a mix, the same ones each time, no two alike."""
    chance = random.Random(mix)
    for number in itertools.count():
        (source,) = chance.choices((RIGHT, WRONG, HANGING), MIXES[mix])
        yield f"{source}# {number}\n"


def problem() -> Problem:
    """Return a problem whose inputs all differ."""
    tests = tuple(
        Test(f"{number} {number + 1}\n", f"{2 * number + 1}\n") for number in range(TESTS)
    )
    return Problem(problem_id="sum", text="", tests=tests)


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


def compare(kinds: list[str], case: Case, rounds: int, gem: str | None) -> dict[str, Any]:
    """Measure each kind in turn, again and again; return medians by kind."""
    seen: dict[str, list[dict[str, float]]] = {}
    for number in range(rounds):
        for kind in kinds:
            print(f"  round {number + 1} of {rounds}: {kind}", file=sys.stderr, flush=True)
            seen.setdefault(kind, []).append(trio.run(measure, kind, case))
        if gem is not None:
            print(f"  round {number + 1} of {rounds}: gem", file=sys.stderr, flush=True)
            task = problem()
            tests = [(test.input, test.expected) for test in task.tests]
            result = measure_gem(gem, tests, programs(case.mix), case.sessions, case.seconds)
            seen.setdefault("gem", []).append(result)
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
    parser.add_argument("--mixes", nargs="+", choices=MIXES, default=list(MIXES))
    parser.add_argument("--sessions", nargs="+", type=int, default=[cores])
    parser.add_argument("--seconds", type=float, default=5.0, help="of judging, a measurement")
    parser.add_argument("--cpu-limit", type=float, default=1.0, help="seconds; hanging ones use it")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gem", metavar="PYTHON", help="an interpreter that has gem-llm")
    parser.add_argument("--json", type=Path, help="write the results here")
    asked = parser.parse_args()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    report: list[dict[str, Any]] = []
    for mix, sessions in itertools.product(asked.mixes, asked.sessions):
        case = Case(
            mix=mix,
            sessions=sessions,
            seconds=asked.seconds,
            cpu_limit_seconds=asked.cpu_limit,
        )
        results = compare(asked.kinds, case, asked.rounds, asked.gem)
        show(case, results)
        report.append({"mix": mix, "sessions": sessions, "results": results})
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
