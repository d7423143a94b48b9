"""The classic two-row table over two words."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _inputs(rng: Random) -> Iterator[str]:
    yield "a\na\n"
    yield "a\nb\n"
    yield "abc\nc\n"
    yield "ab\nba\n"
    yield "xaxbxc\nabc\n"
    yield "aaaa\naaaaaaaaaa\n"
    for alphabet, first, second in (
        ("ab", 12, 12),
        ("abc", 40, 30),
        ("abcd", 120, 150),
        ("abcdefgh", 400, 380),
        ("ab", 500, 499),
    ):
        yield "".join(
            "".join(rng.choice(alphabet) for _ in range(length)) + "\n"
            for length in (first, second)
        )


CLASSIC = Classic(
    problem_id="edit-distance",
    statement="""
        A spelling checker turns one word into another. In one move it may insert a letter, remove a
        letter, or replace a letter by another one. How few moves does it need?

        Input: two lines, each with a word of 1 to 500 letters a to z.
        Output: the smallest number of moves that turns the first word into the second.
    """,
    example="""
        kitten
        sitting
    """,
    inputs=_inputs,
    solutions=(
        """
        a = input().strip()
        b = input().strip()
        row = list(range(len(b) + 1))
        for i, x in enumerate(a, 1):
            previous, row[0] = row[0], i
            for j, y in enumerate(b, 1):
                keep = previous + (x != y)
                previous = row[j]
                row[j] = min(keep, row[j] + 1, row[j - 1] + 1)
        print(row[-1])
        """,
        """
        import sys
        from functools import lru_cache

        sys.setrecursionlimit(5000)
        first, second = sys.stdin.read().split()


        @lru_cache(maxsize=None)
        def moves(i, j):
            if i == 0 or j == 0:
                return i + j
            if first[i - 1] == second[j - 1]:
                return moves(i - 1, j - 1)
            return 1 + min(moves(i - 1, j), moves(i, j - 1), moves(i - 1, j - 1))


        print(moves(len(first), len(second)))
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            def moves(a, b):
                if not a or not b:
                    return len(a) + len(b)
                if a[-1] == b[-1]:
                    return moves(a[:-1], b[:-1])
                return 1 + min(moves(a[:-1], b), moves(a, b[:-1]), moves(a[:-1], b[:-1]))

            print(moves(input(), input()))
            """,
        ),
        Wrong(
            "WA",
            """
            a, b = input(), input()
            print(abs(len(a) - len(b)) + sum(x != y for x, y in zip(a, b)))
            """,
        ),
        Wrong(
            "WA",
            """
            a, b = input(), input()
            common = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
            for i, x in enumerate(a, 1):
                for j, y in enumerate(b, 1):
                    if x == y:
                        common[i][j] = common[i - 1][j - 1] + 1
                    else:
                        common[i][j] = max(common[i - 1][j], common[i][j - 1])
            print(max(len(a), len(b)) - common[-1][-1])
            """,
        ),
    ),
)
