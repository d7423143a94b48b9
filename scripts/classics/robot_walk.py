"""Simulation of turns and steps on a grid that wraps around."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _inputs(rng: Random) -> Iterator[str]:
    yield "1 1\nFFFF\n"
    yield "2 3\nL\n"
    yield "3 3\nFFFRFFF\n"
    yield "5 4\nRFFLLFFFFB\n"
    yield "1000 1000\nBBBBBBRB\n"
    for size, length in ((3, 30), (10, 200), (30, 2000), (100, 9000), (1000, 40000), (7, 60000)):
        moves = "".join(rng.choice("FFFFFFBLR") for _ in range(length))
        yield f"{size} {size + rng.randint(0, 3)}\n{moves}\n"


CLASSIC = Classic(
    problem_id="robot-walk",
    statement="""
        A robot lives on a board of h rows and w columns whose edges are joined: who leaves at the
        top comes in at the bottom, who leaves at the left comes in at the right, and vice versa. It
        starts in row 0 and column 0, looking up, that is, to lower rows. It obeys the letters F (a
        step forward), B (a step backward without turning), L (turn left) and R (turn right).

        Input: h and w (1 <= h, w <= 1003), then a line of 1 to 60000 letters.
        Output: row and column where the robot ends, and the number of different fields on which it
        has been, the first one included.
    """,
    example="""
        4 5
        FRFFB
    """,
    inputs=_inputs,
    solutions=(
        """
        h, w = map(int, input().split())
        y = x = 0
        dy, dx = -1, 0
        seen = {(0, 0)}
        for letter in input():
            if letter == "L":
                dy, dx = -dx, dy
            elif letter == "R":
                dy, dx = dx, -dy
            else:
                sign = 1 if letter == "F" else -1
                y = (y + sign * dy) % h
                x = (x + sign * dx) % w
                seen.add((y, x))
        print(y, x, len(seen))
        """,
        """
        import sys

        place, look, seen = 0j, -1j, {0j}
        size, moves = sys.stdin.read().splitlines()
        rows, columns = map(int, size.split())
        actions = {"L": -1j, "R": 1j}
        for move in moves:
            if move in actions:
                look *= actions[move]
                continue
            place += look if move == "F" else -look
            place = complex(int(place.real) % columns, int(place.imag) % rows)
            seen.add(place)
        print(int(place.imag), int(place.real), len(seen))
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            h, w = map(int, input().split())
            y = x = 0
            dy, dx = -1, 0
            seen = {(0, 0)}
            for letter in input():
                if letter == "L":
                    dy, dx = dx, -dy
                elif letter == "R":
                    dy, dx = -dx, dy
                else:
                    sign = 1 if letter == "F" else -1
                    y = (y + sign * dy) % h
                    x = (x + sign * dx) % w
                    seen.add((y, x))
            print(y, x, len(seen))
            """,
        ),
        Wrong(
            "WA",
            """
            h, w = map(int, input().split())
            y = x = 0
            dy, dx = -1, 0
            seen = set()
            for letter in input():
                if letter == "L":
                    dy, dx = -dx, dy
                elif letter == "R":
                    dy, dx = dx, -dy
                else:
                    sign = 1 if letter == "F" else -1
                    y = (y + sign * dy) % h
                    x = (x + sign * dx) % w
                    seen.add((y, x))
            print(y, x, len(seen))
            """,
        ),
        Wrong(
            "RE",
            """
            h, w = map(int, input().split())
            board = [[0] * w for _ in range(h)]
            y = x = 0
            dy, dx = -1, 0
            board[0][0] = 1
            for letter in input():
                if letter == "L":
                    dy, dx = -dx, dy
                elif letter == "R":
                    dy, dx = dx, -dy
                else:
                    sign = 1 if letter == "F" else -1
                    y += sign * dy
                    x += sign * dx
                    board[y][x] = 1
            print(y % h, x % w, sum(map(sum, board)))
            """,
        ),
    ),
)
