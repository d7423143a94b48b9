"""The fewest coins by dynamic programming; taking the largest first is the classic mistake."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(amount: int, coins: list[int]) -> str:
    return f"{amount} {len(coins)}\n{' '.join(map(str, coins))}\n"


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(0, [5])
    yield _case(3, [5, 7])
    yield _case(7, [7])
    yield _case(6, [1, 3, 4])
    yield _case(9999, [2, 4, 6])
    yield _case(63, [1, 5, 10, 21, 25])
    for amount, count in ((100, 3), (700, 4), (3000, 5), (9000, 8), (10000, 12)):
        yield _case(amount, rng.sample(range(3, max(20, amount // 4)), count))


CLASSIC = Classic(
    problem_id="coin-change",
    statement="""
        A machine gives change in coins of some kinds; it has as many of each kind as needed. With
        how few coins can it pay out an amount exactly?

        Input: the amount a and the number of kinds k (0 <= a <= 10000, 1 <= k <= 12) in the first
        line, the k different values of the coins (1 to 10000, in any order) in the second.
        Output: the smallest number of coins, or -1 if the amount cannot be paid.
    """,
    example="""
        11 3
        5 1 2
    """,
    inputs=_inputs,
    solutions=(
        """
        amount, k = map(int, input().split())
        coins = list(map(int, input().split()))
        best = [0] + [amount + 1] * amount
        for value in range(1, amount + 1):
            for coin in coins:
                if coin <= value and best[value - coin] + 1 < best[value]:
                    best[value] = best[value - coin] + 1
        print(best[amount] if best[amount] <= amount else -1)
        """,
        """
        import os

        data = os.read(0, 65536).split()
        amount, coins = int(data[0]), [int(word) for word in data[2:]]
        reached = {0}
        level = 0
        seen = {0}
        while reached and amount not in reached:
            reached = {
                value + coin for value in reached for coin in coins if value + coin <= amount
            } - seen
            seen |= reached
            level += 1
        print(level if amount in reached else -1)
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            amount, k = map(int, input().split())
            coins = sorted(map(int, input().split()), reverse=True)
            count = 0
            for coin in coins:
                count += amount // coin
                amount %= coin
            print(count if amount == 0 else -1)
            """,
        ),
        Wrong(
            "TLE",
            """
            import sys

            sys.setrecursionlimit(20000)
            amount, k = map(int, input().split())
            coins = sorted(map(int, input().split()), reverse=True)

            def fewest(rest):
                if rest == 0:
                    return 0
                return min((fewest(rest - coin) + 1 for coin in coins if coin <= rest), default=1e9)

            answer = fewest(amount)
            print(answer if answer < 1e9 else -1)
            """,
        ),
        Wrong(
            "WA",
            """
            amount, k = map(int, input().split())
            coins = list(map(int, input().split()))
            best = [0] + [10**9] * amount
            for coin in coins:
                for value in range(amount, coin - 1, -1):
                    best[value] = min(best[value], best[value - coin] + 1)
            print(best[amount] if best[amount] < 10**9 else -1)
            """,
        ),
    ),
)
