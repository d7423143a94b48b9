"""Breadth-first search in a grid."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(rows: list[str]) -> str:
    return f"{len(rows)} {len(rows[0])}\n" + "".join(row + "\n" for row in rows)


def _random(rng: Random, height: int, width: int, walls: float) -> str:
    grid = [["#" if rng.random() < walls else "." for _ in range(width)] for _ in range(height)]
    (a, b), (c, d) = rng.sample([(y, x) for y in range(height) for x in range(width)], 2)
    grid[a][b], grid[c][d] = "S", "E"
    return _case(["".join(row) for row in grid])


def _snake(width: int, height: int) -> str:
    rows = ["." * width]
    for turn in range(height):
        wall = "#" * (width - 1)
        rows += [wall + "." if turn % 2 == 0 else "." + wall, "." * width]
    rows[0] = "S" + rows[0][1:]
    last = rows[-1]
    rows[-1] = "E" + last[1:] if height % 2 else last[:-1] + "E"
    return _case(rows)


def _inputs(rng: Random) -> Iterator[str]:
    yield _case(["SE"])
    yield _case(["S", "#", "E"])
    yield _case(["S...", "...E"])
    yield _case(["E.#", ".##", "..S"])
    yield _snake(60, 30)
    for height, width, walls in (
        (5, 7, 0.2),
        (12, 12, 0.3),
        (30, 40, 0.3),
        (80, 80, 0.35),
        (150, 150, 0.1),
        (200, 120, 0.25),
    ):
        yield _random(rng, height, width, walls)


CLASSIC = Classic(
    problem_id="maze",
    statement="""
        A mouse stands at S in a maze and wants to reach the cheese at E. In one step it moves up,
        down, left or right by one field; it cannot leave the maze or enter a wall.

        Input: height h and width w (1 <= h, w <= 200), then h lines of w characters: S, E, # for a
        wall, and . for a free field. S and E appear once each.
        Output: the smallest number of steps, or -1 if the cheese cannot be reached.
    """,
    example="""
        3 4
        S.#E
        #...
        ....
    """,
    inputs=_inputs,
    solutions=(
        """
        from collections import deque

        h, w = map(int, input().split())
        grid = [input() for _ in range(h)]
        for y in range(h):
            for x in range(w):
                if grid[y][x] == "S":
                    start = (y, x)
        steps = {start: 0}
        queue = deque([start])
        answer = -1
        while queue:
            y, x = queue.popleft()
            if grid[y][x] == "E":
                answer = steps[y, x]
                break
            for a, b in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                if 0 <= a < h and 0 <= b < w and grid[a][b] != "#" and (a, b) not in steps:
                    steps[a, b] = steps[y, x] + 1
                    queue.append((a, b))
        print(answer)
        """,
        """
        import sys

        size, *rows = sys.stdin.read().split("\\n")
        h, w = map(int, size.split())
        cells = "#" * (w + 1) + "#".join(rows[:h]) + "#" * (w + 2)
        start, end = cells.index("S"), cells.index("E")
        level, seen, steps = {start}, {start}, 0
        while level and end not in level:
            level = {
                cell + move
                for cell in level
                for move in (1, -1, w + 1, -w - 1)
                if cells[cell + move] != "#"
            } - seen
            seen |= level
            steps += 1
        print(steps if level else -1)
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            h, w = map(int, input().split())
            grid = [input() for _ in range(h)]
            start = next((y, x) for y in range(h) for x in range(w) if grid[y][x] == "S")
            steps = {start: 0}
            stack = [start]
            answer = -1
            while stack:
                y, x = stack.pop()
                if grid[y][x] == "E":
                    answer = steps[y, x]
                    break
                for a, b in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                    if 0 <= a < h and 0 <= b < w and grid[a][b] != "#" and (a, b) not in steps:
                        steps[a, b] = steps[y, x] + 1
                        stack.append((a, b))
            print(answer)
            """,
        ),
        Wrong(
            "TLE",
            """
            h, w = map(int, input().split())
            grid = [input() for _ in range(h)]
            start = next((y, x) for y in range(h) for x in range(w) if grid[y][x] == "S")
            queue = [(start, 0)]
            answer = -1
            while queue:
                (y, x), steps = queue.pop(0)
                if grid[y][x] == "E":
                    answer = steps
                    break
                for a, b in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                    if 0 <= a < h and 0 <= b < w and grid[a][b] != "#":
                        queue.append(((a, b), steps + 1))
            print(answer)
            """,
        ),
        Wrong(
            "RE",
            """
            from collections import deque

            h, w = map(int, input().split())
            grid = [input() for _ in range(h)]
            start = next((y, x) for y in range(h) for x in range(w) if grid[y][x] == "S")
            steps = {start: 0}
            queue = deque([start])
            answer = -1
            while queue:
                y, x = queue.popleft()
                if grid[y][x] == "E":
                    answer = steps[y, x]
                    break
                for a, b in ((y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)):
                    if grid[a][b] != "#" and (a, b) not in steps:
                        steps[a, b] = steps[y, x] + 1
                        queue.append((a, b))
            print(answer)
            """,
        ),
    ),
)
