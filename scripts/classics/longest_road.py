"""The diameter of a tree; deep recursion needs a larger stack."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(roads: list[tuple[int, int, int]]) -> str:
    return f"{len(roads) + 1}\n" + "".join(f"{a} {b} {km}\n" for a, b, km in roads)


def _tree(rng: Random, count: int, reach: int) -> list[tuple[int, int, int]]:
    names = list(range(1, count + 1))
    rng.shuffle(names)
    return [
        (names[i], names[rng.randint(max(0, i - reach), i - 1)], rng.randint(1, 99))
        for i in range(1, count)
    ]


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([])
    yield _case([(1, 2, 1000)])
    yield _case([(1, i, 10 * i) for i in range(2, 12)])
    yield _case([(1, 2, 1), (2, 3, 1), (2, 4, 900), (4, 5, 900), (4, 6, 900)])
    for count, reach in ((10, 10), (100, 100), (300, 3), (900, 900), (10000, 2)):
        yield _case(_tree(rng, count, reach))
    yield _case([(i, i + 1, 1) for i in range(1, 3000)])
    yield _case([(i + 1, i, 7) for i in reversed(range(1, 2000))])


CLASSIC = Classic(
    problem_id="longest-road",
    statement="""
        The villages of a valley are joined by roads so that there is exactly one way between any
        two of them. How far apart are the two villages that are farthest from each other?

        Input: the number of villages n (1 <= n <= 12000), then n - 1 lines with the two villages of
        a road, numbered from 1, and its length (1 to 1000).
        Output: the largest distance between two villages.
    """,
    example="""
        5
        1 2 3
        1 3 4
        3 4 2
        3 5 6
    """,
    inputs=_inputs,
    solutions=(
        """
        import sys

        data = list(map(int, sys.stdin.buffer.read().split()))
        n = data[0]
        near = [[] for _ in range(n + 1)]
        for i in range(1, len(data), 3):
            a, b, km = data[i : i + 3]
            near[a].append((b, km))
            near[b].append((a, km))


        def farthest(start):
            far = [-1] * (n + 1)
            far[start] = 0
            stack = [start]
            for village in stack:
                for other, km in near[village]:
                    if far[other] < 0:
                        far[other] = far[village] + km
                        stack.append(other)
            return max((distance, village) for village, distance in enumerate(far))


        print(farthest(farthest(1)[1])[0])
        """,
        """
        import sys
        import threading


        def main():
            n = int(sys.stdin.readline())
            near = [[] for _ in range(n + 1)]
            for line in sys.stdin:
                a, b, km = map(int, line.split())
                near[a].append((b, km))
                near[b].append((a, km))
            best = 0

            def depth(village, parent):
                nonlocal best
                deepest = 0
                for other, km in near[village]:
                    if other != parent:
                        below = depth(other, village) + km
                        best = max(best, deepest + below)
                        deepest = max(deepest, below)
                return deepest

            depth(1, 0)
            print(best)


        threading.stack_size(128 * 1024 * 1024)
        sys.setrecursionlimit(1 << 20)
        worker = threading.Thread(target=main)
        worker.start()
        worker.join()
        """,
    ),
    wrong=(
        Wrong(
            "RE",
            """
            n = int(input())
            near = [[] for _ in range(n + 1)]
            for _ in range(n - 1):
                a, b, km = map(int, input().split())
                near[a].append((b, km))
                near[b].append((a, km))
            best = 0

            def depth(village, parent):
                global best
                deepest = 0
                for other, km in near[village]:
                    if other != parent:
                        below = depth(other, village) + km
                        best = max(best, deepest + below)
                        deepest = max(deepest, below)
                return deepest

            depth(1, 0)
            print(best)
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            near = [[] for _ in range(n + 1)]
            for _ in range(n - 1):
                a, b, km = map(int, input().split())
                near[a].append((b, km))
                near[b].append((a, km))
            far = {1: 0}
            queue = [1]
            for village in queue:
                for other, km in near[village]:
                    if other not in far:
                        far[other] = far[village] + km
                        queue.append(other)
            print(max(far.values()))
            """,
        ),
        Wrong(
            "TLE",
            """
            n = int(input())
            near = [[] for _ in range(n + 1)]
            for _ in range(n - 1):
                a, b, km = map(int, input().split())
                near[a].append((b, km))
                near[b].append((a, km))
            best = 0
            for start in range(1, n + 1):
                far = {start: 0}
                queue = [start]
                for village in queue:
                    for other, km in near[village]:
                        if other not in far:
                            far[other] = far[village] + km
                            queue.append(other)
                best = max(best, max(far.values()))
            print(best)
            """,
        ),
    ),
)
