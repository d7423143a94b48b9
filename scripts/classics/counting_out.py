"""Counting out in a circle: off-by-one country, and too slow when done with a list."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _inputs(rng: Random) -> Iterator[str]:
    yield "1 1\n"
    yield "1 1000000000\n"
    yield "6 1\n"
    yield "2 2\n"
    yield "41 3\n"
    yield "5 1000000000\n"
    for count, step in ((10, 10), (100, 1000), (5000, 10**6), (300000, 10**9), (300000, 10**9)):
        yield f"{rng.randint(count // 2, count)} {rng.randint(1, step)}\n"


CLASSIC = Classic(
    problem_id="counting-out",
    statement="""
        The children 1 to n stand in a circle. Starting with child 1, they count 1, 2, 3, ... around
        the circle; whoever says k leaves, and the next child starts again with 1. Which child is
        the last one left?

        Input: one line with n and k (1 <= n <= 300000, 1 <= k <= 1000000000).
        Output: the number of the last child.
    """,
    example="5 2",
    inputs=_inputs,
    solutions=(
        """
        n, k = map(int, input().split())
        last = 0
        for size in range(2, n + 1):
            last = (last + k) % size
        print(last + 1)
        """,
        """
        import sys

        sys.setrecursionlimit(400000)


        def last(n, k):
            stack = []
            while n > 1:
                stack.append(n)
                n -= 1
            place = 0
            while stack:
                place = (place + k) % stack.pop()
            return place


        for line in sys.stdin:
            print(last(*map(int, line.split())) + 1)
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            n, k = map(int, input().split())
            circle = list(range(1, n + 1))
            while len(circle) > 1:
                for _ in range(k - 1):
                    circle.append(circle.pop(0))
                circle.pop(0)
            print(circle[0])
            """,
        ),
        Wrong(
            "WA",
            """
            n, k = map(int, input().split())
            last = 0
            for size in range(1, n):
                last = (last + k) % size
            print(last + 1)
            """,
        ),
        Wrong(
            "RE",
            """
            n, k = map(int, input().split())

            def last(n):
                return 0 if n == 1 else (last(n - 1) + k) % n

            print(last(n) + 1)
            """,
        ),
    ),
)
