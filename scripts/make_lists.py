"""Write the data set `bundled:lists`: small problems about one line of integers.

A problem is a few steps in words; its solution has one line of Python for each. A problem is taken
only if every step matters: the tests that a short judgement runs must fail every program in which
one step is left out or is another one. No two problems behave alike.

The file is a function of this source alone: run it again and compare the bytes.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import CodeType

ROOT = Path(__file__).resolve().parent.parent
DEFAULT_OUTPUT = ROOT / "envhost" / "problems" / "lists.jsonl"

SEED = 20250101
TRAINING_ROWS = 400
HELD_OUT_ROWS = 112
LOWEST, HIGHEST = -12, 12
SHORT_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 6)  # integers in a test's line
LONG_LENGTHS = (13, 13, 14, 14)  # a judge with `max_tests` 4 runs these: the longest inputs

READ_SENTENCE = "Read one line of integers and do this step by step."
READ_LINE = "a = list(map(int, input().split()))\n"

# What stands before and after the piece of code that makes a step what it is.
KEEP = ("a = [x for x in a if ", "]\n")
EACH = ("a = [", " for x in a]\n")
NEIGHBOURS = ("a = [", " for x, y in zip(a, a[1:])]\n")
WHOLE = ("a = ", "\n")
PRINT = ("print(", ")\n")


@dataclass(frozen=True)
class Step:
    """One sentence of a problem and the line of Python that does it."""

    sentence: str
    piece: str
    frame: tuple[str, str]
    code: CodeType = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A printing step's value is the text that it prints.
        source = f"show({self.piece})\n" if self.frame is PRINT else self.line[len("a = ") :]
        object.__setattr__(self, "code", compile(source.strip(), self.sentence, "eval"))

    @property
    def line(self) -> str:
        """The step as a line of Python."""
        return self.frame[0] + self.piece + self.frame[1]


STEPS = (
    Step("Keep the even ones.", "x % 2 == 0", KEEP),
    Step("Keep the odd ones.", "x % 2 == 1", KEEP),
    Step("Keep the positive ones.", "x > 0", KEEP),
    Step("Keep the negative ones.", "x < 0", KEEP),
    Step("Double each.", "x * 2", EACH),
    Step("Square each.", "x * x", EACH),
    Step("Negate each.", "-x", EACH),
    Step("Halve each, rounding down.", "x // 2", EACH),
    Step("Add three to each.", "x + 3", EACH),
    Step("Subtract three from each.", "x - 3", EACH),
    Step("Take the absolute value of each.", "abs(x)", EACH),
    Step("Take the sum of each two neighbours.", "x + y", NEIGHBOURS),
    Step("Take the product of each two neighbours.", "x * y", NEIGHBOURS),
    Step("Take the larger of each two neighbours.", "max(x, y)", NEIGHBOURS),
    Step("Take the smaller of each two neighbours.", "min(x, y)", NEIGHBOURS),
    Step("Sort them up.", "sorted(a)", WHOLE),
    Step("Sort them down.", "sorted(a)[::-1]", WHOLE),
    Step("Reverse them.", "a[::-1]", WHOLE),
    Step("Drop the first.", "a[1:]", WHOLE),
    Step("Drop the last.", "a[:-1]", WHOLE),
    Step("Keep the first and then every second.", "a[::2]", WHOLE),
    Step("Drop repeated ones.", "list(dict.fromkeys(a))", WHOLE),
)
LAST_STEPS = (
    Step("Print the sum.", "sum(a)", PRINT),
    Step("Print the number of them.", "len(a)", PRINT),
    Step("Print the largest, or 0 without any.", "max(a, default=0)", PRINT),
    Step("Print the smallest, or 0 without any.", "min(a, default=0)", PRINT),
    Step("Print the first, if any.", "*a[:1]", PRINT),
    Step("Print them all.", "*a", PRINT),
)

Steps = tuple[Step, ...]


def words(steps: Steps) -> str:
    """Return the problem's text."""
    return " ".join([READ_SENTENCE, *(step.sentence for step in steps)])


def steps_of(problem: str) -> Steps:
    """Return the steps that a problem's text names; the opposite of `words`."""
    named = {step.sentence: step for step in (*STEPS, *LAST_STEPS)}
    sentences = problem.removeprefix(READ_SENTENCE).removesuffix(".").split(".")
    return tuple(named[f"{sentence.strip()}."] for sentence in sentences)


def program(steps: Steps) -> str:
    """Return a whole program that reads the line and does the steps."""
    return READ_LINE + "".join(step.line for step in steps)


def show(*values: int) -> str:
    """Return what `print` would print."""
    return " ".join(map(str, values)) + "\n"


def result(steps: Steps, numbers: list[int]) -> str:
    """Return what `program(steps)` prints for these numbers."""
    value: object = numbers
    for step in steps:
        value = eval(step.code, {"a": value, "show": show})  # our own table
    assert isinstance(value, str)
    return value


def one_step_off(steps: Steps) -> Iterator[Steps]:
    """Yield the problems that leave out one step, or have another one in its place."""
    for i, step in enumerate(steps):
        if step.frame is not PRINT:
            yield steps[:i] + steps[i + 1 :]
        for other in LAST_STEPS if step.frame is PRINT else STEPS:
            if other is not step:
                yield (*steps[:i], other, *steps[i + 1 :])


def draw_numbers(random: Random, length: int) -> list[int]:
    """Return integers with both signs and, in the longer lists, repeats."""
    return [random.randint(LOWEST, HIGHEST) for _ in range(length)]


def draw_steps(random: Random, uses: Counter[Step]) -> Steps:
    """Return two or three steps and a printing one, those rarely used so far more often."""

    def draw(among: Sequence[Step], count: int) -> list[Step]:
        return random.choices(among, [1 / (1 + uses[step]) for step in among], k=count)

    return (*draw(STEPS, random.choice((2, 3))), *draw(LAST_STEPS, 1))


def every_step_matters(steps: Steps, inputs: list[list[int]]) -> bool:
    """Whether the inputs tell the problem from every one that is one step off."""
    right = [result(steps, numbers) for numbers in inputs]
    return all(
        any(result(wrong, numbers) != output for numbers, output in zip(inputs, right, strict=True))
        for wrong in one_step_off(steps)
    )


def problems(random: Random) -> Iterator[tuple[Steps, list[list[int]]]]:
    """Yield problems and their tests' inputs, no two of the same text or behaviour, for ever."""
    probes = [draw_numbers(random, length) for length in range(4, 16)]
    seen = set()
    uses: Counter[Step] = Counter()
    while True:
        steps = draw_steps(random, uses)
        short = [draw_numbers(random, length) for length in SHORT_LENGTHS]
        long = [draw_numbers(random, length) for length in LONG_LENGTHS]
        behaviour = tuple(result(steps, numbers) for numbers in probes)
        if behaviour not in seen and every_step_matters(steps, long):
            seen.add(behaviour)
            uses.update(steps)
            yield steps, short + long


def rows() -> Iterator[dict[str, str]]:
    """Yield the data set's lines."""
    source = problems(Random(SEED))
    for index in range(TRAINING_ROWS + HELD_OUT_ROWS):
        steps, inputs = next(source)
        tests = {
            "inputs": [show(*numbers) for numbers in inputs],
            "outputs": [result(steps, numbers) for numbers in inputs],
        }
        yield {
            "problem_id": f"lists/{index:03}",
            "split": "train" if index < TRAINING_ROWS else "test",
            "problem": words(steps),
            "tests": json.dumps(tests),
            "solutions": json.dumps([program(steps)]),
        }


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    output = parser.parse_args().output
    lines = [json.dumps(row) + "\n" for row in rows()]
    output.write_text("".join(lines), encoding="utf-8")
    print(f"{output}: {len(lines)} problems")


if __name__ == "__main__":
    main()
