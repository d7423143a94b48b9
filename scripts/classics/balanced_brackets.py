"""A stack of open brackets; counting each kind apart is the classic mistake."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong

_PAIRS = ("()", "[]", "{}")


def _balanced(rng: Random, length: int) -> str:
    text: list[str] = []
    open_pairs: list[str] = []
    while len(text) + len(open_pairs) < length:
        if open_pairs and rng.random() < 0.45:
            text.append(open_pairs.pop()[1])
        else:
            open_pairs.append(rng.choice(_PAIRS))
            text.append(open_pairs[-1][0])
    text.extend(pair[1] for pair in reversed(open_pairs))
    return "".join(text)


def _inputs(rng: Random) -> Iterator[str]:
    yield "(\n"
    yield ")\n"
    yield "([)]\n"
    yield "{[()]}[]\n"
    yield "(" * 500 + ")" * 499 + "\n"
    for length in (20, 200, 2000):
        yield _balanced(rng, length) + "\n"
    for length in (30, 300, 20000):
        text = list(_balanced(rng, length))
        text[rng.randrange(length // 2, len(text))] = rng.choice("()[]{}")
        yield "".join(text) + "\n"


CLASSIC = Classic(
    problem_id="balanced-brackets",
    statement="""
        An editor marks the first bracket that cannot be right. Reading from the left, that is the
        first closing bracket which does not close the bracket opened last. If no closing bracket is
        wrong but some brackets stay open, the editor marks the end of the line, that is, the
        position after the last character.

        Input: one line of 1 to 25000 characters, each one of ()[]{}.
        Output: the position of the mark, counted from 1, or the word "ok" if all is well.
    """,
    example="([]}",
    inputs=_inputs,
    solutions=(
        """
        text = input().strip()
        partner = {")": "(", "]": "[", "}": "{"}
        stack = []
        answer = "ok"
        for position, character in enumerate(text, 1):
            if character in "([{":
                stack.append(character)
            elif stack and stack[-1] == partner[character]:
                stack.pop()
            else:
                answer = position
                break
        else:
            if stack:
                answer = len(text) + 1
        print(answer)
        """,
        """
        from __future__ import annotations

        import sys


        def mark(text: str) -> str:
            wanted: list[str] = []
            for index, character in enumerate(text):
                place = "([{".find(character)
                if place >= 0:
                    wanted.append(")]}"[place])
                elif not wanted or wanted.pop() != character:
                    return str(index + 1)
            return str(len(text) + 1) if wanted else "ok"


        if __name__ == "__main__":
            for line in sys.stdin:
                sys.stdout.write(mark(line.rstrip()) + "\\r\\n")
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            text = input()
            counts = {"(": 0, "[": 0, "{": 0}
            partner = {")": "(", "]": "[", "}": "{"}
            answer = "ok"
            for position, character in enumerate(text, 1):
                if character in counts:
                    counts[character] += 1
                else:
                    counts[partner[character]] -= 1
                    if counts[partner[character]] < 0:
                        answer = position
                        break
            else:
                if any(counts.values()):
                    answer = len(text) + 1
            print(answer)
            """,
        ),
        Wrong(
            "RE",
            """
            text = input()
            partner = {")": "(", "]": "[", "}": "{"}
            stack = []
            for position, character in enumerate(text, 1):
                if character in "([{":
                    stack.append(character)
                elif stack[-1] == partner[character]:
                    stack.pop()
                else:
                    print(position)
                    break
            else:
                print(len(text) + 1 if stack else "ok")
            """,
        ),
        Wrong(
            "WA",
            """
            text = input()
            partner = {")": "(", "]": "[", "}": "{"}
            stack = []
            for position, character in enumerate(text):
                if character in "([{":
                    stack.append(character)
                elif stack and stack[-1] == partner[character]:
                    stack.pop()
                else:
                    print(position)
                    break
            else:
                print(len(text) if stack else "ok")
            """,
        ),
    ),
)
