"""The smallest distance between two points: geometry, floats, and a limit on time."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(points: list[tuple[float, float]]) -> str:
    return f"{len(points)}\n" + "".join(f"{x:.1f} {y:.1f}\n" for x, y in points)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([(0, 0), (1, 1)])
    yield _case([(2.5, -1), (7, 7), (2.5, -1)])
    yield _case([(i * 10, 0) for i in range(20)])
    yield _case([(0, i * i) for i in range(40, 1, -1)])
    yield _case([(-1e6, -1e6), (1e6, 1e6), (1e6, -1e6)])
    for count, span in ((10, 10), (60, 1e3), (400, 1e5), (900, 1e6), (8000, 1e5)):
        yield _case([(rng.uniform(-span, span), rng.uniform(-span, span)) for _ in range(count)])
    yield _case([(rng.uniform(-1e6, 1e6), rng.uniform(-1, 1)) for _ in range(1500)])


CLASSIC = Classic(
    problem_id="closest-pair",
    statement="""
        Two ships that come too close to each other must be warned. Given the positions of all
        ships, print the distance between the two that are nearest to each other.

        Input: the number of ships n (2 <= n <= 9000), then n lines with two decimal numbers x and y
        (-1000000 <= x, y <= 1000000). Two ships may be at the same place.
        Output: the smallest distance. An error of 0.000001, absolute or relative, is allowed.
    """,
    example="""
        3
        0.000 0.000
        10.000 0.000
        3.000 4.000
    """,
    inputs=_inputs,
    solutions=(
        """
        import math
        import sys

        words = sys.stdin.buffer.read().split()
        points = [(float(x), float(y)) for x, y in zip(words[1::2], words[2::2])]
        points.sort()
        cells = {}
        best = math.inf


        def nearest(points):
            if len(points) <= 3:
                best = min(
                    (math.dist(a, b) for i, a in enumerate(points) for b in points[:i]),
                    default=math.inf,
                )
                points.sort(key=lambda point: point[1])
                return best
            middle = len(points) // 2
            line = points[middle][0]
            left, right = points[:middle], points[middle:]
            best = min(nearest(left), nearest(right))
            points[:] = sorted(left + right, key=lambda point: point[1])
            strip = []
            for point in points:
                if abs(point[0] - line) < best:
                    for other in reversed(strip):
                        if point[1] - other[1] >= best:
                            break
                        best = min(best, math.dist(point, other))
                    strip.append(point)
            return best


        print("%.9f" % nearest(points))
        """,
        """
        from bisect import insort, bisect_left

        n = int(input())
        points = sorted(tuple(map(float, input().split())) for _ in range(n))
        best = 1e18
        window = []
        oldest = 0
        for x, y in points:
            while oldest < n and points[oldest] < (x, y) and x - points[oldest][0] > best:
                a, b = points[oldest]
                del window[bisect_left(window, (b, a))]
                oldest += 1
            i = bisect_left(window, (y - best, -1e18))
            while i < len(window) and window[i][0] <= y + best:
                best = min(best, ((x - window[i][1]) ** 2 + (y - window[i][0]) ** 2) ** 0.5)
                i += 1
            insort(window, (y, x))
        print(best)
        """,
    ),
    wrong=(
        Wrong(
            "TLE",
            """
            n = int(input())
            points = [tuple(map(float, input().split())) for _ in range(n)]
            best = 1e18
            for a in points:
                for b in points:
                    if a is not b:
                        best = min(best, ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5)
            print(best)
            """,
        ),
        Wrong(
            "WA",
            """
            import math

            n = int(input())
            points = sorted(tuple(map(float, input().split())) for _ in range(n))
            print(min(math.dist(a, b) for a, b in zip(points, points[1:])))
            """,
        ),
        Wrong(
            "RE",
            """
            import math

            n = int(input())
            points = sorted(tuple(map(int, input().split())) for _ in range(n))
            print(min(math.dist(a, b) for a, b in zip(points, points[1:])))
            """,
        ),
    ),
)
