"""The next greater element: a stack of days that still wait."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(days: list[int]) -> str:
    return f"{len(days)}\n{' '.join(map(str, days))}\n"


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([0])
    yield _case([3, 3, 3])
    yield _case([3, 3, 4])
    yield _case([5, 4, 3, 2, 1])
    yield _case([-5, -4, -3])
    yield _case([9, 1, 2, 3, 9, 10])
    for count, span in ((30, 10), (300, 40), (3000, 1000)):
        yield _case([rng.randint(-span, span) for _ in range(count)])
    yield _case([7] * 40000)
    yield _case([1000 - i // 3 + rng.randint(0, 1) for i in range(5000)])


CLASSIC = Classic(
    problem_id="warmer-day",
    statement="""
        For each day of a list of temperatures, after how many days does it become warmer than on
        that day for the first time?

        Input: the number of days n (1 <= n <= 40000), then n integers (-100000 to 100000).
        Output: n integers separated by blanks; 0 where it never becomes warmer.
    """,
    example="""
        6
        20 18 18 21 19 22
    """,
    inputs=_inputs,
    solutions=(
        """
        n = int(input())
        days = list(map(int, input().split()))
        answer = [0] * n
        waiting = []
        for day, degrees in enumerate(days):
            while waiting and days[waiting[-1]] < degrees:
                earlier = waiting.pop()
                answer[earlier] = day - earlier
            waiting.append(day)
        print(*answer)
        """,
        """
        import sys


        def main() -> None:
            days = [int(word) for word in sys.stdin.buffer.read().split()[1:]]
            jump = [0] * len(days)
            for day in reversed(range(len(days))):
                later = day + 1
                while later < len(days) and days[later] <= days[day]:
                    if not jump[later]:
                        later = len(days)
                    else:
                        later += jump[later]
                if later < len(days):
                    jump[day] = later - day
            sys.stdout.buffer.write(b" ".join(b"%d" % days for days in jump))


        main()
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            n = int(input())
            days = list(map(int, input().split()))
            answer = []
            for i in range(n):
                for j in range(i + 1, n):
                    if days[j] > days[i]:
                        answer.append(j - i)
                        break
                else:
                    answer.append(0)
            print(*answer)
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            days = list(map(int, input().split()))
            answer = [0] * n
            waiting = []
            for day, degrees in enumerate(days):
                while waiting and days[waiting[-1]] <= degrees:
                    earlier = waiting.pop()
                    answer[earlier] = day - earlier
                waiting.append(day)
            print(*answer)
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            days = list(map(int, input().split()))
            answer = [0] * n
            waiting = []
            for day, degrees in enumerate(days):
                while waiting and days[waiting[-1]] < degrees:
                    earlier = waiting.pop()
                    answer[earlier] = day - earlier
                waiting.append(day)
                print("waiting:", *waiting)
            print(*answer)
            """,
        ),
    ),
)
