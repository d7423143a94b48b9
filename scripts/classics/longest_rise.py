"""Longest strictly increasing subsequence; the square-time table is too slow."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(heights: list[int]) -> str:
    return f"{len(heights)}\n{' '.join(map(str, heights))}\n"


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([7])
    yield _case([4, 4, 4, 4])
    yield _case([5, 4, 3, 2, 1])
    yield _case([-3, -2, -1, 0, 1])
    yield _case([1, 9, 2, 8, 3, 7, 4, 6, 5])
    for count, span in ((20, 10), (200, 50), (1000, 10**6), (2000, 300)):
        yield _case([rng.randint(-span, span) for _ in range(count)])
    yield _case([i // 2 * 3 + rng.randint(0, 2000) for i in range(3000)])
    yield _case(list(range(28000)))


CLASSIC = Classic(
    problem_id="longest-rise",
    statement="""
        From the heights along a hiking path, strike out as few as possible so that the rest rises:
        each remaining height is greater than the one before. How many remain?

        Input: n (1 <= n <= 28000), then n integers, the heights in order (-1000000 to 1000000).
        Output: the largest number of heights that can remain.
    """,
    example="""
        8
        3 1 4 1 5 9 2 6
    """,
    inputs=_inputs,
    solutions=(
        """
        from bisect import bisect_left

        n = int(input())
        tails = []
        for height in map(int, input().split()):
            place = bisect_left(tails, height)
            tails[place : place + 1] = [height]
        print(len(tails))
        """,
        """
        import sys


        def main():
            heights = [int(word) for word in sys.stdin.buffer.read().split()][1:]
            rank = {height: i + 1 for i, height in enumerate(sorted(set(heights)))}
            tree = [0] * (len(rank) + 1)
            for height in heights:
                best, i = 0, rank[height] - 1
                while i:
                    best = max(best, tree[i])
                    i &= i - 1
                i = rank[height]
                while i < len(tree):
                    tree[i] = max(tree[i], best + 1)
                    i += i & -i
            answer, i = 0, len(rank)
            while i:
                answer = max(answer, tree[i])
                i &= i - 1
            sys.stdout.buffer.write(b"%d\\n" % answer)


        main()
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            n = int(input())
            heights = list(map(int, input().split()))
            best = []
            for i in range(n):
                longest = 0
                for j in range(i):
                    if heights[j] < heights[i] and best[j] > longest:
                        longest = best[j]
                best.append(longest + 1)
            print(max(best))
            """,
        ),
        Wrong(
            "WA",
            """
            from bisect import bisect_right

            n = int(input())
            tails = []
            for height in map(int, input().split()):
                place = bisect_right(tails, height)
                tails[place : place + 1] = [height]
            print(len(tails))
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            heights = list(map(int, input().split()))
            best = run = 1
            for a, b in zip(heights, heights[1:]):
                run = run + 1 if b > a else 1
                best = max(best, run)
            print(best)
            """,
        ),
    ),
)
