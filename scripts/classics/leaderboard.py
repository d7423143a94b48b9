"""Sorting by several keys, some of them backwards, with shared places."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong


def _case(rows: list[tuple[str, int, int]]) -> str:
    return f"{len(rows)}\n" + "".join(f"{name} {points} {time}\n" for name, points, time in rows)


def _name(rng: Random) -> str:
    return "".join(rng.choice("abcdeklmnorstu") for _ in range(rng.randint(3, 9))).capitalize()


def _inputs(rng: Random) -> Iterator[str]:
    yield _case([("Zoe", 0, 0)])
    yield _case([("Bo", 3, 10), ("Al", 3, 10)])
    yield _case([("Cy", 9, 90), ("Al", 10, 100), ("Bo", 9, 100)])
    yield _case([("Ann", 5, 60), ("Anna", 5, 60), ("An", 5, 60), ("Bea", 5, 59), ("Ben", 5, 61)])
    yield _case([(f"Team{i}", 4, 44) for i in range(12, 0, -1)])
    for count, points, times in (
        (10, 3, 5),
        (40, 5, 20),
        (150, 8, 60),
        (600, 12, 500),
        (900, 100, 9),
        (1500, 10, 10**6),
    ):
        names = sorted({_name(rng) for _ in range(count)})
        rng.shuffle(names)
        yield _case([(name, rng.randint(0, points), rng.randint(0, times)) for name in names])


CLASSIC = Classic(
    problem_id="leaderboard",
    statement="""
        In a contest, teams are ranked by points, most first; among equal points by time, shortest
        first. Teams with equal points and equal time share a place and are listed by name in
        alphabetical order; the places after them are left out, as in 1, 2, 2, 4.

        Input: the number of teams n (1 <= n <= 4000), then n lines with a team's name (letters and
        digits, all different), points and time (integers from 0 to 1000000).
        Output: n lines with place and name, in order of rank.
    """,
    example="""
        4
        Owls 2 80
        Bears 3 100
        Ants 2 80
        Cats 2 95
    """,
    inputs=_inputs,
    solutions=(
        """
        n = int(input())
        teams = []
        for _ in range(n):
            name, points, time = input().split()
            teams.append((-int(points), int(time), name))
        teams.sort()
        place = 0
        for i, team in enumerate(teams):
            if i == 0 or team[:2] != teams[i - 1][:2]:
                place = i + 1
            print(place, team[2])
        """,
        """
        import sys
        from dataclasses import dataclass
        from itertools import groupby


        @dataclass
        class Team:
            name: str
            points: int
            time: int

            def key(self):
                return self.points, -self.time


        def main():
            _, *lines = sys.stdin.read().split("\\n")
            teams = []
            for line in lines:
                if line:
                    name, points, time = line.split()
                    teams.append(Team(name, int(points), int(time)))
            teams.sort(key=lambda team: team.name)
            teams.sort(key=Team.key, reverse=True)
            place = 1
            for _, group in groupby(teams, Team.key):
                members = list(group)
                for team in members:
                    print(f"{place} {team.name}")
                place += len(members)


        if __name__ == "__main__":
            main()
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            n = int(input())
            teams = [input().split() for _ in range(n)]
            teams.sort(key=lambda team: (-int(team[1]), int(team[2])))
            place = 0
            for i, team in enumerate(teams):
                if i == 0 or team[1:] != teams[i - 1][1:]:
                    place = i + 1
                print(place, team[0])
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            teams = []
            for _ in range(n):
                name, points, time = input().split()
                teams.append((-int(points), int(time), name))
            teams.sort()
            place = 0
            for i, team in enumerate(teams):
                if i == 0 or team[:2] != teams[i - 1][:2]:
                    place += 1
                print(place, team[2])
            """,
        ),
        Wrong(
            "WA",
            """
            n = int(input())
            teams = [input().split() for _ in range(n)]
            teams.sort(key=lambda team: team[0])
            teams.sort(key=lambda team: team[2])
            teams.sort(key=lambda team: team[1], reverse=True)
            place = 0
            for i, team in enumerate(teams):
                if i == 0 or team[1:] != teams[i - 1][1:]:
                    place = i + 1
                print(place, team[0])
            """,
        ),
    ),
)
