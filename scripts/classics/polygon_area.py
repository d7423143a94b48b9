"""The shoelace formula in whole numbers; floats lose the last digits."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(corners: list[tuple[int, int]]) -> str:
    return f"{len(corners)}\n" + "".join(f"{x} {y}\n" for x, y in corners)


def _stairs(rng: Random, count: int, reach: int) -> list[tuple[int, int]]:
    """Return corners of a polygon: out along random heights, back along the axis below them."""
    xs = sorted(rng.sample(range(-reach, reach), count))
    return [(x, rng.randint(1, reach)) for x in xs] + [(xs[-1], -1), (xs[0], -1)]


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([(0, 0), (1, 0), (0, 1)])
    yield _case([(0, 0), (0, 1), (1, 0)])
    yield _case([(0, 0), (2, 2), (4, 4)])
    yield _case([(-(10**9), -(10**9)), (10**9, -(10**9)), (10**9, 10**9), (-(10**9), 10**9 - 1)])
    yield _case([(0, 0), (4, 0), (4, 4), (2, 1), (0, 4)])
    for count, reach in ((5, 10), (30, 100), (200, 10**4), (1000, 10**9), (2500, 10**9)):
        corners = _stairs(rng, count, reach)
        yield _case(corners if rng.random() < 0.5 else corners[::-1])
    yield _case([(10**9 - 1, 10**9), (10**9, 10**9 - 2), (10**9, 10**9)])


CLASSIC = Classic(
    problem_id="field-area",
    statement="""
        A field is bounded by straight fences between n posts, given in order, clockwise or counter-
        clockwise; fences do not cross. How large is it?

        Input: n (3 <= n <= 6000), then n lines with the integer coordinates of a post in metres
        (-1000000000 to 1000000000).
        Output: the area in square metres, exactly, always with one digit after the point. It may
        be 0.0.
    """,
    example="""
        4
        0 0
        3 0
        3 2
        0 1
    """,
    inputs=_inputs,
    solutions=(
        """
        n = int(input())
        posts = [tuple(map(int, input().split())) for _ in range(n)]
        double = 0
        for (a, b), (c, d) in zip(posts, posts[1:] + posts[:1]):
            double += a * d - b * c
        double = abs(double)
        print(f"{double // 2}.{'5' if double % 2 else '0'}")
        """,
        """
        import sys
        from fractions import Fraction

        numbers = [int(word) for word in sys.stdin.read().split()]
        xs, ys = numbers[1::2], numbers[2::2]
        area = Fraction(0)
        for i in range(len(xs)):
            area += Fraction((xs[i - 1] + xs[i]) * (ys[i - 1] - ys[i]), 2)
        area = abs(area)
        whole, half = divmod(area.numerator * (2 // area.denominator), 2)
        print(whole, 5 * half, sep=".")
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n = int(input())
            posts = [tuple(map(int, input().split())) for _ in range(n)]
            double = sum(a * d - b * c for (a, b), (c, d) in zip(posts, posts[1:] + posts[:1]))
            print(f"{double // 2}.{'5' if double % 2 else '0'}")
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            posts = [tuple(map(int, input().split())) for _ in range(n)]
            double = abs(sum(a * d - b * c for (a, b), (c, d) in zip(posts, posts[1:])))
            print(f"{double // 2}.{'5' if double % 2 else '0'}")
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            posts = [tuple(map(int, input().split())) for _ in range(n)]
            double = sum(a * d - b * c for (a, b), (c, d) in zip(posts, posts[1:] + posts[:1]))
            print(abs(double) // 2)
            """,
        ),
    ),
)
