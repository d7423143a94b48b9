"""One pass over the rows of a data set: which can be used, where they are, why others cannot.

Owns the pass and the cache of its findings. Rows are looked at one by one and let go, so that it
takes as much memory as the largest row does; a pass of more than a second is written down under a
fingerprint of the files, and not done again while they stay the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import asdict, field, frozen

from .problems import Columns, Rows, problem_of, text_digest

__all__ = ["OnProgress", "Scan", "scanned"]

OnProgress = Callable[[str, int], None]
"""Called with what is being done, and every few seconds with how many rows that is done to."""

_FORMAT = 1
_PROGRESS_SECONDS = 5.0
_WORTH_KEEPING_SECONDS = 1.0


@frozen(kw_only=True)
class Scan:
    """What a pass found: for each row that can be used one entry in each list."""

    places: list[int] = field(factory=list)
    numbers: list[int] = field(factory=list)
    digests: list[int] = field(factory=list)
    """Of the texts, the same for texts that differ in blanks alone."""
    tests: list[int] = field(factory=list)
    splits: list[str | None] = field(factory=list)
    """What the column `split` says."""
    dropped: list[tuple[str, str]] = field(factory=list)
    """The id of each row that cannot be used, and why."""

    def add(self, place: int, number: int, digest: int, tests: int, split: str | None) -> None:
        """Note a row that can be used."""
        self.places.append(place)
        self.numbers.append(number)
        self.digests.append(digest)
        self.tests.append(tests)
        self.splits.append(split)


def scanned(
    rows: Rows,
    files: Sequence[str],
    *,
    columns: Columns,
    name: str,
    max_rows: int | None,
    on_progress: OnProgress,
) -> Scan:
    """Look at every row, or take what an earlier pass over the same files found.

    Args:
        rows: What `files` hold.
        files: What the fingerprint is of; a folder's is not that of its files, so that none are
            kept of folders.
        columns: Where text and tests are.
        name: What the ids of rows without one begin with.
        max_rows: How many of the first rows to look at; None for all.
        on_progress: See `OnProgress`.
    """
    kept = _kept_at(files, columns, name, max_rows)
    if kept is not None and (found := _read(kept)) is not None:
        return found
    started = time.monotonic()
    found = _scan(rows, columns, name, max_rows, on_progress)
    if kept is not None and time.monotonic() - started > _WORTH_KEEPING_SECONDS:
        _write(kept, found)
    return found


def _scan(
    rows: Rows, columns: Columns, name: str, max_rows: int | None, on_progress: OnProgress
) -> Scan:
    scan = Scan()
    told = time.monotonic()
    for number, (place, row) in enumerate(rows):
        if number == max_rows:
            break
        default_id = f"{name}/{number}"
        try:
            problem = problem_of(row, default_id, columns)
        except ValueError as error:
            given = row.get("problem_id")
            scan.dropped.append((default_id if given is None else str(given), str(error)))
        else:
            split = row.get("split")
            digest = text_digest(problem.text)
            named = None if split is None else str(split)
            scan.add(place, number, digest, len(problem.tests), named)
        if time.monotonic() - told > _PROGRESS_SECONDS:
            told = time.monotonic()
            on_progress("reading", number + 1)
    return scan


def _kept_at(
    files: Sequence[str], columns: Columns, name: str, max_rows: int | None
) -> Path | None:
    """Return where the findings of a pass are kept; None where they are not."""
    parts: list[Any] = [_FORMAT, columns.question, columns.test, name, max_rows]
    try:
        for file in files:
            if not os.path.isfile(file):  # noqa: PTH113 - a text already
                return None
            stat = os.stat(file)  # noqa: PTH116 - a text already
            parts.append((os.path.realpath(file), stat.st_size, stat.st_mtime_ns))
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except (OSError, RuntimeError):  # RuntimeError: nobody's home
        return None
    digest = hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()
    return home / "envhost" / "scans" / f"{digest}.json"


def _read(path: Path) -> Scan | None:
    try:
        values = json.loads(path.read_bytes())
        values["dropped"] = [(id_, why) for id_, why in values["dropped"]]
        return Scan(**values)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(path: Path, scan: Scan) -> None:
    """Keep the findings; a cache that cannot be written to costs the next start a pass."""
    temporary = path.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(scan)))
        temporary.replace(path)
