"""Comparing what a program printed with what was expected.

Owns the checkers `lines`, `exact`, `tokens` and `floats`, and the comparison of returned values. To
`lines` and `floats` a line is its indentation, since figures are drawn with it, and its tokens with
any white space between them. A token compares as a number only where the expected one is a float
literal, so that 1000000008 is never close enough to 1000000007.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any, Literal, get_args

from attrs import frozen

__all__ = ["CHECKERS", "CheckerName", "Tolerance", "outputs_match", "text_of", "values_match"]

CheckerName = Literal["lines", "exact", "tokens", "floats"]
CHECKERS: tuple[CheckerName, ...] = get_args(CheckerName)
_TOKEN = re.compile(r"\S+")
# A point or an exponent makes a literal a float.
_FLOAT = re.compile(r"[+-]?((\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+)")


@frozen
class Tolerance:
    """How far a number may be off: one of the two suffices."""

    absolute: float = 1e-6
    relative: float = 1e-6

    def allows(self, expected: float, actual: float) -> bool:
        """Whether the actual number is close enough."""
        if math.isnan(expected) or math.isinf(expected):
            return expected == actual or (math.isnan(expected) and math.isnan(actual))
        try:
            difference = abs(expected - actual)
        except OverflowError:  # an integer beyond all floats
            return False
        return difference <= max(self.absolute, self.relative * abs(expected))


def text_of(value: Any) -> str:
    """Return a data set's input or output as text: a list is one element a line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(f"{_line_of(item)}\n" for item in value)
    return f"{_line_of(value)}\n"


def _line_of(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(_line_of(item) for item in value)
    return str(value)


def outputs_match(checker: str, expected: str, actual: bytes, tolerance: Tolerance) -> bool:
    """Compare a program's output by one of `CHECKERS`."""
    text = actual.decode("utf-8", "replace")
    match checker:
        case "exact":
            return expected.strip() == text.strip()
        case "tokens":
            return _tokens_match(expected, text, _token_matcher(Tolerance()))
        case "floats":
            return _lines_match(expected, text, _token_matcher(tolerance))
        case _:
            return _lines_match(expected, text, _token_matcher(Tolerance()))


def _lines_match(expected: str, actual: str, matches: Callable[[str, str], bool]) -> bool:
    wanted, got = (text.replace("\r\n", "\n").rstrip() for text in (expected, actual))
    # Counted first: an output is as large as its writer likes, and lists of it would be larger.
    return wanted.count("\n") == got.count("\n") and all(
        _line_matches(want.rstrip(), have.rstrip(), matches)
        for want, have in zip(wanted.split("\n"), got.split("\n"), strict=True)
    )


def _line_matches(expected: str, actual: str, matches: Callable[[str, str], bool]) -> bool:
    if expected == actual:
        return True
    return _indent(expected) == _indent(actual) and _tokens_match(expected, actual, matches)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _tokens_match(expected: str, actual: str, matches: Callable[[str, str], bool]) -> bool:
    # One by one: an output has as many as its writer likes.
    found = (token[0] for token in _TOKEN.finditer(actual))
    pairs = zip_longest(expected.split(), found)
    return all(want and have and matches(want, have) for want, have in pairs)


def _token_matcher(tolerance: Tolerance) -> Callable[[str, str], bool]:
    def matches(expected: str, actual: str) -> bool:
        if expected == actual:
            return True
        if not _FLOAT.fullmatch(expected) or "_" in actual:
            return False
        try:
            return tolerance.allows(float(expected), float(actual))
        except ValueError:
            return False

    return matches


def values_match(expected: Any, actual: Any, tolerance: Tolerance) -> bool:
    """Compare returned JSON values: floats within the tolerance, all else exactly."""
    if isinstance(expected, float) and isinstance(actual, int | float):
        return tolerance.allows(expected, actual)
    if isinstance(expected, list) and isinstance(actual, list):
        missing = object()
        pairs = zip_longest(expected, actual, fillvalue=missing)
        return all(values_match(want, have, tolerance) for want, have in pairs)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return expected.keys() == actual.keys() and all(
            values_match(value, actual[key], tolerance) for key, value in expected.items()
        )
    return bool(expected == actual)
