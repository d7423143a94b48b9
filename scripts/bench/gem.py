"""GEM's own code environment under the same load as ours, in an interpreter that has gem-llm.

Owns both sides: `measure_gem` starts this file as a script there, with the tests and the programs
on its standard input, and it prints what it measured. The interpreter must be one that bubblewrap
can run as it stands: in a virtual environment GEM scores every program 0, which is refused here.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import islice

MOST_PROGRAMS = 20_000
WORKERS = 4


def measure_gem(
    python: str,
    tests: list[tuple[str, str]],
    programs: Iterator[str],
    sessions: int,
    seconds: float,
) -> dict[str, float]:
    """Return what GEM's environment achieves; it does not say how many tests it ran."""
    load = {
        "tests": {"inputs": [given for given, _ in tests], "outputs": [made for _, made in tests]},
        "programs": list(islice(programs, MOST_PROGRAMS)),
        "sessions": sessions,
        "seconds": seconds,
    }
    ended = subprocess.run(
        [python, __file__], input=json.dumps(load), stdout=subprocess.PIPE, text=True, check=False
    )
    if ended.returncode:
        raise SystemExit(f"GEM could not be measured with {python}: see its message above")
    result: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Judge programs for a while, a thread a session, and print rates and costs."""
    from datasets import Dataset
    from gem.envs.code_env import CodeEnv

    load = json.load(sys.stdin)
    nothing = Dataset.from_list([{"problem": "", "tests": "{}"}])
    programs = iter(load["programs"])
    rewards: list[float] = []

    def judge(environment: CodeEnv, program: str) -> float:
        environment.tests = load["tests"]
        return float(environment.step(f"```python\n{program}\n```")[1])

    def new_environment() -> CodeEnv:
        return CodeEnv(
            dataset_name="taco", dataset=nothing, sandbox_type="bwrap", max_workers=WORKERS
        )

    right = "print(sum(map(int, open(0).read().split())))"
    if judge(new_environment(), right) != 1.0:
        raise SystemExit("GEM calls a known-right program wrong: is this a base interpreter?")

    def session() -> None:
        environment = new_environment()
        while time.monotonic() - begun < load["seconds"]:
            rewards.append(judge(environment, next(programs)))

    threads = [threading.Thread(target=session) for _ in range(load["sessions"])]
    begun, used = time.monotonic(), used_seconds()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, used = time.monotonic() - begun, used_seconds() - used
    shown = {
        "rollouts_a_second": len(rewards) / elapsed,
        "cpu_ms_a_rollout": 1e3 * used / len(rewards),
        "mean_reward": sum(reward == 1.0 for reward in rewards) / len(rewards),
    }
    print(json.dumps(shown))


def used_seconds() -> float:
    """Return the CPU time of this process and of the children that it has waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(one)[:2]) for one in who)


if __name__ == "__main__":
    main()
