"""Powers modulo a number, by squaring; an exponent of 0 and a modulus of 1 are the edges."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(queries: list[tuple[int, int, int]]) -> str:
    return "".join(f"{a} {b} {m}\n" for a, b, m in queries)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([(0, 0, 1)])
    yield _case([(5, 0, 1), (0, 0, 7), (0, 5, 7)])
    yield _case([(2, 10, 1000)])
    yield _case([(10**18, 10**18, 10**9)])
    yield _case([(7, 1, 7), (7, 2, 10)])
    yield _case([(3, 3, 10**9)])
    for count, most in ((3, 30), (10, 1000), (100, 10**6), (500, 10**12), (900, 10**18)):
        yield _case(
            [
                (rng.randint(0, most), rng.randint(0, most), rng.randint(1, min(most, 10**9)))
                for _ in range(count)
            ]
        )


CLASSIC = Classic(
    problem_id="power-remainder",
    statement="""
        Each line of the input has three integers a, b and m (0 <= a, b <= 10^18, 1 <= m <= 10^9).
        What remains of a to the power of b when it is divided by m? Here 0 to the power of 0 is 1.

        Input: 1 to 1500 such lines; their number is not given.
        Output: one line with the remainder for each line of the input.
    """,
    example="""
        2 10 100
        3 0 5
    """,
    inputs=_inputs,
    solutions=(
        """
        import sys

        for line in sys.stdin:
            if line.strip():
                print(pow(*map(int, line.split())))
        """,
        """
        def power(a, b, m):
            result = 1 % m
            a %= m
            while b:
                if b & 1:
                    result = result * a % m
                a = a * a % m
                b >>= 1
            return result


        while True:
            try:
                a, b, m = map(int, input().split())
            except EOFError:
                break
            print(power(a, b, m))
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            import sys

            for line in sys.stdin:
                a, b, m = map(int, line.split())
                result = 1 % m
                for _ in range(b):
                    result = result * a % m
                print(result)
            """,
        ),
        Wrong(
            "WA",
            """
            import sys

            for line in sys.stdin:
                a, b, m = map(int, line.split())
                result = 1
                while b:
                    if b % 2:
                        result = result * a % m
                    a = a * a % m
                    b //= 2
                print(result)
            """,
        ),
        Wrong(
            "RE",
            """
            while True:
                a, b, m = map(int, input().split())
                print(pow(a, b, m))
            """,
        ),
        Wrong(
            "OLE",
            """
            answers = []
            while True:
                try:
                    line = input()
                except EOFError:
                    pass
                answers.append(pow(*map(int, line.split())))
                print(*answers, sep="\\n")
            """,
        ),
    ),
)
