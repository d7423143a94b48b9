"""Prefix sums over a large input; adding up each range anew is too slow."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(values: list[int], queries: list[tuple[int, int]]) -> str:
    lines = "".join(f"{first} {last}\n" for first, last in queries)
    return f"{len(values)} {len(queries)}\n{' '.join(map(str, values))}\n{lines}"


def _random(rng: Random, count: int, query_count: int, most: int) -> str:
    ends = [sorted((rng.randint(1, count), rng.randint(1, count))) for _ in range(query_count)]
    values = [rng.randint(-most, most) for _ in range(count)]
    return _case(values, [(first, last) for first, last in ends])


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([-5], [(1, 1)])
    yield _case([1, 2, 3], [(1, 3)])
    yield _case([0, 0, 0, 0], [(2, 2), (1, 4)])
    yield _case([10**9] * 20, [(1, 20), (20, 20), (1, 1)])
    for count, query_count, most in (
        (10, 10, 9),
        (100, 50, 1000),
        (400, 300, 10**6),
        (1000, 1000, 99),
        (3000, 1500, 9),
    ):
        yield _random(rng, count, query_count, most)
    everything = [(1 + i % 7, 40000 - i % 5) for i in range(12000)]
    yield _case([rng.randint(0, 9) for _ in range(40000)], everything)
    yield _random(rng, 100, 2000, 10**9)


CLASSIC = Classic(
    problem_id="range-sums",
    statement="""
        A shop has written down the profit of n days, losses as negative numbers. Answer q
        questions: how large was the profit from one day to another, both included?

        Input: n and q (1 <= n, q <= 40000), then n integers (-1000000000 to 1000000000), then q
        lines with the first and the last day of a question; days are numbered from 1.
        Output: q lines with the answers.
    """,
    example="""
        5 3
        4 -2 7 1 -6
        1 5
        2 3
        4 4
    """,
    inputs=_inputs,
    solutions=(
        """
        import sys
        from itertools import accumulate

        input = sys.stdin.readline
        n, q = map(int, input().split())
        sums = [0, *accumulate(map(int, input().split()))]
        answers = []
        for _ in range(q):
            first, last = map(int, input().split())
            answers.append(sums[last] - sums[first - 1])
        print("\\n".join(map(str, answers)))
        """,
        """
        import os

        chunks = []
        while chunk := os.read(0, 1 << 16):
            chunks.append(chunk)
        numbers = list(map(int, b"".join(chunks).split()))
        n, q = numbers[:2]
        sums = [0]
        for value in numbers[2 : n + 2]:
            sums.append(sums[-1] + value)
        rest = iter(numbers[n + 2 :])
        answers = [sums[last] - sums[first - 1] for first, last in zip(rest, rest)]
        answer = b"".join(b"%d\\n" % value for value in answers)
        while answer:
            answer = answer[os.write(1, answer) :]
        """,
        """
        n, q = map(int, input().split())
        total = 0
        sums = {0: 0}
        for day, profit in enumerate(input().split(), 1):
            total += int(profit)
            sums[day] = total
        for _ in range(q):
            first, last = input().split()
            print(sums[int(last)] - sums[int(first) - 1])
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            n, q = map(int, input().split())
            profit = list(map(int, input().split()))
            for _ in range(q):
                first, last = map(int, input().split())
                total = 0
                for day in range(first - 1, last):
                    total += profit[day]
                print(total)
            """,
        ),
        Wrong(
            "WA",
            """
            from itertools import accumulate

            n, q = map(int, input().split())
            sums = [0, *accumulate(map(int, input().split()))]
            for _ in range(q):
                first, last = map(int, input().split())
                print(sums[last] - sums[first])
            """,
        ),
        Wrong(
            "WA",
            """
            from itertools import accumulate

            n, q = map(int, input().split())
            sums = [0, *accumulate(map(int, input().split()))]
            for _ in range(q):
                first, last = map(int, input().split())
                print(sums[last] - sums[first - 1], end=" ")
            """,
        ),
    ),
)
