"""Measure what a large data set costs a server: memory, the time of a reset, the time of loading.

    bench_datasets.py                   8,000 rows, 2 GB of tests in TACO's layout, as Parquet
    bench_datasets.py --rows 200 --megabytes 20

The set is made once, under .cache/bench. Two servers are compared, one that serves the bundled
problems and one that serves the set; the second is started twice, so that the table shows the
first load and a later one. Times are the server's own, from its log: a reset reads a problem's
text, a step without code reads its tests. Memory is that of the server's process: `anonymous` is
what it holds itself, the rest is mapped files, the data set's among them, which the kernel takes
back where it needs them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envhost.client import EnvClient

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "bench"
TESTS_A_ROW = 40
HEAVIEST_SHARE = 0.2
"""Of all bytes, in one row of a thousand: TACO has rows of tens of megabytes."""


def make(rows: int, megabytes: int) -> Path:
    """Make a data set of numbers, laid out as on the hub, and return its folder."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = CACHE / f"taco-{rows}-{megabytes}"
    if (folder / "complete").exists():
        return folder
    (folder / "data").mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    pool = "\n".join(str(draw.randrange(10**6)) for _ in range(4_000_000))
    heavy = max(1, rows // 1000)
    usual = megabytes * 1e6 * (1 - HEAVIEST_SHARE) / (rows - heavy)
    heaviest = megabytes * 1e6 * HEAVIEST_SHARE / heavy
    shards = 4
    for shard in range(shards):
        path = folder / "data" / f"train-{shard:05}-of-{shards:05}.parquet"
        writer = None
        for first in range(shard * rows // shards, (shard + 1) * rows // shards, 100):
            numbers = range(first, min(first + 100, (shard + 1) * rows // shards))
            table = pa.table([
                pa.array([f"Problem {n}. " + "Read the numbers and add. " * 60 for n in numbers]),
                pa.array([
                    _tests(draw, pool, heaviest if n % 1000 == 7 else usual * draw.uniform(0, 2))
                    for n in numbers
                ]),
            ], names=["problem", "tests"])  # fmt: skip
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
        assert writer is not None
        writer.close()
    (folder / "complete").touch()
    return folder


def _tests(draw: random.Random, pool: str, size: float) -> str:
    one = min(int(size / TESTS_A_ROW), len(pool) - 1)
    starts = [draw.randrange(len(pool) - one) for _ in range(TESTS_A_ROW)]
    inputs = [pool[start : start + one] for start in starts]
    return json.dumps({"inputs": inputs, "outputs": ["1\n"] * TESTS_A_ROW})


@contextmanager
def server(**env_config: Any) -> Iterator[tuple[int, str, Path]]:
    """Serve a data set; yield the process's id, its URL and its log."""
    argv = [sys.executable, "-m", "envhost", "serve", "--port", "0"]
    argv += ["--env-config", json.dumps(env_config)]
    log = CACHE / f"server-{os.getpid()}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as errors,
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            match = re.search(r"Serving (\S+)", process.stdout.readline())
            assert match, log.read_text()
            yield process.pid, match[1], log
        finally:
            process.terminate()
            log.unlink()


def megabytes_of(pid: int) -> dict[str, float]:
    """Return a process's resident memory in MB: whole, what is its own, and the most there was."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = {}
    for name, field in (("resident", "VmRSS"), ("anonymous", "RssAnon"), ("most", "VmHWM")):
        match = re.search(rf"{field}:\s+(\d+) kB", status)
        assert match
        found[name] = int(match[1]) * 1024 / 1e6
    return found


def measure(resets: int, **env_config: Any) -> dict[str, float]:
    """Serve a data set and return what it cost."""
    started = time.monotonic()
    with server(**env_config) as (pid, url, log), EnvClient(url) as env:
        result = {"start_seconds": time.monotonic() - started}
        print(*(f"  {each}" for each in _events(log, "server.note")), sep="\n", file=sys.stderr)
        env.reset(seed=0)
        result |= {f"{name}_mb_loaded": size for name, size in megabytes_of(pid).items()}
        for seed in range(resets):
            env.reset(seed=seed)
        result |= {f"{name}_mb_after_resets": size for name, size in megabytes_of(pid).items()}
        for seed in range(resets):
            env.reset(seed=seed)
            env.step("no code: only the tests are read")
        result |= {f"{name}_mb_after_steps": size for name, size in megabytes_of(pid).items()}
        for event in ("reset", "step"):
            times = sorted(_seconds(each) for each in _events(log, event))
            result[f"{event}_p50_ms"] = 1000 * statistics.median(times)
            result[f"{event}_p99_ms"] = 1000 * times[int(0.99 * len(times))]
        result["step_max_ms"] = 1000 * times[-1]
    return result


def _events(log: Path, name: str) -> list[str]:
    return [line for line in log.read_text().splitlines() if line[9:].startswith(f"{name} ")]


def _seconds(event: str) -> float:
    match = re.search(r" seconds=(\S+)", event)
    assert match
    return float(match[1])


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("--resets", type=int, default=2000)
    parser.add_argument("--json", type=Path, help="write the results here")
    asked = parser.parse_args()
    # Caches of our own: the first load is a first one, and the user's stay as they are.
    for name in ("HF_HOME", "XDG_CACHE_HOME"):
        os.environ[name] = str(CACHE / f"home-{os.getpid()}")
    path = make(asked.rows, asked.megabytes)
    results = {
        "bundled": measure(asked.resets, dataset="bundled:lists"),
        "first load": measure(asked.resets, dataset=str(path)),
        "later load": measure(asked.resets, dataset=str(path)),
    }
    heads = [*results, "added"]
    print(f"{asked.rows:,} rows, {asked.megabytes:,} MB of tests\n")
    print(" " * 26 + "".join(f"{head:>13}" for head in heads))
    for key in results["bundled"]:
        values = [result[key] for result in results.values()]
        values.append(values[2] - values[0])
        print(f"{key:26}" + "".join(f"{value:13,.2f}" for value in values))
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    subprocess.run(["rm", "-rf", CACHE / f"home-{os.getpid()}"], check=True)


if __name__ == "__main__":
    main()
