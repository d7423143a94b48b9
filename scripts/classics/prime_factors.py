"""Trial division up to the root, with a large prime left over."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _inputs(rng: Random) -> Iterator[str]:
    yield "2\n"
    yield "4\n"
    yield "97\n"
    yield "999999999989\n"
    yield f"{999983 * 999979}\n"
    yield f"{2**39}\n"
    yield f"{999983**2}\n"
    yield "963761198400\n"
    for most in (1000, 10**7, 10**12):
        yield f"{rng.randint(most // 2, most)}\n"


CLASSIC = Classic(
    problem_id="prime-factors",
    statement="""
        Write a whole number as a product of powers of primes.

        Input: one integer n (2 <= n <= 10^12).
        Output: one line with the primes in rising order, joined by " * "; a prime that divides n
        e times with e > 1 is written p^e.
    """,
    example="360",
    inputs=_inputs,
    solutions=(
        """
        n = int(input())
        parts = []
        p = 2
        while p * p <= n:
            e = 0
            while n % p == 0:
                n //= p
                e += 1
            if e:
                parts.append(f"{p}^{e}" if e > 1 else str(p))
            p += 1
        if n > 1:
            parts.append(str(n))
        print(" * ".join(parts))
        """,
        """
        import sys
        from itertools import chain, count, groupby


        def factors(n):
            for p in chain((2, 3), (k + d for k in count(6, 6) for d in (-1, 1))):
                if p * p > n:
                    break
                while n % p == 0:
                    yield p
                    n //= p
            if n > 1:
                yield n


        powers = [(p, len(list(same))) for p, same in groupby(factors(int(sys.stdin.readline())))]
        print(*(f"{p}^{e}" if e > 1 else p for p, e in powers), sep=" * ")
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            n = int(input())
            parts = []
            p = 2
            while n > 1:
                e = 0
                while n % p == 0:
                    n //= p
                    e += 1
                if e:
                    parts.append(f"{p}^{e}" if e > 1 else str(p))
                p += 1
            print(" * ".join(parts))
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            parts = []
            p = 2
            while p * p < n:
                e = 0
                while n % p == 0:
                    n //= p
                    e += 1
                if e:
                    parts.append(f"{p}^{e}" if e > 1 else str(p))
                p += 1
            if n > 1:
                parts.append(str(n))
            print(" * ".join(parts))
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            parts = []
            p = 2
            while p * p <= n:
                while n % p == 0:
                    parts.append(str(p))
                    n //= p
                p += 1
            if n > 1:
                parts.append(str(n))
            print(" * ".join(parts))
            """,
        ),
        Wrong(
            "CE",
            """
            n = int(input())
            parts = []
            p = 2
            while p * p <= n
                if n % p == 0:
                    parts.append(str(p))
                p += 1
            print(" * ".join(parts))
            """,
        ),
    ),
)
