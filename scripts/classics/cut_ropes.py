"""Binary search on the answer, with an answer of 0 as the edge."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(pieces: int, ropes: list[int]) -> str:
    return f"{len(ropes)} {pieces}\n{' '.join(map(str, ropes))}\n"


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(1, [1])
    yield _case(2, [1])
    yield _case(1, [10**9])
    yield _case(10, [10])
    yield _case(3, [5, 5])
    yield _case(10**9, [10**9] * 10)
    for count, longest in ((5, 30), (50, 1000), (500, 10**6), (5000, 10**9), (4000, 10**9)):
        ropes = [rng.randint(1, longest) for _ in range(count)]
        yield _case(rng.randint(1, min(10**9, sum(ropes))) // rng.randint(1, 9) + 1, ropes)


CLASSIC = Classic(
    problem_id="cut-ropes",
    statement="""
        Some ropes are cut into at least p pieces of the same length, a whole number of centimetres;
        what is left over of each rope is thrown away, and pieces cannot be knotted together. How
        long can the pieces be?

        Input: n and p (1 <= n <= 15000, 1 <= p <= 1000000000), then the n lengths of the ropes in
        centimetres (1 to 1000000000).
        Output: the largest possible length of the pieces in centimetres, or 0 if even pieces of
        one centimetre are too few.
    """,
    example="""
        3 5
        9 7 5
    """,
    inputs=_inputs,
    solutions=(
        """
        n, pieces = map(int, input().split())
        ropes = list(map(int, input().split()))
        low, high = 0, max(ropes)
        while low < high:
            middle = (low + high + 1) // 2
            if sum(rope // middle for rope in ropes) >= pieces:
                low = middle
            else:
                high = middle - 1
        print(low)
        """,
        """
        import bisect
        import sys

        (n, pieces), ropes = (tuple(map(int, line.split())) for line in sys.stdin.readlines())


        class TooFew:
            def __len__(self):
                return 10**9

            def __getitem__(self, index):
                return sum(rope // (index + 1) for rope in ropes) < pieces


        print(bisect.bisect_left(TooFew(), True))
        """,
    ),
    wrong=(
        Wrong(
            "RE",
            """
            n, pieces = map(int, input().split())
            ropes = list(map(int, input().split()))
            low, high = 0, max(ropes)
            while low < high:
                middle = (low + high) // 2
                if sum(rope // middle for rope in ropes) >= pieces:
                    low = middle + 1
                else:
                    high = middle
            print(low - 1)
            """,
        ),
        Wrong(
            "WA",
            """
            n, pieces = map(int, input().split())
            ropes = list(map(int, input().split()))
            print(sum(ropes) // pieces)
            """,
        ),
        Wrong(
            "TLE",
            """
            n, pieces = map(int, input().split())
            ropes = list(map(int, input().split()))
            length = max(ropes)
            while length and sum(rope // length for rope in ropes) < pieces:
                length -= 1
            print(length)
            """,
        ),
    ),
)
