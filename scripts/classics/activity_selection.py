"""Greedy by earliest end; by start or by length is the classic mistake."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(talks: list[tuple[int, int]]) -> str:
    return f"{len(talks)}\n" + "".join(f"{start} {end}\n" for start, end in talks)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([(5, 6)])
    yield _case([(0, 100), (1, 2), (2, 3), (99, 100)])
    yield _case([(0, 10), (9, 12), (11, 20)])
    yield _case([(3, 4)] * 5)
    yield _case([(7, 8), (1, 2), (4, 5)])
    for count, span in ((10, 20), (30, 40), (100, 300), (500, 5000), (1000, 10**6), (3000, 10**9)):
        starts = [rng.randrange(span) for _ in range(count)]
        yield _case([(start, start + rng.randint(1, span // 5)) for start in starts])


CLASSIC = Classic(
    problem_id="activity-selection",
    statement="""
        A festival has one stage and a list of bands, each with the minute at which its concert
        would start and the minute at which it would end. Two concerts may follow each other
        without a break, but they must not overlap. How many concerts can be held at most?

        Input: the number of bands n (1 <= n <= 6000), then n lines with two integers, start and
        end (0 <= start < end <= 2000000000).
        Output: one integer, the largest possible number of concerts.
    """,
    example="""
        4
        1 4
        3 5
        4 7
        8 9
    """,
    inputs=_inputs,
    solutions=(
        """
        n = int(input())
        talks = []
        for _ in range(n):
            start, end = map(int, input().split())
            talks.append((end, start))
        talks.sort()
        free, count = 0, 0
        for end, start in talks:
            if start >= free:
                count += 1
                free = end
        print(count)
        """,
        """
        import sys

        numbers = list(map(int, sys.stdin.buffer.read().split()))
        starts, ends = numbers[1::2], numbers[2::2]
        last = float("inf")
        count = 0
        for start, end in sorted(zip(starts, ends), reverse=True):
            if end <= last:
                last = start
                count += 1
        sys.stdout.write(str(count))
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n = int(input())
            talks = sorted(tuple(map(int, input().split())) for _ in range(n))
            free, count = 0, 0
            for start, end in talks:
                if start >= free:
                    count += 1
                    free = end
            print(count)
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            talks = [tuple(map(int, input().split())) for _ in range(n)]
            talks.sort(key=lambda talk: talk[1])
            free, count = -1, 0
            for start, end in talks:
                if start > free:
                    count += 1
                    free = end
            print(count)
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            talks = [tuple(map(int, input().split())) for _ in range(n)]
            chosen = []
            for start, end in sorted(talks, key=lambda talk: talk[1] - talk[0]):
                if all(end <= other[0] or start >= other[1] for other in chosen[:50]):
                    chosen.append((start, end))
            print(len(chosen))
            """,
        ),
    ),
)
