"""Backtracking; any placement is right, and two sizes have none."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _inputs(rng: Random) -> Iterator[str]:
    del rng
    for size in (1, 2, 3, 5, 6, 7, 8, 9, 10, 12, 20):
        yield f"{size}\n"


def _accepts(given: str, expected: str, actual: str) -> bool:
    if "none" in (expected.strip(), actual.strip()):
        return expected.strip() == actual.strip()
    size = int(given)
    try:
        columns = [int(word) for word in actual.split()]
    except ValueError:
        return False
    if sorted(columns) != list(range(1, size + 1)):
        return False
    falling = {row + column for row, column in enumerate(columns)}
    rising = {row - column for row, column in enumerate(columns)}
    return len(falling) == size and len(rising) == size


CLASSIC = Classic(
    problem_id="queens",
    statement="""
        Place n queens on a board of n rows and n columns, so that no two of them stand in the same
        row, column or diagonal.

        Input: one integer n (1 <= n <= 20).
        Output: n integers separated by blanks: for each row from the first to the last, the column
        of its queen, counted from 1; or the word "none" if there is no way. If there are several
        ways, print any one of them.
    """,
    example="4",
    inputs=_inputs,
    checker=_accepts,
    solutions=(
        """
        def place(n):
            if n in (2, 3):
                return "none"
            even = list(range(2, n + 1, 2))
            odd = list(range(1, n + 1, 2))
            if n % 6 == 2:
                odd = [3, 1] + list(range(7, n + 1, 2)) + [5]
            elif n % 6 == 3:
                even = even[1:] + [2]
                odd = odd[2:] + [1, 3]
            return " ".join(map(str, even + odd))


        print(place(int(input())))
        """,
        """
        import random
        import sys

        n = int(sys.stdin.readline())
        random.seed(n)


        def solve():
            for _ in range(100000):
                columns = list(range(1, n + 1))
                random.shuffle(columns)
                for _ in range(4 * n):
                    hits = [
                        sum(abs(columns[i] - columns[j]) == abs(i - j) for j in range(n)) - 1
                        for i in range(n)
                    ]
                    if not any(hits):
                        return columns
                    i = hits.index(max(hits))
                    j = random.randrange(n)
                    columns[i], columns[j] = columns[j], columns[i]
            return None


        if n in (2, 3):
            print("none")
        else:
            print("\\n".join(map(str, solve())))
        """,
        """
        n = int(input())
        columns, falling, rising, answer = set(), set(), set(), []


        def fill(row):
            if row == n:
                return True
            for column in sorted(range(n), key=lambda column: (column * 7 + row * 3) % n):
                if column in columns or row + column in falling or row - column in rising:
                    continue
                columns.add(column), falling.add(row + column), rising.add(row - column)
                answer.append(column + 1)
                if fill(row + 1):
                    return True
                answer.pop()
                columns.remove(column), falling.remove(row + column), rising.remove(row - column)
            return False


        print(*answer if fill(0) else ["none"])
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            from itertools import permutations

            n = int(input())
            for columns in permutations(range(1, n + 1)):
                if all(
                    abs(columns[i] - columns[j]) != i - j for i in range(n) for j in range(i)
                ):
                    print(*columns)
                    break
            else:
                print("none")
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            print(*range(2, n + 1, 2), *range(1, n + 1, 2))
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            columns = []
            for row in range(n):
                for column in range(1, n + 1):
                    if all(
                        column != other and abs(column - other) != row - i
                        for i, other in enumerate(columns)
                    ):
                        columns.append(column)
                        break
            print(*columns if len(columns) == n else ["none"])
            """,
        ),
    ),
)
