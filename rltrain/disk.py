"""Bringing files to the disk, so that what is renamed into place is whole, whatever ends us."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["flush", "flush_tree"]


def flush(path: Path) -> None:
    """Bring a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_tree(folder: Path) -> None:
    """Bring a folder and all that is in it to the disk."""
    for path in [*folder.rglob("*"), folder]:
        flush(path)
