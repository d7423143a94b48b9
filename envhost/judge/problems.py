"""Problems and their tests: loading, splits, and which row a seed means.

Owns the data format and the rules of sampling; every function of a seed here is fixed for good, the
same in every session, process, host and release. Knows nothing of running programs.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from ..errors import ConfigError, ProtocolError

__all__ = ["Problem", "ProblemSet", "Split", "Test", "load_problems"]

Split = Literal["train", "test"]

_BUNDLED = Path(__file__).parent.parent / "problems"
_TRAINING_NAMES = frozenset(("train", "training"))
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


@frozen(kw_only=True)
class ProblemSet:
    """A data set split in two; rows count within their split.

    `report` says in one line what was loaded and what was dropped, and why.
    """

    name: str
    training: tuple[Problem, ...]
    evaluation: tuple[Problem, ...]
    report: str
    seed: int = 0
    files: tuple[Path, ...] = ()
    """Where it lies on this machine: programs must not see it."""
    dropped: tuple[tuple[str, str], ...] = ()
    """The id of each row that cannot be used, and why."""

    def rows(self, split: Split) -> tuple[Problem, ...]:
        """Return the problems of a split."""
        return self.training if split == "train" else self.evaluation

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


def load_problems(
    dataset: str,
    *,
    evaluation_fraction: float = 0.1,
    max_rows: int | None = None,
    shuffle_seed: int = 0,
) -> ProblemSet:
    """Load `bundled:NAME` or a JSON-lines file.

    A line has `problem` (text) and `tests` (JSON of `inputs`, `outputs` and perhaps `fn_name`);
    `problem_id`, `split`, `checker`, `solutions` and `wrong_solutions` where there are any. A
    `split` column decides the split; otherwise a share of the *texts* is held out by their hash, so
    that identical texts always fall into the same split.

    Raises:
        ConfigError: No such data set, or no row of it can be used.
    """
    path = _path_of(dataset)
    rows = _read_lines(path, max_rows)
    kept: dict[Split, list[Problem]] = {"train": [], "test": []}
    dropped: list[tuple[str, str]] = []
    for number, row in rows:
        default_id = f"{path.name}/{number}"
        try:
            problem = _problem(row, default_id)
        except ValueError as error:
            dropped.append((str(row.get("problem_id", default_id)), str(error)))
            continue
        kept[_split(row, problem.text, evaluation_fraction)].append(problem)
    tests = sum(len(problem.tests) for split in kept.values() for problem in split)
    report = (
        f"{dataset}: {len(kept['train'])} training and {len(kept['test'])} held-out rows, "
        f"{tests} tests"
    )
    if dropped:
        counts = Counter(reason for _, reason in dropped).most_common(5)
        reasons = ", ".join(f"{count} {reason}" for reason, count in counts)
        report += f"; dropped {len(dropped)} rows: {reasons}"
    if not tests:
        raise ConfigError(f"data set {report}: nothing is left to serve")
    return ProblemSet(
        name=dataset,
        training=tuple(kept["train"]),
        evaluation=tuple(kept["test"]),
        report=report,
        seed=shuffle_seed,
        files=(path,),
        dropped=tuple(dropped),
    )


def _path_of(dataset: str) -> Path:
    kind, separator, name = dataset.partition(":")
    if separator and kind == "bundled":
        path = _BUNDLED / f"{name}.jsonl"
        if not path.is_file():
            known = ", ".join(sorted(f"bundled:{path.stem}" for path in _BUNDLED.glob("*.jsonl")))
            raise ConfigError(f"data set {dataset!r}: expected one of {known}")
        return path
    path = Path(dataset)
    if path.suffix not in {".jsonl", ".json"}:
        raise ConfigError(
            f"data set {dataset!r}: expected bundled:NAME or the path of a .jsonl file"
        )
    if not path.is_file():
        raise ConfigError(f"data set {dataset!r}: no such file")
    return path


def _read_lines(path: Path, max_rows: int | None) -> Iterable[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if max_rows is not None and number >= max_rows:
                return
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{path}, line {number + 1}: expected JSON: {error}") from None
            if not isinstance(row, dict):
                raise ConfigError(f"{path}, line {number + 1}: expected a JSON object")
            yield number, row


def _problem(row: Mapping[str, Any], default_id: str) -> Problem:
    text = row.get("problem")
    if not isinstance(text, str):
        raise ValueError("without a problem text")  # noqa: TRY004 - as below
    tests = _json_column(row, "tests", dict)
    inputs, outputs = tests.get("inputs"), tests.get("outputs")
    if not isinstance(inputs, list) or not isinstance(outputs, list) or not inputs:
        raise ValueError("without tests")
    if len(inputs) != len(outputs):
        raise ValueError("with unequal numbers of inputs and outputs")
    fn_name = tests.get("fn_name")
    return Problem(
        problem_id=str(row.get("problem_id", default_id)),
        text=text,
        tests=tuple(map(Test, inputs, outputs)),
        fn_name=fn_name if isinstance(fn_name, str) and fn_name else None,
        checker=row.get("checker") or None,
        solutions=tuple(_json_column(row, "solutions", list)),
        wrong_solutions=tuple(_json_column(row, "wrong_solutions", list)),
    )


def _json_column(row: Mapping[str, Any], name: str, kind: type) -> Any:
    value = row.get(name)
    if value is None:
        return kind()
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise ValueError(f"whose {name} cannot be parsed") from None
    if not isinstance(value, kind):
        raise ValueError(f"whose {name} cannot be parsed")  # noqa: TRY004 - one kind of dropped row
    return value


def _split(row: Mapping[str, Any], text: str, evaluation_fraction: float) -> Split:
    if row.get("split") is not None:
        return "train" if row["split"] in _TRAINING_NAMES else "test"
    digest = hashlib.blake2b(" ".join(text.split()).encode(), digest_size=8).digest()
    share = int.from_bytes(digest, "big") / 2**64
    return "test" if share < evaluation_fraction else "train"
