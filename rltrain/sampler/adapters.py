"""The adapter's way from the trainer to the sampler: a fresh folder in memory for each version.

A version has an id, a name and a path that no other had: engines key their caches by them. Old
versions are removed, and so is what a killed run left behind.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

from .turns import Adapter

__all__ = ["MEMORY", "Adapters", "round_up_rank"]

MEMORY = Path("/dev/shm")
"""Where a file system in memory usually is; `TMPDIR` where it is missing or too small."""

_PREFIX = "rltrain-adapter-"
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)


def round_up_rank(rank: int) -> int:
    """Return the least rank that engines have kernels for and that holds this one.

    Raises:
        ValueError: There is none.
    """
    for known in _RANKS:
        if rank <= known:
            return known
    raise ValueError(f"expected a LoRA rank of at most {_RANKS[-1]}, got {rank}")


class Adapters:
    """Versions of one run's adapter, of which the newest is on the disk.

    Args:
        save: Writes the adapter into a folder.
        adapter_bytes: How large it is about.
        memory: Where to put it if it fits.
    """

    def __init__(
        self, save: Callable[[Path], None], *, adapter_bytes: int, memory: Path = MEMORY
    ) -> None:
        self._save = save
        self._version = 0
        folder = _fresh_folder(memory, 3 * adapter_bytes)
        self._lock = (folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        # Under this name it is looked at by other runs: only now that it is locked.
        self._folder = folder.rename(folder.with_name(f"{_PREFIX}{folder.name.lstrip('.')}"))

    def write(self) -> Adapter:
        """Write the adapter as it is now, and drop the version before."""
        self._version += 1
        path = self._folder / f"v{self._version}"
        self._save(path)
        shutil.rmtree(self._folder / f"v{self._version - 1}", ignore_errors=True)
        return Adapter(self._version, str(path))

    def close(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _fresh_folder(memory: Path, needed_bytes: int) -> Path:
    """Return a new folder in memory, or in the temporary folder where memory has no room."""
    place: Path | None = None
    if memory.is_dir() and os.access(memory, os.W_OK):
        _remove_abandoned(memory)
        if shutil.disk_usage(memory).free >= needed_bytes:
            place = memory
    return Path(tempfile.mkdtemp(prefix=".", dir=place))


def _remove_abandoned(memory: Path) -> None:
    """Remove the folders whose runs are dead: their locks are free."""
    for folder in memory.glob(f"{_PREFIX}*"):
        try:
            with (folder / "lock").open("r+") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # it is held, just being made, or another user's
            continue
