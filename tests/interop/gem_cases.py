"""Programs and tests that two judges are asked about: pairs that must agree, and those that cannot.

Every pair has few tests and small inputs, so that hundreds of them take a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from attrs import frozen

import envhost
from envhost.judge.loading import load_problems
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case

TESTS = 3
PROBLEMS = Path(envhost.__file__).parent / "problems"


@frozen
class Pair:
    """A program and the problem that it is to solve."""

    name: str
    program: str
    tests: tuple[tuple[Any, Any], ...]

    def problem(self) -> Problem:
        """Return the problem for our judge."""
        return Problem(problem_id=self.name, text="", tests=tuple(Case(*t) for t in self.tests))

    def gem(self) -> dict[str, Any]:
        """Return the case for GEM's."""
        inputs, outputs = zip(*self.tests, strict=True)
        return {
            "answer": f"```python\n{self.program}\n```",
            "tests": {"inputs": inputs, "outputs": outputs},
        }


@frozen
class Disagreement:
    """A pair that the two judge differently, and which of them is right."""

    pair: Pair
    ours: str
    """Our verdict, the right one."""
    theirs: float | str
    """GEM's reward, or what its step raises."""
    why: str


# Changes that usually break a program and leave it a program.
MUTATIONS = (
    ("+ 1", "+ 2"),
    (" < ", " <= "),
    ("min(", "max("),
    ("range(", "range(1, "),
    (" - ", " + "),
    ("int(", "float("),
)


def pairs() -> list[Pair]:
    """Return the pairs on which both judges must agree."""
    return [pair for pair in (*_lists(), *_classics(), *SUMS) if pair.name not in DIGITS]


def disagreements() -> list[Disagreement]:
    """Return the pairs that GEM judges wrongly."""
    digits = [
        Disagreement(pair, "AC", 0.0, "the problem's text allows an error of 1e-6")
        for pair in _classics()
        if pair.name in DIGITS
    ]
    return [*DISAGREEMENTS, *digits]


def _lists() -> Iterator[Pair]:
    """The bundled lists: each program on its own problem and on its neighbour's."""
    rows = islice(load_problems("bundled:lists").training, 110)
    for number, (row, neighbour) in enumerate(pairwise(rows)):
        yield _pair(row, row.solutions[0], "right")
        if number % 2:
            yield _pair(row, neighbour.solutions[0], "of the next")


def _classics() -> Iterator[Pair]:
    """The classics: right programs, wrong ones and mutated ones; GEM knows no checkers."""
    loaded = load_problems("bundled:classics")
    for row in (*loaded.training, *loaded.evaluation):
        if row.checker is not None:
            continue
        for number, program in enumerate(row.solutions):
            yield _pair(row, program, f"right {number}")
            applicable = ((old, new) for old, new in MUTATIONS if old in program)
            for old, new in islice(applicable, 1):
                yield _pair(row, program.replace(old, new), f"right {number} with {new}")
        for number, program in enumerate(row.wrong_solutions):
            yield _pair(row, program, f"wrong {number}")


def _pair(row: Problem, program: str, what: str) -> Pair:
    """A program on the smallest tests; for empty inputs GEM would read its own standard input."""
    tests = sorted((test for test in row.tests if test.input), key=lambda test: len(test.input))
    tests = tests[:TESTS]
    return Pair(f"{row.problem_id}, {what}", program, tuple((t.input, t.expected) for t in tests))


# Programs that print the right numbers with other digits than the expected output has. (The wrong
# ones fail on larger inputs.)
DIGITS = frozenset(
    (
        "classics/closest-pair, right 1",
        "classics/closest-pair, wrong 0",
        "classics/closest-pair, wrong 1",
        "classics/mean-deviation, right 1",
        "classics/mean-deviation, right 2",
        "classics/mean-deviation, wrong 1",
    )
)

SUM = (("1 2\n3 4\n", "3\n7\n"), ("5 5\n-1 1\n", "10\n0\n"))


def _sum(name: str, program: str, tests: Sequence[tuple[Any, Any]] = SUM) -> Pair:
    return Pair(f"sum, {name}", program, tuple(tests))


_PRINT_SUMS = "print(*(sum(map(int, line.split())) for line in lines), sep='\\n')"
SUMS = (
    # Right, although popular graders call them wrong.
    _sum("input", f"lines = [input(), input()]\n{_PRINT_SUMS}"),
    _sum(
        "buffer readline",
        f"import sys\nread = sys.stdin.buffer.readline\nlines = [read(), read()]\n{_PRINT_SUMS}",
    ),
    _sum("readlines", f"import sys\nlines = sys.stdin.readlines()\n{_PRINT_SUMS}"),
    _sum("iteration", f"import sys\nlines = [line for line in sys.stdin]\n{_PRINT_SUMS}"),
    _sum(
        "input then read",
        f"import sys\nlines = [input(), *sys.stdin.read().splitlines()]\n{_PRINT_SUMS}",
    ),
    _sum("open(0)", f"lines = open(0).read().splitlines()\n{_PRINT_SUMS}"),
    _sum("os.read", f"import os\nlines = os.read(0, 1 << 16).splitlines()\n{_PRINT_SUMS}"),
    _sum(
        "global",
        "count = 0\ndef add():\n    global count\n    count = sum(map(int, input().split()))\n"
        "for _ in range(2):\n    add()\n    print(count)",
    ),
    _sum(
        "future",
        "from __future__ import annotations\n"
        f"lines: list[Undefined] = [input(), input()]\n{_PRINT_SUMS}",
    ),
    _sum(
        "buffer write",
        "import sys\nfor line in sys.stdin:\n"
        "    sys.stdout.buffer.write(b'%d\\n' % sum(map(int, line.split())))",
    ),
    _sum("exit", f"import sys\nlines = [input(), input()]\n{_PRINT_SUMS}\nsys.exit()"),
    # Wrong, although popular graders pass them.
    _sum("raises, nothing expected", "raise ValueError", [("1\n", "")]),
    _sum("first line alone", "print(sum(map(int, input().split())))"),
    _sum("junk after", f"lines = [input(), input()]\n{_PRINT_SUMS}\nprint('done')"),
    _sum("near integer", "print(10**9 + 8)", [("1\n", "1000000007\n")]),
    _sum("tokens in another order", "print(7)\nprint(3)", SUM[:1]),
    _sum("one line for two", "print(3, 7)", SUM[:1]),
    _sum("other case", "print('YES')", [("1\n", "yes\n")]),
    _sum(
        "patches its callers",
        "import sys\nframe = sys._getframe()\nwhile frame:\n"
        "    frame.f_globals['__eq__'] = lambda *_: True\n    frame = frame.f_back\nprint(1)",
    ),
    _sum("right, then status 3", f"lines = [input(), input()]\n{_PRINT_SUMS}\nraise SystemExit(3)"),
    _sum("no flush", "import os\nprint(3)\nprint(7)\nos._exit(0)", SUM[:1]),
    _sum("segfault", f"import os\nlines = [input(), input()]\n{_PRINT_SUMS}\nos.abort()"),
    _sum("syntax error", "print("),
    _sum("reads too much", "input(), input(), input()"),
    _sum("no such module", "import nothing_of_this_name"),
)


def _disagreement(
    name: str,
    program: str,
    tests: Sequence[tuple[Any, Any]],
    ours: str,
    theirs: float | str,
    why: str,
) -> Disagreement:
    return Disagreement(Pair(name, program, tuple(tests)), ours, theirs, why)


DISAGREEMENTS = (
    _disagreement(
        "the server's standard input",
        "import sys\nprint('leaked' if sys.stdin.read() else 'empty')",
        [("", "empty\n")],
        "AC",
        0.0,
        "an empty input is an empty input, not what the server's own standard input has",
    ),
    _disagreement(
        "trailing blank",
        "print('1 2 ')\nprint('3 4 ')",
        [("", "1 2\n3 4\n")],
        "AC",
        0.0,
        "blanks at a line's end are seen by nobody; `print(*row, end=' ')` leaves them",
    ),
    _disagreement(
        "two blanks in a line",
        "print(1, '', 2)",
        [("", "1 2\n")],
        "AC",
        0.0,
        "how wide a gap between two numbers is says nothing of a solution",
    ),
    _disagreement(
        "CRLF",
        "print('1')\nprint('2')",
        [("", "1\r\n2\r\n")],
        "AC",
        0.0,
        "a data set written on Windows asks for the same lines",
    ),
    _disagreement(
        "digits of a float",
        "print(f'{1 / 3:.6f}')",
        [("", "0.33333333\n")],
        "AC",
        0.0,
        "six digits are what contests ask for, and 1e-6 is their tolerance",
    ),
    _disagreement(
        "no text on standard output",
        "import os\nos.write(1, b'\\xff\\n')",
        [("", "1\n")],
        "WA",
        "UnicodeDecodeError",
        "a program must not raise out of the environment's step",
    ),
    _disagreement(
        "NUL in the source",
        "print(1)\n\0",
        [("", "1\n")],
        "CE",
        "ValueError",
        "what no interpreter compiles is the program's fault, not an exception of the step",
    ),
    _disagreement(
        "lone surrogate in the source",
        "print('\ud800')",
        [("", "1\n")],
        "CE",
        "UnicodeEncodeError",
        "the same",
    ),
    _disagreement(
        "integers in the data set",
        "print(int(input()) + 1)",
        [("1\n", 2)],
        "AC",
        "AttributeError",
        "many data sets hold numbers as numbers",
    ),
    _disagreement(
        "nested lists in the data set",
        "print(*map(int, input().split()))",
        [([[1, 2]], [[1, 2]])],
        "AC",
        0.0,
        "a row of numbers is a line of numbers, not Python's text of a list",
    ),
    _disagreement(
        "reads its own source",
        "print(len(open(__file__).read()) > 0)",
        [("", "True\n")],
        "AC",
        0.0,
        "a program is a file, not the argument of `python -c`",
    ),
)


def as_json(cases: Sequence[Pair]) -> str:
    """Return the cases file of `peers/gem_judge.py`."""
    return json.dumps([pair.gem() for pair in cases])
