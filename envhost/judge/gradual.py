"""Parsing a large JSON text in steps, so that others get their turn between them.

Owns one shortcut: it trusts the text, which must have been parsed before. A row of TACO may have
tens of megabytes of tests, and `json.loads` of them would stop every session for a second.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Any

__all__ = ["parsed_in_steps"]

_STEP_CHARACTERS = 256 * 1024
_BETWEEN = re.compile(r"[\s,:]*")
_value_at = json.JSONDecoder().raw_decode


def parsed_in_steps(text: str) -> Generator[None, None, Any]:
    """Return what `json.loads` would, yielding between elements of the lists of a large object.

    An element is parsed in one step, however long it is.
    """
    at = _next(text, 0)
    if len(text) <= _STEP_CHARACTERS or text[at] != "{":
        return json.loads(text)
    found: dict[str, Any] = {}
    at = _next(text, at + 1)
    while text[at] != "}":
        key, at = _value_at(text, at)
        at = _next(text, at)
        if text[at] == "[":
            found[key], at = yield from _list(text, at)
        else:
            found[key], at = _value_at(text, at)
        at = _next(text, at)
        yield
    return found


def _list(text: str, at: int) -> Generator[None, None, tuple[list[Any], int]]:
    """Return the list that begins at a position, and where it ends."""
    elements: list[Any] = []
    at = _next(text, at + 1)
    step_end = at + _STEP_CHARACTERS
    while text[at] != "]":
        element, at = _value_at(text, at)
        elements.append(element)
        at = _next(text, at)
        if at > step_end:
            step_end = at + _STEP_CHARACTERS
            yield
    return elements, at + 1


def _next(text: str, at: int) -> int:
    """Return where the next value or bracket stands."""
    match = _BETWEEN.match(text, at)
    assert match is not None
    return match.end()
