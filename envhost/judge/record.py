"""The record: one JSON line for each program that was judged, in files that are kept in number.

Owns the files and their format. Writing is a thread's work behind a bounded queue, so that a slow
disk delays no session, and a full one costs lines of the record and nothing else. A line is written
at once and taken back where only part of it fits; what a kill cuts short is a file's last line,
since each start begins a new file.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import queue
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from attrs import asdict, field, fields, frozen

from ..errors import ConfigError
from ..telemetry import log_event

__all__ = ["Record", "Recorded", "open_record", "read_record"]

FILE_BYTES = 64 * 1024 * 1024
FILE_COUNT = 16
_WAITING_ENTRIES = 256
_FLUSH_SECONDS = 5.0
_PATTERN = "programs-*.jsonl"


@frozen(kw_only=True)
class Recorded:
    """One judged program.

    `result` is the step's metadata (`verdict`, `tests_passed`, `cpu_seconds`, …; `verdict` IE and a
    reward of None where we failed to judge it), and `options` are those of the environment that
    decide it.
    """

    time: str
    """When it was judged: UTC, ISO 8601."""
    session: str
    dataset: str
    split: str
    row_index: int
    problem_id: str
    seed: int | None
    reward: float | None
    result: Mapping[str, Any]
    options: Mapping[str, Any]
    program: str = field(repr=False)

    @property
    def verdict(self) -> str:
        """The verdict's name."""
        return str(self.result["verdict"])


class Record:
    """Takes entries and writes them in a thread; `open_record` makes it."""

    def __init__(self, files: _Files) -> None:
        self._files = files
        self._waiting: queue.Queue[Recorded | None] = queue.Queue(_WAITING_ENTRIES)
        self._lost = 0
        self._is_failing = False
        self._thread = threading.Thread(target=self._write_all, name="record", daemon=True)
        self._thread.start()

    def add(self, entry: Recorded) -> None:
        """Write an entry soon; a disk that is full or too slow loses it, and the log says so."""
        try:
            self._waiting.put_nowait(entry)
        except queue.Full:
            self._lose("the disk is too slow")

    async def end(self) -> None:
        """Write what waits, for some seconds at most, and close the file."""

        def end() -> None:
            self._waiting.put(None)
            self._thread.join()

        with trio.move_on_after(_FLUSH_SECONDS, shield=True):
            await trio.to_thread.run_sync(end, abandon_on_cancel=True)

    def _write_all(self) -> None:
        while (entry := self._waiting.get()) is not None:
            # Escaped to ASCII: a program may hold anything, lone surrogates too.
            line = json.dumps(asdict(entry, recurse=False)).encode() + b"\n"
            try:
                self._files.append(line)
            except OSError as error:
                self._lose(f"{self._files.directory}: {error.strerror}")
                continue
            if self._is_failing:
                log_event("record.resumed", logging.WARNING, lost=self._lost)
                self._is_failing, self._lost = False, 0
        self._files.close()

    def _lose(self, reason: str) -> None:
        self._lost += 1
        if not self._is_failing:
            self._is_failing = True
            log_event("record.failing", logging.ERROR, reason=reason)


class _Files:
    """Numbered files in a directory; the newest is written to, the oldest are removed."""

    def __init__(self, directory: Path, *, file_bytes: int, file_count: int) -> None:
        self.directory = directory
        self._file_bytes = file_bytes
        self._file_count = file_count
        self._lock_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._path, self._fd = self._next()
        except OSError:
            os.close(self._lock_fd)
            raise
        self._size_bytes = 0

    def append(self, line: bytes) -> None:
        """Write a whole line or none of it."""
        if self._size_bytes and self._size_bytes + len(line) > self._file_bytes:
            path, fd = self._next()
            os.close(self._fd)
            self._path, self._fd, self._size_bytes = path, fd, 0
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            os.ftruncate(self._fd, self._size_bytes)
            raise
        self._size_bytes += len(line)

    def close(self) -> None:
        """Close the file, and leave none that is empty."""
        os.close(self._fd)
        if not self._size_bytes:
            self._path.unlink(missing_ok=True)
        os.close(self._lock_fd)

    def _next(self) -> tuple[Path, int]:
        known = sorted(self.directory.glob(_PATTERN))
        number = int(known[-1].stem.rpartition("-")[2]) + 1 if known else 1
        path = self.directory / f"programs-{number:06}.jsonl"
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        for old in known[: len(known) + 1 - self._file_count]:
            old.unlink(missing_ok=True)
        return path, fd


@asynccontextmanager
async def open_record(
    directory: str | None, *, file_bytes: int = FILE_BYTES, file_count: int = FILE_COUNT
) -> AsyncIterator[Record | None]:
    """Open a record in a directory, made where it is missing; None for no directory.

    A file that has reached `file_bytes` is followed by a new one; `file_count` are kept.

    Raises:
        ConfigError: It cannot be written to, or another server records there.
    """
    if directory is None:
        yield None
        return
    record = Record(_open_files(Path(directory), file_bytes, file_count))
    try:
        yield record
    finally:
        await record.end()


def _open_files(directory: Path, file_bytes: int, file_count: int) -> _Files:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return _Files(directory, file_bytes=file_bytes, file_count=file_count)
    except BlockingIOError:
        raise ConfigError(f"--record {directory}: another server records there") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"--record {directory}: cannot be written to: {error}") from None


def read_record(place: Path) -> Iterator[Recorded]:
    """Read a record's directory, oldest first, or one file of it.

    A last line that was cut short is left out.

    Raises:
        ConfigError: There is no record, or a line is none of ours.
    """
    paths = sorted(place.glob(_PATTERN)) if place.is_dir() else [place]
    if not paths:
        raise ConfigError(f"record {place}: expected files {_PATTERN}, found none")
    for path in paths:
        try:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, 1):
                    if line.endswith(b"\n"):
                        yield _entry(line, f"{path}, line {number}")
        except OSError as error:
            raise ConfigError(f"record {path}: {error.strerror}") from None


_NAMES = frozenset(attribute.name for attribute in fields(Recorded))


def _entry(line: bytes, where: str) -> Recorded:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{where}: expected JSON: {error}") from None
    if not isinstance(values, dict) or not values.keys() >= _NAMES:
        raise ConfigError(f"{where}: expected an object with the keys {', '.join(sorted(_NAMES))}")
    if not isinstance(values["result"], dict) or "verdict" not in values["result"]:
        raise ConfigError(f"{where}: expected a verdict in result")
    return Recorded(**{name: values[name] for name in _NAMES})
