"""Mean and deviation: floats are compared with a tolerance."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(values: list[float]) -> str:
    return f"{len(values)}\n" + "".join(f"{value:.4f}\n" for value in values)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([0.0])
    yield _case([1.5, 1.5, 1.5])
    yield _case([-1.0, 1.0])
    yield _case([1e6, 1e6 + 1])
    yield _case([0.0001, 0.0002, 0.0003])
    for count, centre, width in (
        (10, 0, 1),
        (50, 20, 5),
        (300, -1000, 300),
        (1000, 0, 1e6),
        (3000, 1e6, 2),
        (4000, 36.6, 0.5),
    ):
        yield _case([rng.gauss(centre, width) for _ in range(count)])


CLASSIC = Classic(
    problem_id="mean-deviation",
    statement="""
        A thermometer has been read n times. Print the mean of the readings and their standard
        deviation, that is, the square root of the mean squared distance from the mean.

        Input: n (1 <= n <= 10000), then n lines with a decimal number each.
        Output: two decimal numbers on two lines. An error of 0.000001, absolute or relative, is
        allowed.
    """,
    example="""
        4
        2.0000
        4.0000
        4.0000
        7.0000
    """,
    inputs=_inputs,
    solutions=(
        """
        import math

        n = int(input())
        values = [float(input()) for _ in range(n)]
        mean = math.fsum(values) / n
        print(f"{mean:.9f}")
        print(f"{math.sqrt(math.fsum((value - mean) ** 2 for value in values) / n):.9f}")
        """,
        """
        import statistics
        import sys

        values = [float(line) for line in list(sys.stdin)[1:]]
        print(statistics.fmean(values))
        print("%.12e" % statistics.pstdev(values))
        """,
        """
        from decimal import Decimal, getcontext

        getcontext().prec = 40
        values = [Decimal(word) for word in open(0).read().split()[1:]]
        mean = sum(values) / len(values)
        print(mean)
        print((sum((value - mean) ** 2 for value in values) / len(values)).sqrt())
        """,
    ),
    wrong=(
        Wrong(
            "RE",
            """
            import statistics

            n = int(input())
            values = [float(input()) for _ in range(n)]
            print(statistics.mean(values))
            print(statistics.stdev(values))
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            values = [float(input()) for _ in range(n)]
            mean = sum(values) / n
            print(round(mean, 2))
            print(round((sum((value - mean) ** 2 for value in values) / n) ** 0.5, 2))
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            values = [float(input()) for _ in range(n)]
            mean = sum(values) / n
            deviation = (sum((value - mean) ** 2 for value in values) / max(1, n - 1)) ** 0.5
            print(mean)
            print(deviation)
            """,
        ),
    ),
)
