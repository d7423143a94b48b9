"""Two different places with a given sum; any pair is right."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(target: int, prices: list[int]) -> str:
    return f"{len(prices)} {target}\n{' '.join(map(str, prices))}\n"


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(4, [2])
    yield _case(4, [2, 2])
    yield _case(4, [2, 1])
    yield _case(0, [-3, 5, 3, -5, 0])
    yield _case(0, [0, 1, 2])
    yield _case(2 * 10**9, [10**9, 5, 10**9])
    for count, most in ((10, 20), (100, 300), (1000, 10**6)):
        prices = [rng.randint(-most, most) for _ in range(count)]
        yield _case(sum(rng.sample(prices, 2)), prices)
    yield _case(-1, [rng.randint(0, 999) for _ in range(15000)])
    yield _case(1, [2 * rng.randint(-(10**6), 10**6) for _ in range(3000)])


def _accepts(given: str, expected: str, actual: str) -> bool:
    if "none" in (expected.strip(), actual.strip()):
        return expected.strip() == actual.strip()
    count, target, *prices = (int(word) for word in given.split())
    try:
        first, second = (int(word) for word in actual.split())
    except ValueError:
        return False
    if first == second or not (1 <= first <= count and 1 <= second <= count):
        return False
    return prices[first - 1] + prices[second - 1] == target


CLASSIC = Classic(
    problem_id="pair-sum",
    statement="""
        In a list of numbers, find two at different places whose sum is t.

        Input: n and t (1 <= n <= 15000, -2000000000 <= t <= 2000000000), then n integers
        (-1000000000 to 1000000000).
        Output: the two places, counted from 1, in any order, or the word "none". If there are
        several pairs, print any one of them.
    """,
    example="""
        5 10
        5 3 8 7 1
    """,
    inputs=_inputs,
    checker=_accepts,
    solutions=(
        """
        n, t = map(int, input().split())
        place = {}
        answer = "none"
        for i, value in enumerate(map(int, input().split()), 1):
            if t - value in place:
                answer = f"{place[t - value]} {i}"
                break
            place[value] = i
        print(answer)
        """,
        """
        import sys

        _, t, *values = map(int, sys.stdin.buffer.read().split())
        order = sorted(range(len(values)), key=values.__getitem__)
        low, high = 0, len(order) - 1
        while low < high:
            total = values[order[low]] + values[order[high]]
            if total == t:
                print(order[high] + 1, order[low] + 1)
                break
            if total < t:
                low += 1
            else:
                high -= 1
        else:
            print("none")
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n, t = map(int, input().split())
            values = list(map(int, input().split()))
            place = {value: i for i, value in enumerate(values, 1)}
            for i, value in enumerate(values, 1):
                if t - value in place:
                    print(i, place[t - value])
                    break
            else:
                print("none")
            """,
        ),
        Wrong(
            "TLE",
            """
            n, t = map(int, input().split())
            values = list(map(int, input().split()))
            answer = "none"
            for i in range(n):
                for j in range(n):
                    if i != j and values[i] + values[j] == t:
                        answer = f"{i + 1} {j + 1}"
            print(answer)
            """,
        ),
        Wrong(
            "WA",
            """
            n, t = map(int, input().split())
            place = {}
            answer = "none"
            for i, value in enumerate(map(int, input().split())):
                if t - value in place:
                    answer = f"{place[t - value]} {i}"
                    break
                place[value] = i
            print(answer)
            """,
        ),
    ),
)
