"""Each thing once: the direction of the inner loop matters."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(room: int, things: list[tuple[int, int]]) -> str:
    return f"{len(things)} {room}\n" + "".join(f"{size} {value}\n" for size, value in things)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(0, [(1, 5)])
    yield _case(5, [(5, 1)])
    yield _case(5, [(6, 100), (7, 1)])
    yield _case(10, [(3, 10)])
    yield _case(10, [(6, 30), (5, 20), (5, 20)])
    yield _case(100, [(1, 1), (100, 99)])
    for count, room in ((8, 30), (30, 200), (60, 1000), (100, 3000), (120, 5000)):
        sizes = [rng.randint(1, room // 3) for _ in range(count)]
        yield _case(room, [(size, size * 10 + rng.randint(-9, 60)) for size in sizes])


CLASSIC = Classic(
    problem_id="knapsack",
    statement="""
        A thief has a bag with room r and stands before n things, each with a size and a value. Each
        thing can be taken once, as a whole. What is the largest total value that fits?

        Input: n and r (1 <= n <= 120, 0 <= r <= 5000), then n lines with the size (1 to 5000) and
        the value (1 to 1000000) of a thing.
        Output: the largest total value.
    """,
    example="""
        3 10
        4 40
        6 30
        5 50
    """,
    inputs=_inputs,
    solutions=(
        """
        n, room = map(int, input().split())
        best = [0] * (room + 1)
        for _ in range(n):
            size, value = map(int, input().split())
            for used in range(room, size - 1, -1):
                best[used] = max(best[used], best[used - size] + value)
        print(best[room])
        """,
        """
        import sys

        lines = sys.stdin.readlines()
        n, room = (int(word) for word in lines[0].split())
        front = [(0, 0)]
        for line in lines[1:]:
            size, value = (int(word) for word in line.split())
            more = [(s + size, v + value) for s, v in front if s + size <= room]
            merged = sorted(front + more, key=lambda pair: (pair[0], -pair[1]))
            front = []
            top = -1
            for pair in merged:
                if pair[1] > top:
                    front.append(pair)
                    top = pair[1]
        print(front[-1][1])
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n, room = map(int, input().split())
            best = [0] * (room + 1)
            for _ in range(n):
                size, value = map(int, input().split())
                for used in range(size, room + 1):
                    best[used] = max(best[used], best[used - size] + value)
            print(best[room])
            """,
        ),
        Wrong(
            "WA",
            """
            n, room = map(int, input().split())
            things = [tuple(map(int, input().split())) for _ in range(n)]
            things.sort(key=lambda thing: -thing[1] / thing[0])
            total = 0
            for size, value in things:
                if size <= room:
                    room -= size
                    total += value
            print(total)
            """,
        ),
        Wrong(
            "TLE",
            """
            n, room = map(int, input().split())
            things = [tuple(map(int, input().split())) for _ in range(n)]
            best = 0
            for chosen in range(1 << n):
                size = value = 0
                for i in range(n):
                    if chosen >> i & 1:
                        size += things[i][0]
                        value += things[i][1]
                if size <= room:
                    best = max(best, value)
            print(best)
            """,
        ),
    ),
)
