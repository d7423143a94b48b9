"""Least common multiple of a list, with results beyond 64 bits."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(teeth: list[int]) -> str:
    return f"{len(teeth)}\n{' '.join(map(str, teeth))}\n"


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([1])
    yield _case([17])
    yield _case([6, 4])
    yield _case([5] * 10)
    yield _case([2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47])
    yield _case([999983, 999979, 999961, 999959])
    for count, most in ((5, 20), (10, 100), (20, 1000), (20, 10**6), (20, 10**6)):
        yield _case([rng.randint(2, most) for _ in range(count)])


CLASSIC = Classic(
    problem_id="gear-turns",
    statement="""
        A row of gear wheels, each turning the next, has a mark on every wheel; at the start all
        marks point up. The row is moved on tooth by tooth. After how many teeth do all marks point
        up again for the first time, and how often has the first wheel turned by then?

        Input: the number of wheels n (1 <= n <= 20), then n numbers of teeth (1 to 1000000).
        Output: two integers: the number of teeth and the number of turns of the first wheel. They
        may be very large.
    """,
    example="""
        3
        12 8 10
    """,
    inputs=_inputs,
    solutions=(
        """
        from math import gcd

        n = int(input())
        wheels = list(map(int, input().split()))
        teeth = 1
        for wheel in wheels:
            teeth = teeth * wheel // gcd(teeth, wheel)
        print(teeth, teeth // wheels[0])
        """,
        """
        import sys
        from collections import Counter

        most = Counter()
        first, *others = [int(word) for word in sys.stdin.read().split()[1:]]
        for wheel in [first, *others]:
            powers = Counter()
            p = 2
            while p * p <= wheel:
                while wheel % p == 0:
                    powers[p] += 1
                    wheel //= p
                p += 1
            if wheel > 1:
                powers[wheel] += 1
            most |= powers
        teeth = 1
        for p, power in most.items():
            teeth *= p**power
        print(f"{teeth} {teeth // first}  ")
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            from math import gcd

            n = int(input())
            wheels = list(map(int, input().split()))
            teeth = 1
            for wheel in wheels:
                teeth = int(teeth * wheel / gcd(teeth, wheel))
            print(teeth, int(teeth / wheels[0]))
            """,
        ),
        Wrong(
            "TLE",
            """
            n = int(input())
            wheels = list(map(int, input().split()))
            teeth = wheels[0]
            while any(teeth % wheel for wheel in wheels):
                teeth += wheels[0]
            print(teeth, teeth // wheels[0])
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            wheels = list(map(int, input().split()))
            teeth = 1
            for wheel in wheels:
                teeth *= wheel
            print(teeth, teeth // wheels[0])
            """,
        ),
    ),
)
