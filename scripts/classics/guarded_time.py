"""Total length of a union of intervals."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(shifts: list[tuple[int, int]]) -> str:
    return f"{len(shifts)}\n" + "".join(f"{start} {end}\n" for start, end in shifts)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([(0, 1)])
    yield _case([(0, 5), (5, 9)])
    yield _case([(0, 100), (10, 20), (30, 40)])
    yield _case([(50, 60), (-10, 0), (-5, 3)])
    yield _case([(1, 2)] * 6)
    yield _case([(i * 3, i * 3 + 1) for i in range(100)])
    for count, span in ((10, 60), (100, 2000), (900, 10**5), (1500, 10**9), (4000, 10**5)):
        starts = [rng.randint(-span, span) for _ in range(count)]
        yield _case([(start, start + rng.randint(1, max(2, span // 20))) for start in starts])


CLASSIC = Classic(
    problem_id="guarded-time",
    statement="""
        The night watch of a museum is split into shifts, which may overlap. For how many seconds is
        at least one guard awake, and how long is the longest time during which this holds without a
        gap? A shift that starts in the second in which another one ends leaves no gap.

        Input: n (1 <= n <= 6000), then n lines with the start and the end of a shift in seconds
        (-2000000000 <= start < end <= 2000000000).
        Output: two integers: the guarded seconds in total, and the longest guarded time.
    """,
    example="""
        4
        10 20
        15 25
        40 50
        25 30
    """,
    inputs=_inputs,
    solutions=(
        """
        n = int(input())
        shifts = sorted(tuple(map(int, input().split())) for _ in range(n))
        total = longest = 0
        left, right = shifts[0]
        for start, end in shifts[1:] + [(10**18, 10**18)]:
            if start <= right:
                right = max(right, end)
            else:
                total += right - left
                longest = max(longest, right - left)
                left, right = start, end
        print(total, longest)
        """,
        """
        import sys

        events = []
        for line in sys.stdin.readlines()[1:]:
            start, end = map(int, line.split())
            events += [(start, 0), (end, 1)]
        events.sort()
        awake = 0
        blocks = []
        for second, kind in events:
            if kind == 0:
                if awake == 0:
                    since = second
                awake += 1
            else:
                awake -= 1
                if awake == 0:
                    blocks.append(second - since)
        print(sum(blocks), max(blocks))
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n = int(input())
            shifts = sorted(tuple(map(int, input().split())) for _ in range(n))
            total = longest = 0
            left, right = shifts[0]
            for start, end in shifts[1:]:
                if start <= right:
                    right = max(right, end)
                else:
                    total += right - left
                    longest = max(longest, right - left)
                    left, right = start, end
            print(total, longest)
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            shifts = sorted(tuple(map(int, input().split())) for _ in range(n))
            total = longest = 0
            left, right = shifts[0]
            for start, end in shifts[1:] + [(10**18, 10**18)]:
                if start <= right:
                    right = end
                else:
                    total += right - left
                    longest = max(longest, right - left)
                    left, right = start, end
            print(total, longest)
            """,
        ),
        Wrong(
            "MLE",
            """
            n = int(input())
            shifts = [tuple(map(int, input().split())) for _ in range(n)]
            first = min(start for start, end in shifts)
            guarded = bytearray(max(end for start, end in shifts) - first)
            for start, end in shifts:
                guarded[start - first : end - first] = b"1" * (end - start)
            blocks = [len(block) for block in guarded.split(b"\\0")]
            print(sum(blocks), max(blocks))
            """,
        ),
    ),
)
