"""Data sets as they lie on disk: JSON lines, Arrow files, folders of tests.

Owns pyarrow, which is loaded for Arrow files alone. Nothing is kept in memory but where rows are:
a row is read each time that it is asked for, out of the page cache that all processes share.
"""

from __future__ import annotations

import json
import mmap
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import frozen

from ..errors import ConfigError
from .problems import Columns, Rows

__all__ = ["RowsKind", "Source", "open_rows"]

_MOST_MAPPED_BYTES = 64 * 1024 * 1024
_AROUND_BYTES = 2 * 1024 * 1024
"""What the kernel maps beside what is read: up to a large folio of the page cache."""

RowsKind = Literal["lines", "arrow", "folders"]


@frozen(kw_only=True)
class Source:
    """Where the rows of a data set are: the files of each of its splits, by the split's name."""

    kind: RowsKind
    splits: Mapping[str, tuple[str, ...]]
    revision: str = ""
    """Of the hub: the commit that the files are of, where it is known."""


def open_rows(kind: RowsKind, files: Sequence[str], columns: Columns) -> Rows:
    """Open the rows of some files.

    Raises:
        ConfigError: A file is not there, or none of its kind.
    """
    if kind == "lines":
        (path,) = files
        return _Lines(Path(path))
    if kind == "arrow":
        return _Arrow(files)
    return _Folders([Path(path) for path in files], columns)


class _Lines:
    """A JSON object on each line; a place is the offset where a line begins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigError(f"data set {path}: {error.strerror}") from None
        weakref.finalize(self, self._file.close)

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        place = 0
        with self._path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ConfigError(
                        f"{self._path}, line {number}: expected JSON: {error}"
                    ) from None
                if not isinstance(row, dict):
                    raise ConfigError(f"{self._path}, line {number}: expected a JSON object")
                yield place, row
                place += len(line)

    def at(self, place: int, names: Sequence[str] | None = None) -> Mapping[str, Any]:
        self._file.seek(place)
        row: Mapping[str, Any] = json.loads(self._file.readline())
        return row


class _Arrow:
    """Arrow files, mapped into memory; a place is the number of a row."""

    def __init__(self, files: Sequence[str]) -> None:
        try:
            import pyarrow as pa
            import pyarrow.ipc
        except ModuleNotFoundError:
            raise ConfigError(
                "this data set needs the libraries of the data extra: pip install '.[data]'"
            ) from None
        self._maps = [_map(name) for name in files]
        buffers = map(pa.py_buffer, self._maps)
        table = pa.concat_tables([pyarrow.ipc.open_stream(each).read_all() for each in buffers])
        self._size = table.num_rows
        self._columns = {name: table.column(name) for name in table.column_names}
        self._mapped_bytes = 0

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return ((place, self.at(place)) for place in range(self._size))

    def at(self, place: int, names: Sequence[str] | None = None) -> Mapping[str, Any]:
        wanted = self._columns if names is None else self._columns.keys() & {*names}
        row = {name: self._columns[name][place].as_py() for name in wanted}
        texts = (value for value in row.values() if isinstance(value, str))
        self._mapped_bytes += _AROUND_BYTES + sum(map(len, texts))
        if self._mapped_bytes > _MOST_MAPPED_BYTES:
            # Else what was read once would count as this process's memory until it is scarce.
            for each in self._maps:
                each.madvise(mmap.MADV_DONTNEED)
            self._mapped_bytes = 0
        return row


def _map(name: str) -> mmap.mmap:
    with Path(name).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class _Folders:
    """A folder for each problem, with `problem.md`, `N.in`, `N.out` and perhaps `checker.py`."""

    def __init__(self, folders: Sequence[Path], columns: Columns) -> None:
        self._folders = folders
        self._columns = columns

    def __iter__(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        return ((place, self.at(place)) for place in range(len(self._folders)))

    def at(self, place: int, names: Sequence[str] | None = None) -> Mapping[str, Any]:
        folder = self._folders[place]
        row: dict[str, Any] = {
            "problem_id": folder.name,
            self._columns.question: _text(folder / "problem.md"),
        }
        if names is None or self._columns.test in names:
            row[self._columns.test] = _pairs(folder)
            row["checker"] = _text(folder / "checker.py")
        return row


def _pairs(folder: Path) -> Mapping[str, Any]:
    """Return the tests of a folder; none has an output where the half of one is missing."""
    names = sorted(
        {path.stem for path in folder.iterdir() if path.suffix in {".in", ".out"}},
        key=lambda name: (not name.isdecimal(), len(name) if name.isdecimal() else 0, name),
    )
    inputs = [_text(folder / f"{name}.in") for name in names]
    outputs = [_text(folder / f"{name}.out") for name in names]
    return {"inputs": inputs, "outputs": [] if None in {*inputs, *outputs} else outputs}


def _text(path: Path) -> str | None:
    """Return a file's text; None where there is no file, and where it is no text."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None
