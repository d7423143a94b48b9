"""Hand-written contest problems: one module a problem, each with a `CLASSIC`.

Owns the shape of a problem and finding them all; `make_classics.py` writes them to a file.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from random import Random
from textwrap import dedent

from attrs import field, frozen

__all__ = ["Checker", "Classic", "Wrong", "all_classics"]

Checker = Callable[[str, str, str], bool]
"""Whether an answer is right, from input, expected and actual output; needs nothing outside it."""


def _text(indented: str) -> str:
    return dedent(indented).strip("\n") + "\n"


def _texts(indented: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_text, indented))


@frozen
class Wrong:
    """A typical wrong program and the verdict that it must get."""

    verdict: str
    program: str = field(converter=_text)


@frozen(kw_only=True)
class Classic:
    """One problem: what contestants read, what the judge runs, and programs to try both on.

    The first solution gives the expected outputs; the others, in other styles, must agree.
    """

    problem_id: str
    statement: str = field(converter=_text)
    example: str = field(converter=_text)
    """The example's input: shown in the statement, and the first test."""
    inputs: Callable[[Random], Iterator[str]]
    """The other tests' inputs; edge cases first, then random ones."""
    solutions: tuple[str, ...] = field(converter=_texts)
    wrong: tuple[Wrong, ...]
    checker: Checker | None = None
    """Where several answers are right."""


def all_classics() -> list[Classic]:
    """Return every module's problem, by module name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [importlib.import_module(f"{__name__}.{name}").CLASSIC for name in names]
