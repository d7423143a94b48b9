"""Measure session servers: steps a second, latency, opening time, memory a session, clean-up time.

    bench_sessions.py                       our echo server
    bench_sessions.py --peer openenv        ours and OpenEnv 0.4.2's in turn, and their ratio
    bench_sessions.py --peer openenv-async  the same with an asynchronous environment in OpenEnv's
    bench_sessions.py --suite --peer openenv      every case that the documentation claims
    bench_sessions.py http://host:port      any server, where it stands
    bench_sessions.py --kill 100            seconds from a closed socket to the last process gone

The load comes from a process of its own (`bench/load.py`) that costs less than any server here;
its share of a core is in the JSON. Each round starts fresh servers and takes them in turn, so
that the machine's noise hits both; the table shows medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
from attrs import asdict
from bench.cleanup import kill_times
from bench.servers import PEER_PIN, PEERS, ROOT, Case, Serve, Target, ours

LOAD = ROOT / "scripts" / "bench" / "load.py"


def measure(target: Target, case: Case) -> dict[str, float]:
    """Put one load on a server and return what was seen."""
    server = psutil.Process(target.pid) if target.pid is not None else None
    before = server.memory_info().rss if server else 0
    argv = [sys.executable, str(LOAD), target.url, "--sessions", str(case.sessions)]
    argv += ["--message-bytes", str(case.message_bytes), "--seconds", str(case.seconds)]
    argv += ["--rate", str(case.rate)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdin is not None
        assert load.stdout is not None
        result: dict[str, float] = _told(load.stdout, "opened")
        if server:
            grown = server.memory_info().rss - before
            result["memory_kb_a_session"] = grown / 1e3 / case.sessions
            cpu = sum(server.cpu_times()[:2])
        load.stdin.write("step\n")
        load.stdin.flush()
        result |= _told(load.stdout, "stepped")
        if server:
            # Steadier than steps a second on a machine that has other things to do.
            used = sum(server.cpu_times()[:2]) - cpu
            result["server_cpu_us_a_step"] = 1e6 * used / result["steps"]
        load.stdin.write("close\n")
    return result


def _told(lines: Any, name: str) -> dict[str, float]:
    line = lines.readline()
    if not line:
        raise SystemExit("the load ended early: see its message above")
    told: dict[str, float] = json.loads(line)[name]
    return told


def compare(case: Case, servers: dict[str, Serve], rounds: int) -> dict[str, dict[str, float]]:
    """Measure each server in turn, again and again; return medians by server."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    for number in range(rounds):
        for name, serve in servers.items():
            print(f"  round {number + 1} of {rounds}: {name}", file=sys.stderr, flush=True)
            with serve(case) as target:
                seen[name].append(measure(target, case))
    return {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in seen.items()
    }


def show(case: Case, results: dict[str, dict[str, float]]) -> None:
    """Print a table, with the ratio of the first server to the second if there are two."""
    rate = f", {case.rate:g} steps/s" if case.rate else ""
    print(
        f"\n{case.sessions} sessions, {case.message_bytes:,} bytes an action{rate}, "
        f"log level {case.log_level}"
    )
    names = list(results)
    heads = [*names, "ratio"] if len(names) > 1 else names
    print(" " * 22 + "".join(f"{head:>14}" for head in heads))
    for key in results[names[0]]:
        values = [results[name].get(key, 0.0) for name in names]
        row = f"{key:22}" + "".join(f"{value:14,.2f}" for value in values)
        if len(values) > 1 and values[1]:
            row += f"{values[0] / values[1]:14.2f}"
        print(row)


def _cases(asked: argparse.Namespace) -> list[Case]:
    if not asked.suite:
        return [
            Case(
                sessions=asked.sessions,
                message_bytes=asked.message_bytes,
                seconds=asked.seconds,
                rate=asked.rate,
                log_level=asked.log_level,
            )
        ]
    shapes = (
        (64, 500, "warning"),
        (64, 500, "info"),
        (64, 200_000, "warning"),
        (500, 500, "warning"),
        (1000, 500, "warning"),
    )
    return [
        Case(sessions=n, message_bytes=size, seconds=asked.seconds, rate=0.0, log_level=level)
        for n, size, level in shapes
    ]


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", nargs="?", help="a running server; else our own is started")
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--message-bytes", type=int, default=500)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="steps a second in all; 0: no pause"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of stepping, a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log-level", default="warning", help="of our server")
    parser.add_argument("--peer", choices=list(PEERS), help=f"{PEER_PIN} beside ours")
    parser.add_argument("--suite", action="store_true", help="several cases")
    parser.add_argument("--kill", type=int, metavar="TIMES", help="measure clean-up instead")
    parser.add_argument("--json", type=Path, help="write the results here")
    asked = parser.parse_args()
    report: list[dict[str, Any]] = []
    if asked.kill:
        report.append({"kill": kill_times(asked.kill)})
        print(json.dumps(report[0]["kill"], indent=2))
    for case in [] if asked.kill else _cases(asked):
        if asked.url:
            results = {"server": measure(Target(asked.url, None), case)}
        else:
            servers: dict[str, Serve] = {"envhost": ours}
            if asked.peer:
                servers[asked.peer] = PEERS[asked.peer]
            results = compare(case, servers, asked.rounds)
        show(case, results)
        report.append({"case": asdict(case), "results": results})
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
