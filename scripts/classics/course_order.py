"""Topological order: any order that respects the rules is right."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(count: int, rules: list[tuple[int, int]]) -> str:
    return f"{count} {len(rules)}\n" + "".join(f"{a} {b}\n" for a, b in rules)


def _ordered(rng: Random, count: int, rule_count: int) -> list[tuple[int, int]]:
    order = list(range(1, count + 1))
    rng.shuffle(order)
    places = [sorted(rng.sample(range(count), 2)) for _ in range(rule_count)]
    return [(order[a], order[b]) for a, b in places]


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(1, [])
    yield _case(5, [])
    yield _case(2, [(2, 1)])
    yield _case(3, [(1, 2), (2, 3), (3, 1)])
    yield _case(6, [(6, 5), (5, 4), (4, 3), (3, 2), (2, 1), (2, 1)])
    for count, rule_count in ((10, 15), (100, 200), (1000, 2000), (1500, 2500)):
        yield _case(count, _ordered(rng, count, rule_count))
    yield _case(3000, [(i + 1, i) for i in range(1, 3000)])
    rules = _ordered(rng, 800, 1500)
    yield _case(800, [*rules, rules[700][::-1]])


def _accepts(given: str, expected: str, actual: str) -> bool:
    if "impossible" in (expected.strip(), actual.strip()):
        return expected.strip() == actual.strip()
    numbers = [int(word) for word in given.split()]
    try:
        order = [int(word) for word in actual.split()]
    except ValueError:
        return False
    if sorted(order) != list(range(1, numbers[0] + 1)):
        return False
    place = {course: index for index, course in enumerate(order)}
    rules = zip(numbers[2::2], numbers[3::2], strict=True)
    return all(place[a] < place[b] for a, b in rules)


CLASSIC = Classic(
    problem_id="course-order",
    statement="""
        A student wants to take n courses, one after another. A rule "a b" says that course a must
        come before course b. Find an order that obeys every rule.

        Input: n and m (1 <= n <= 5000, 0 <= m <= 10000), then m lines with a rule each; courses are
        numbered from 1.
        Output: the n courses in order, separated by blanks, or the word "impossible". If there are
        several orders, print any one of them.
    """,
    example="""
        4 3
        3 1
        1 2
        4 2
    """,
    inputs=_inputs,
    checker=_accepts,
    solutions=(
        """
        import sys
        from collections import deque

        data = list(map(int, sys.stdin.buffer.read().split()))
        n, m = data[0], data[1]
        after = [[] for _ in range(n + 1)]
        waits = [0] * (n + 1)
        for a, b in zip(data[2::2], data[3::2]):
            after[a].append(b)
            waits[b] += 1
        queue = deque(course for course in range(1, n + 1) if not waits[course])
        order = []
        while queue:
            course = queue.popleft()
            order.append(course)
            for other in after[course]:
                waits[other] -= 1
                if not waits[other]:
                    queue.append(other)
        print(*order if len(order) == n else ["impossible"])
        """,
        """
        from graphlib import CycleError, TopologicalSorter

        n, m = map(int, input().split())
        sorter = TopologicalSorter({course: [] for course in range(1, n + 1)})
        for _ in range(m):
            a, b = map(int, input().split())
            sorter.add(b, a)
        try:
            for course in sorter.static_order():
                print(course)
        except CycleError:
            print("impossible")
        """,
        """
        import sys

        sys.setrecursionlimit(20000)
        n, m = map(int, sys.stdin.readline().split())
        before = [[] for _ in range(n + 1)]
        for line in sys.stdin:
            a, b = map(int, line.split())
            before[b].append(a)
        state = [0] * (n + 1)
        order = []


        def take(course):
            if state[course] == 1:
                raise RecursionError
            if state[course] == 0:
                state[course] = 1
                for other in before[course]:
                    take(other)
                state[course] = 2
                order.append(course)


        try:
            for course in range(n, 0, -1):
                take(course)
        except RecursionError:
            print("impossible")
        else:
            print(" ".join(map(str, order)))
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n, m = map(int, input().split())
            waits = [0] * (n + 1)
            for _ in range(m):
                a, b = map(int, input().split())
                waits[b] += 1
            print(*sorted(range(1, n + 1), key=lambda course: waits[course]))
            """,
        ),
        Wrong(
            "WA",
            """
            n, m = map(int, input().split())
            before = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b = map(int, input().split())
                before[b].append(a)
            order, seen = [], set()

            def take(course):
                if course not in seen:
                    seen.add(course)
                    for other in before[course]:
                        take(other)
                    order.append(course)

            for course in range(n, 0, -1):
                take(course)
            print(*order)
            """,
        ),
        Wrong(
            "WA",
            """
            from collections import deque

            n, m = map(int, input().split())
            after = [[] for _ in range(n + 1)]
            waits = [0] * (n + 1)
            for _ in range(m):
                a, b = map(int, input().split())
                after[a].append(b)
                waits[b] += 1
            queue = deque(course for course in range(1, n + 1) if not waits[course])
            while queue:
                course = queue.popleft()
                print(course, end=" ")
                for other in after[course]:
                    waits[other] -= 1
                    if not waits[other]:
                        queue.append(other)
            print()
            """,
        ),
    ),
)
