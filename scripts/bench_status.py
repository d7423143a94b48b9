"""Measure what one look at the status page costs the server: CPU time of `GET /status.json`.

    bench_status.py                 100 open sessions, 300 looks
    bench_status.py --sessions 1000

`/health` is asked as often, so that what any request costs can be taken off.
"""

from __future__ import annotations

import argparse
import urllib.request

import psutil
from bench.servers import Case, ours

from envhost.client import EnvPool


def main() -> None:
    """Print milliseconds of CPU time and bytes a request, for each of the two paths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--requests", type=int, default=300)
    asked = parser.parse_args()
    case = Case(
        sessions=asked.sessions, message_bytes=0, seconds=0.0, rate=0.0, log_level="warning"
    )
    with ours(case) as target, EnvPool(target.url, asked.sessions) as pool:
        assert target.pid is not None
        server = psutil.Process(target.pid)
        for slot in range(asked.sessions):
            pool.submit_reset(slot, seed=slot)
        for result in pool.results():
            assert result.error is None, result.error
        print(f"{asked.sessions} open sessions")
        for path in ("/health", "/status.json"):
            before = sum(server.cpu_times()[:2])
            for _ in range(asked.requests):
                with urllib.request.urlopen(target.url + path) as reply:
                    size = len(reply.read())
            seconds = sum(server.cpu_times()[:2]) - before
            print(f"{path:14}{1e3 * seconds / asked.requests:6.2f} ms of CPU{size:9,} bytes")


if __name__ == "__main__":
    main()
