"""Two-colouring a graph; any colouring is right."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(count: int, edges: list[tuple[int, int]]) -> str:
    return f"{count} {len(edges)}\n" + "".join(f"{a} {b}\n" for a, b in edges)


def _two_sided(rng: Random, count: int, edge_count: int) -> list[tuple[int, int]]:
    people = list(range(1, count + 1))
    rng.shuffle(people)
    half = count // 2
    pairs = [[rng.choice(people[:half]), rng.choice(people[half:])] for _ in range(edge_count)]
    return [(a, b) for a, b in (rng.sample(pair, 2) for pair in pairs)]


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(1, [])
    yield _case(6, [])
    yield _case(3, [(1, 2), (2, 3), (3, 1)])
    yield _case(7, [(1, 2), (4, 5), (5, 6), (6, 7), (7, 4), (3, 1)])
    yield _case(5, [(4, 5), (2, 3), (3, 4), (5, 2), (5, 3)])
    yield _case(9, [(i, i % 9 + 1) for i in range(1, 10)])
    for count, edge_count in ((10, 12), (200, 250), (1500, 2500)):
        yield _case(count, _two_sided(rng, count, edge_count))
    yield _case(4000, [(i, i + 1) for i in range(1, 4000)])
    edges = _two_sided(rng, 2000, 6000)
    yield _case(2001, [*edges, (edges[0][0], 2001), (edges[0][1], 2001)])


def _accepts(given: str, expected: str, actual: str) -> bool:
    teams = actual.split()
    if "impossible" in (expected.strip(), actual.strip()):
        return expected.strip() == actual.strip()
    numbers = [int(word) for word in given.split()]
    if len(teams) != numbers[0] or not set(teams) <= {"A", "B"}:
        return False
    pairs = zip(numbers[2::2], numbers[3::2], strict=True)
    return all(teams[a - 1] != teams[b - 1] for a, b in pairs)


CLASSIC = Classic(
    problem_id="bipartition",
    statement="""
        A class of n children is divided into the teams A and B. Some pairs of children quarrel, and
        nobody may be in a team with a child he or she quarrels with. A team may be empty.

        Input: n and m (1 <= n <= 5000, 0 <= m <= 10000), then m lines with the numbers of two
        different children who quarrel; children are numbered from 1.
        Output: n letters A or B, separated by blanks, the team of each child in order, or the word
        "impossible". If there are several ways, print any one of them.
    """,
    example="""
        4 3
        1 2
        2 3
        3 4
    """,
    inputs=_inputs,
    checker=_accepts,
    solutions=(
        """
        import sys
        from collections import deque

        numbers = list(map(int, sys.stdin.read().split()))
        n, m = numbers[:2]
        near = [[] for _ in range(n + 1)]
        for a, b in zip(numbers[2::2], numbers[3::2]):
            near[a].append(b)
            near[b].append(a)
        team = [None] * (n + 1)
        possible = True
        for first in range(1, n + 1):
            if team[first] is None:
                team[first] = 0
                queue = deque([first])
                while queue:
                    child = queue.popleft()
                    for other in near[child]:
                        if team[other] is None:
                            team[other] = 1 - team[child]
                            queue.append(other)
                        elif team[other] == team[child]:
                            possible = False
        print(" ".join("AB"[t] for t in team[1:]) if possible else "impossible")
        """,
        """
        import sys
        import threading


        def main():
            n, m = map(int, sys.stdin.readline().split())
            near = {child: [] for child in range(1, n + 1)}
            for _ in range(m):
                a, b = map(int, sys.stdin.readline().split())
                near[a].append(b)
                near[b].append(a)
            team = {}

            def visit(child, letter):
                team[child] = letter
                opposite = "A" if letter == "B" else "B"
                for other in near[child]:
                    if other not in team:
                        if not visit(other, opposite):
                            return False
                    elif team[other] == letter:
                        return False
                return True

            for child in range(n, 0, -1):
                if child not in team and not visit(child, "B"):
                    print("impossible")
                    return
            print(*(team[child] for child in range(1, n + 1)))


        sys.setrecursionlimit(10**6)
        threading.stack_size(64 * 1024 * 1024)
        thread = threading.Thread(target=main)
        thread.start()
        thread.join()
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n, m = map(int, input().split())
            team = [0] * (n + 1)
            possible = True
            for _ in range(m):
                a, b = map(int, input().split())
                if not team[a] and not team[b]:
                    team[a], team[b] = 1, 2
                elif not team[a]:
                    team[a] = 3 - team[b]
                elif not team[b]:
                    team[b] = 3 - team[a]
                elif team[a] == team[b]:
                    possible = False
            print(*("AAB"[t] for t in team[1:])) if possible else print("impossible")
            """,
        ),
        Wrong(
            "WA",
            """
            n, m = map(int, input().split())
            near = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b = map(int, input().split())
                near[a].append(b)
                near[b].append(a)
            team = [0] * (n + 1)
            team[1] = 1
            todo = [1]
            possible = True
            while todo:
                child = todo.pop()
                for other in near[child]:
                    if not team[other]:
                        team[other] = 3 - team[child]
                        todo.append(other)
                    elif team[other] == team[child]:
                        possible = False
            print(*("AAB"[t] for t in team[1:])) if possible else print("impossible")
            """,
        ),
        Wrong(
            "RE",
            """
            n, m = map(int, input().split())
            near = [[] for _ in range(n + 1)]
            for _ in range(m):
                a, b = map(int, input().split())
                near[a].append(b)
                near[b].append(a)
            team = [0] * (n + 1)

            def visit(child, number):
                if team[child]:
                    return team[child] == number
                team[child] = number
                return all([visit(other, 3 - number) for other in near[child]])

            possible = all([team[child] or visit(child, 1) for child in range(1, n + 1)])
            print(*("?AB"[t] for t in team[1:])) if possible else print("impossible")
            """,
        ),
    ),
)
