"""Shortest paths with weights; counting edges only is the classic mistake."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(count: int, roads: list[tuple[int, int, int]]) -> str:
    return f"{count} {len(roads)}\n" + "".join(f"{a} {b} {km}\n" for a, b, km in roads)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(1, [])
    yield _case(2, [])
    yield _case(2, [(1, 2, 9), (2, 1, 4), (1, 1, 1)])
    yield _case(4, [(1, 4, 10), (1, 2, 3), (2, 3, 3), (3, 4, 3)])
    yield _case(5, [(5, 4, 1), (4, 3, 10**9), (3, 2, 10**9), (2, 1, 10**9)])
    yield _case(6, [(1, 2, 7), (2, 3, 1), (1, 3, 9), (5, 6, 1), (3, 4, 2), (1, 4, 11)])
    for count, road_count in ((10, 20), (100, 300), (1000, 2000), (1500, 3000)):
        ends = [(rng.randint(1, count), rng.randint(1, count)) for _ in range(road_count)]
        yield _case(count, [(a, b, rng.randint(1, 10**6)) for a, b in ends])
    chain = [(i, i + 1, 1) for i in range(1, 3000)]
    yield _case(3000, chain + [(1, i, 4000 - 2 * (i % 9)) for i in range(2, 3000, 7)])


CLASSIC = Classic(
    problem_id="delivery-routes",
    statement="""
        A van starts from town 1. For each town, find the length of the shortest way to it. Roads
        can be used in both directions; there may be several between the same towns.

        Input: the number of towns n and of roads m (1 <= n <= 3000, 0 <= m <= 10000), then m lines
        with the two towns of a road and its length (1 to 1000000000).
        Output: n lines: the length of the shortest way to towns 1 to n, or -1 where there is none.
    """,
    example="""
        4 4
        1 2 5
        2 3 4
        1 3 10
        3 3 1
    """,
    inputs=_inputs,
    solutions=(
        """
        import heapq
        import sys

        numbers = list(map(int, sys.stdin.buffer.read().split()))
        n, m = numbers[:2]
        near = [[] for _ in range(n + 1)]
        for i in range(2, 2 + 3 * m, 3):
            a, b, km = numbers[i : i + 3]
            near[a].append((b, km))
            near[b].append((a, km))
        far = [None] * (n + 1)
        heap = [(0, 1)]
        while heap:
            km, town = heapq.heappop(heap)
            if far[town] is None:
                far[town] = km
                for other, more in near[town]:
                    if far[other] is None:
                        heapq.heappush(heap, (km + more, other))
        print("\\n".join(str(-1 if km is None else km) for km in far[1:]))
        """,
        """
        from collections import defaultdict, deque


        def main():
            towns, count = map(int, input().split())
            roads = defaultdict(dict)
            for _ in range(count):
                a, b, km = map(int, input().split())
                roads[a][b] = min(km, roads[a].get(b, km))
                roads[b][a] = roads[a][b]
            best = {1: 0}
            queue = deque([1])
            waiting = {1}
            while queue:
                town = queue.popleft()
                waiting.discard(town)
                for other, km in roads[town].items():
                    if best[town] + km < best.get(other, float("inf")):
                        best[other] = best[town] + km
                        if other not in waiting:
                            waiting.add(other)
                            queue.append(other)
            for town in range(1, towns + 1):
                print(best.get(town, -1))


        main()
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            from collections import deque

            n, m = map(int, input().split())
            near = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b, km = map(int, input().split())
                near[a].append((b, km))
                near[b].append((a, km))
            far = [-1] * (n + 1)
            far[1] = 0
            queue = deque([1])
            while queue:
                town = queue.popleft()
                for other, km in near[town]:
                    if far[other] < 0:
                        far[other] = far[town] + km
                        queue.append(other)
            print(*far[1:], sep="\\n")
            """,
        ),
        Wrong(
            "WA",
            """
            import heapq

            n, m = map(int, input().split())
            near = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b, km = map(int, input().split())
                near[a].append((b, km))
            far = [-1] * (n + 1)
            heap = [(0, 1)]
            while heap:
                km, town = heapq.heappop(heap)
                if far[town] < 0:
                    far[town] = km
                    for other, more in near[town]:
                        heapq.heappush(heap, (km + more, other))
            print(*far[1:], sep="\\n")
            """,
        ),
        Wrong(
            "WA",
            """
            import heapq

            n, m = map(int, input().split())
            near = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b, km = map(int, input().split())
                near[a].append((b, km))
                near[b].append((a, km))
            far = [10**18] * (n + 1)
            heap = [(0, 1)]
            while heap:
                km, town = heapq.heappop(heap)
                if km < far[town]:
                    far[town] = km
                    for other, more in near[town]:
                        heapq.heappush(heap, (km + more, other))
            print(*far[1:], sep="\\n")
            """,
        ),
    ),
)
