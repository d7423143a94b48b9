"""Simulation with a heap of free times."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(desks: int, visits: list[tuple[int, int]]) -> str:
    return f"{len(visits)} {desks}\n" + "".join(f"{at} {takes}\n" for at, takes in visits)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(1, [(0, 1)])
    yield _case(5, [(3, 10), (3, 10)])
    yield _case(1, [(0, 5), (0, 5), (0, 5)])
    yield _case(2, [(0, 100), (1, 1), (2, 1), (3, 1), (4, 1)])
    yield _case(1, [(0, 2), (10, 2), (11, 5), (30, 1)])
    for count, desks, gap in (
        (10, 2, 3),
        (50, 3, 4),
        (300, 7, 2),
        (2000, 40, 1),
        (5000, 3, 20),
        (5000, 300, 0),
    ):
        at, visits = 0, []
        for _ in range(count):
            at += rng.randint(0, gap)
            visits.append((at, rng.randint(1, 2 * gap * desks // 2 + 10)))
        yield _case(desks, visits)


CLASSIC = Classic(
    problem_id="bank-queue",
    statement="""
        A bank has k desks and one queue. Customers come in the given order; each goes to a free
        desk at once if there is one, else waits until a desk becomes free and everybody who came
        earlier has been called. A desk which ends its work at minute t can take the next customer
        at minute t.

        Input: n and k (1 <= n <= 10000, 1 <= k <= 1000), then n lines, each with the minute at
        which a customer comes and how many minutes the desk will need (at least 1). The lines are
        sorted by the first number.
        Output: two integers: the sum of all waiting times, and the longest waiting time.
    """,
    example="""
        4 2
        0 10
        1 3
        2 2
        2 1
    """,
    inputs=_inputs,
    solutions=(
        """
        import heapq
        import sys

        read = sys.stdin.readline
        n, k = map(int, read().split())
        free = [0] * k
        total = longest = 0
        for _ in range(n):
            at, takes = map(int, read().split())
            start = max(at, free[0])
            heapq.heapreplace(free, start + takes)
            total += start - at
            longest = max(longest, start - at)
        print(total, longest)
        """,
        """
        from bisect import insort

        lines = open(0).read().splitlines()
        n, k = map(int, lines[0].split())
        busy = []
        waits = []
        for line in lines[1 : n + 1]:
            at, takes = map(int, line.split())
            start = at
            if len(busy) == k:
                start = max(at, busy.pop(0))
            insort(busy, start + takes)
            waits.append(start - at)
        print(sum(waits), max(waits))
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n, k = map(int, input().split())
            free = [0] * k
            waits = []
            for i in range(n):
                at, takes = map(int, input().split())
                start = max(at, free[i % k])
                free[i % k] = start + takes
                waits.append(start - at)
            print(sum(waits), max(waits))
            """,
        ),
        Wrong(
            "WA",
            """
            import heapq

            n, k = map(int, input().split())
            free = [0] * k
            waits = []
            for i in range(n):
                at, takes = map(int, input().split())
                start = heapq.heappop(free)
                heapq.heappush(free, max(start, at) + takes)
                waits.append(start - at)
            print(sum(waits), max(waits))
            """,
        ),
        Wrong(
            "RE",
            """
            n, k = map(int, input().split())
            free = [0] * k
            waits = []
            while True:
                at, takes = map(int, input().split())
                desk = free.index(min(free))
                start = max(at, free[desk])
                free[desk] = start + takes
                waits.append(start - at)
                if len(waits) > n:
                    break
            print(sum(waits), max(waits))
            """,
        ),
    ),
)
