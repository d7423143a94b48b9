"""Roman numerals there and back, subtractive pairs included."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from . import Classic, Wrong

_PARTS = [
    "M 1000",
    "CM 900",
    "D 500",
    "CD 400",
    "C 100",
    "XC 90",
    "L 50",
    "XL 40",
    "X 10",
    "IX 9",
    "V 5",
    "IV 4",
    "I 1",
]


def _roman(number: int) -> str:
    text = ""
    for part in _PARTS:
        letters, value = part.split()
        while number >= int(value):
            text += letters
            number -= int(value)
    return text


def _inputs(rng: Random) -> Iterator[str]:
    yield "I + I\n"
    yield "I - I\n"
    yield "I - II\n"
    yield "MMMCMXCIX + I\n"
    yield "MMM + CMXCIX\n"
    yield "MCMXCIV - CDXLIV\nIX + IV\n"
    for count in (5, 50, 300, 900, 1500):
        numbers = [(rng.randint(1, 3999), rng.randint(1, 3999)) for _ in range(count)]
        yield "".join(f"{_roman(a)} {rng.choice('+-')} {_roman(b)}\n" for a, b in numbers)


CLASSIC = Classic(
    problem_id="roman-sums",
    statement="""
        Calculate with Roman numerals. The letters I, V, X, L, C, D and M stand for 1, 5, 10, 50,
        100, 500 and 1000. 4 and 9 are written IV and IX, and in the same way XL, XC, CD and CM; all
        other numbers are written with the largest letters first and never four alike in a row.

        Input: 1 to 1500 lines, each with two numbers from I to MMMCMXCIX and a + or - between them,
        separated by blanks.
        Output: for each line the result as a Roman numeral, the word "nihil" if it is 0 or less, or
        "nimis" if it is 4000 or more.
    """,
    example="""
        XIV + VI
        III - V
        CM - I
    """,
    inputs=_inputs,
    solutions=(
        """
        import sys

        signs = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC")]
        signs += [(50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
        worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


        def read(text):
            values = [worth[letter] for letter in text]
            total = values[-1]
            for a, b in zip(values, values[1:]):
                total += a if a >= b else -a
            return total


        def write(number):
            text = ""
            for value, letters in signs:
                text += letters * (number // value)
                number %= value
            return text


        for line in sys.stdin:
            a, sign, b = line.split()
            result = read(a) + read(b) if sign == "+" else read(a) - read(b)
            print("nihil" if result <= 0 else "nimis" if result >= 4000 else write(result))
        """,
        """
        ones = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
        table = {}
        for number in range(1, 4000):
            digits = f"{number:04d}"
            text = "M" * int(digits[0])
            for digit, swap in zip(digits[1:], ("CDM", "XLC", "IVX")):
                text += ones[int(digit)].translate(str.maketrans("IVX", swap))
            table[text] = number
        numerals = list(table)

        try:
            while True:
                first, sign, second = input().split()
                result = eval(f"{table[first]} {sign} {table[second]}")
                if result < 1:
                    print("nihil")
                elif result > 3999:
                    print("nimis")
                else:
                    print(numerals[result - 1])
        except EOFError:
            pass
        """,
    ),
    wrong=(
        Wrong(
            "WA",
            """
            import sys

            worth = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}

            def read(text):
                return sum(worth[letter] for letter in text)

            def write(number):
                text = ""
                for letter, value in reversed(worth.items()):
                    text += letter * (number // value)
                    number %= value
                return text

            for line in sys.stdin:
                a, sign, b = line.split()
                result = read(a) + read(b) if sign == "+" else read(a) - read(b)
                print("nihil" if result <= 0 else "nimis" if result >= 4000 else write(result))
            """,
        ),
        Wrong(
            "RE",
            """
            ones = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
            numerals = [""]
            for number in range(1, 4000):
                digits = f"{number:04d}"
                text = "M" * int(digits[0])
                for digit, swap in zip(digits[1:], ("CDM", "XLC", "IVX")):
                    text += ones[int(digit)].translate(str.maketrans("IVX", swap))
                numerals.append(text)
            while True:
                try:
                    a, sign, b = input().split()
                except EOFError:
                    break
                a, b = numerals.index(a), numerals.index(b)
                result = a + b if sign == "+" else a - b
                print(numerals[result] if result > 0 else "nihil")
            """,
        ),
        Wrong(
            "WA",
            """
            ones = ["", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX"]
            numerals = ["nihil"]
            for number in range(1, 4000):
                digits = f"{number:04d}"
                text = "M" * int(digits[0])
                for digit, swap in zip(digits[1:], ("CDM", "XLC", "IVX")):
                    text += ones[int(digit)].translate(str.maketrans("IVX", swap))
                numerals.append(text)
            a, sign, b = input().split()
            a, b = numerals.index(a), numerals.index(b)
            result = a + b if sign == "+" else a - b
            print("nihil" if result <= 0 else "nimis" if result >= 4000 else numerals[result])
            """,
        ),
    ),
)
