"""Problems and their tests: what a row of a data set means, and which row a seed means.

Owns the format of a row and the rules of sampling; every function of a seed here is fixed for good,
the same in every session, process, host and release. Knows nothing of files or running programs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, overload
from weakref import WeakValueDictionary

import trio
from attrs import field, frozen

from ..errors import ProtocolError
from .gradual import parsed_in_steps

__all__ = [
    "Columns",
    "Problem",
    "ProblemSet",
    "Prompt",
    "Rows",
    "Split",
    "StoredProblems",
    "Test",
    "problem_of",
    "text_digest",
]

Split = Literal["train", "test"]

_ROUNDS = 4


@frozen
class Test:
    """One test: what the program reads and what it must print, or a call and what it must return.

    For call-based problems both are JSON values: the list of arguments, and the return value.
    """

    input: Any
    expected: Any


@frozen(kw_only=True)
class Problem:
    """One problem; `fn_name` set makes it call-based, `checker` is a program of its own."""

    problem_id: str
    text: str
    tests: tuple[Test, ...]
    fn_name: str | None = None
    checker: str | None = None
    solutions: tuple[str, ...] = ()
    wrong_solutions: tuple[str, ...] = ()


@frozen
class Prompt:
    """What a reset needs of a problem."""

    problem_id: str
    text: str


@frozen
class Columns:
    """Names of the columns with the problem's text and its tests."""

    question: str = "problem"
    test: str = "tests"


class Rows(Protocol):
    """A data set as it lies on disk; a place is where a row can be found again."""

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the place of each row and the row."""

    def at(self, place: int, names: Sequence[str] | None = None) -> Mapping[str, Any]:
        """Return the row at a place, or at least those of its columns that are named."""


@frozen(kw_only=True, eq=False)
class StoredProblems(Sequence[Problem]):
    """Problems that stay on disk; each is read when it is asked for.

    A problem that somebody still holds is not read again: sessions of a group share it.
    """

    rows: Rows
    places: Sequence[int]
    numbers: Sequence[int]
    """Each row's number in the data set, for the id of a row that has none."""
    columns: Columns
    name: str
    _held: WeakValueDictionary[int, Problem] = field(factory=WeakValueDictionary, init=False)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.places)

    @overload
    def __getitem__(self, row: int) -> Problem: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Problem]: ...
    def __getitem__(self, row: int | slice) -> Problem | Sequence[Problem]:
        """Read a problem with its tests."""
        if isinstance(row, slice):
            return [self[each] for each in range(*row.indices(len(self)))]
        place = self.places[row]
        held = self._held.get(place)
        return self._hold(row, self.rows.at(place)) if held is None else held

    async def read(self, row: int) -> Problem:
        """The same, giving way to others while it reads tests of many megabytes."""
        place, name = self.places[row], self.columns.test
        held = self._held.get(place)
        if held is not None:
            return held
        found = self.rows.at(place)
        if isinstance(found.get(name), str):
            steps = parsed_in_steps(found[name])
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    found = {**found, name: end.value}
                    break
                await trio.lowlevel.checkpoint()
        return self._hold(row, found)

    def _hold(self, row: int, found: Mapping[str, Any]) -> Problem:
        problem = problem_of(found, self._default_id(row), self.columns)
        return self._held.setdefault(self.places[row], problem)

    def prompt(self, row: int) -> Prompt:
        """Read a problem without its tests, which may be large."""
        found = self.rows.at(self.places[row], (self.columns.question, "problem_id"))
        return Prompt(_id_of(found, self._default_id(row)), found[self.columns.question])

    def _default_id(self, row: int) -> str:
        return f"{self.name}/{self.numbers[row]}"


@frozen(kw_only=True)
class ProblemSet:
    """A data set split in two; rows count within their split.

    `report` says in one line what was loaded and what was dropped, and why.
    """

    name: str
    training: Sequence[Problem]
    evaluation: Sequence[Problem]
    report: str
    seed: int = 0
    place: str = ""
    """Its name, as it holds in other directories too."""
    files: tuple[Path, ...] = ()
    """Where it lies on this machine: programs must not see it."""
    dropped: tuple[tuple[str, str], ...] = ()
    """The id of each row that cannot be used, and why."""

    def rows(self, split: Split) -> Sequence[Problem]:
        """Return the problems of a split."""
        return self.training if split == "train" else self.evaluation

    def prompt(self, split: Split, row: int) -> Prompt:
        """Return what a reset needs of a problem, without its tests where they stay on disk."""
        rows = self.rows(split)
        if isinstance(rows, StoredProblems):
            return rows.prompt(row)
        return Prompt(rows[row].problem_id, rows[row].text)

    async def problem(self, split: Split, row: int) -> Problem:
        """Return a problem, giving way to others while it is read."""
        rows = self.rows(split)
        return await rows.read(row) if isinstance(rows, StoredProblems) else rows[row]

    def prompts(self, split: Split) -> Iterator[Prompt]:
        """Yield those of all rows of a split."""
        return (self.prompt(split, row) for row in range(len(self.rows(split))))

    def row_of_seed(self, split: Split, seed: int) -> int:
        """Return the row that a seed means: `permutation(split)[seed mod size]`.

        The permutation is a Feistel network over the row's number, keyed by the data set's
        `shuffle_seed` and the split's name, so that it takes no memory and no library's random
        numbers; neighbouring seeds give different rows.
        """
        size = len(self.rows(split))
        if not size:
            raise ProtocolError("VALIDATION_ERROR", f"{self.name} has no rows in its {split} split")
        return _permuted(seed % size, size, f"{self.seed}/{split}")

    def check_row(self, split: Split, row: int) -> int:
        """Return the row, or say that it is out of range.

        Raises:
            ProtocolError: VALIDATION_ERROR.
        """
        size = len(self.rows(split))
        if not 0 <= row < size:
            raise ProtocolError(
                "VALIDATION_ERROR",
                f"row_index: expected 0 to {size - 1} in the {split} split, got {row}",
            )
        return row


def _permuted(number: int, size: int, key: str) -> int:
    """Return where a fixed pseudo-random permutation of `range(size)` takes a number."""
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half_bits) - 1
    while True:  # cycle walking: numbers beyond the size go round again; under 4 rounds on average
        left, right = number >> half_bits, number & mask
        for round_number in range(_ROUNDS):
            text = f"{key}/{round_number}/{right}".encode()
            mixed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
            left, right = right, left ^ (mixed & mask)
        number = left << half_bits | right
        if number < size:
            return number


def problem_of(row: Mapping[str, Any], default_id: str, columns: Columns) -> Problem:
    """Return the problem that a row describes.

    The columns are the text and `tests` (JSON, or JSON text, of `inputs`, `outputs` and perhaps
    `fn_name`); `problem_id`, `checker`, `solutions` and `wrong_solutions` where there are any.

    Raises:
        ValueError: It cannot be used; the text continues "a row …".
    """
    text = row.get(columns.question)
    if not isinstance(text, str):
        raise ValueError("without a problem text")  # noqa: TRY004 - as below
    tests = _json_column(row, columns.test, dict)
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise ValueError("without tests")
    if len(inputs) != len(outputs):
        raise ValueError("with unequal numbers of inputs and outputs")
    fn_name = tests.get("fn_name")
    return Problem(
        problem_id=_id_of(row, default_id),
        text=text,
        tests=tuple(map(Test, inputs, outputs)),
        fn_name=fn_name if isinstance(fn_name, str) and fn_name else None,
        checker=row.get("checker") or None,
        solutions=tuple(_json_column(row, "solutions", list)),
        wrong_solutions=tuple(_json_column(row, "wrong_solutions", list)),
    )


def _id_of(row: Mapping[str, Any], default_id: str) -> str:
    given = row.get("problem_id")
    return default_id if given is None else str(given)


def _json_column(row: Mapping[str, Any], name: str, kind: type) -> Any:
    value = row.get(name)
    if value is None:
        return kind()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(f"whose {name} cannot be parsed") from None
    if not isinstance(value, kind):
        raise ValueError(f"whose {name} cannot be parsed")  # noqa: TRY004 - one kind of dropped row
    return value


def text_digest(text: str) -> int:
    """Return a number of 64 bits for a text, the same however its blanks are spaced."""
    digest = hashlib.blake2b(
        " ".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=8
    ).digest()
    return int.from_bytes(digest, "big")
