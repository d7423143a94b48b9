"""The programs that the sandbox benchmark judges, and the problem that they are to solve.

Every program is made unique by a comment, so that no verdict can be shared or kept.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from envhost.judge.problems import Problem, Test

__all__ = ["HANGING", "MIXES", "RIGHT", "TESTS", "problem", "programs", "some_programs"]

TESTS = 12
_HEAD = "import sys, math, heapq, bisect, itertools, functools, collections\n"
RIGHT = _HEAD + "print(sum(map(int, sys.stdin.read().split())))\n"
_WRONG = _HEAD + "print(-1)\n"
HANGING = _HEAD + "while True: pass\n"
# Shares of right, wrong and hanging programs.
MIXES = {
    "right": (1.0, 0.0, 0.0),
    "wrong": (0.0, 1.0, 0.0),
    "mixed": (0.25, 0.75, 0.0),
    "hanging": (0.25, 0.70, 0.05),
}


def programs(mix: str) -> Iterator[str]:
    """Yield programs of a mix, the same ones each time, no two alike."""
    chance = random.Random(mix)
    for number in itertools.count():
        (source,) = chance.choices((RIGHT, _WRONG, HANGING), MIXES[mix])
        yield f"{source}# {number}\n"


def some_programs(mix: str, count: int, salt: str) -> list[str]:
    """Return so many programs, with exactly the mix's shares, in the same order each time."""
    shares = zip((RIGHT, _WRONG, HANGING), MIXES[mix], strict=True)
    sources = [source for source, share in shares for _ in range(round(share * count))]
    random.Random(mix).shuffle(sources)
    return [f"{source}# {salt} {number}\n" for number, source in enumerate(sources)]


def problem() -> Problem:
    """Return a problem whose inputs all differ."""
    tests = tuple(
        Test(f"{number} {number + 1}\n", f"{2 * number + 1}\n") for number in range(TESTS)
    )
    return Problem(problem_id="sum", text="", tests=tests)
