"""Data sets of the hub, Parquet files and saved folders, as Arrow files that can be mapped.

Owns the libraries `datasets` and `huggingface_hub`, which take seconds and 100 MB to load: the
server leaves this module to a child process of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from .rows import Source

__all__ = ["fetched", "mapped"]

_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(?:-\w+)?(\.\w+)")
_NO_LIBRARIES = "needs the libraries of the data extra: pip install '.[data]'"


def fetched(name: str, revision: str | None) -> Path:
    """Return the folder of a data set of the hub, fetched into its cache where that lacks it.

    Without network the cache's copy is taken.

    Raises:
        ConfigError: It cannot be had.
    """
    try:
        from huggingface_hub import constants, errors, snapshot_download
    except ModuleNotFoundError:
        raise ConfigError(f"data set {name}: {_NO_LIBRARIES}") from None
    what = f"data set {name}" + (f", revision {revision}" if revision else "")
    local = "give the path of a local copy as `dataset`"
    try:
        folder = Path(snapshot_download(name, repo_type="dataset", revision=revision))
    except errors.LocalEntryNotFoundError as error:
        reason = str(error.__cause__ or error).partition("\n")[0]
        raise ConfigError(
            f"{what}: the hub cannot be reached ({reason}) and the cache {constants.HF_HUB_CACHE} "
            f"has no copy of it: fetch it once with network, copy a cache there (HF_HOME names "
            f"another place), or {local}"
        ) from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(
            f"{what}: the hub has none of that name, or not for you: HF_TOKEN gives access to "
            f"private ones; or {local}"
        ) from None
    except errors.RevisionNotFoundError:
        raise ConfigError(f"{what}: the hub has no such revision") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}: cannot be fetched: {_first_line(error)}; {local}") from None
    _check_complete(folder, what)
    return folder


def _check_complete(folder: Path, what: str) -> None:
    """Refuse a copy of which shards are missing: a fetch that broke off leaves one.

    Raises:
        ConfigError: Shards are missing.
    """
    found: dict[tuple[str, str, int], set[int]] = {}
    for path in folder.rglob("*-of-*"):
        match = _SHARD.fullmatch(str(path.relative_to(folder)))
        if match:
            key = (match[1], match[4], int(match[3]))
            found.setdefault(key, set()).add(int(match[2]))
    for (stem, suffix, count), numbers in sorted(found.items()):
        if len(numbers) < count:
            raise ConfigError(
                f"{what}: the copy in {folder} has {len(numbers)} of {count} files {stem}-*{suffix}"
                ": it was not fetched to its end; fetch it again with network"
            )


def mapped(path: Path, *, revision: str = "") -> Source:
    """Return the Arrow files of a Parquet file, of a saved data set or of a folder as on the hub.

    Parquet is unpacked once, into the cache of `datasets`.

    Raises:
        ConfigError: It cannot be read.
    """
    try:
        import datasets
    except ModuleNotFoundError:
        raise ConfigError(f"data set {path}: {_NO_LIBRARIES}") from None
    try:
        loaded = _loaded(datasets, path)
        splits = {name: _files(path, each) for name, each in loaded.items()}
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = _first_line(error.__cause__ or error)
        raise ConfigError(f"data set {path}: cannot be read: {reason}") from None
    return Source(kind="arrow", splits=splits, revision=revision)


def _loaded(datasets: Any, path: Path) -> Mapping[str, Any]:
    if path.is_file():
        return dict(datasets.load_dataset("parquet", data_files=str(path)))
    if not (path / "dataset_dict.json").exists() and not (path / "state.json").exists():
        return dict(datasets.load_dataset(str(path)))
    saved = datasets.load_from_disk(str(path))
    if isinstance(saved, datasets.DatasetDict):
        return dict(saved)
    return {str(saved.split or "train"): saved}


def _files(path: Path, dataset: Any) -> tuple[str, ...]:
    files = tuple(os.path.realpath(file["filename"]) for file in dataset.cache_files)
    if not files and len(dataset):
        raise ConfigError(f"data set {path}: expected one that lies on disk")
    return files


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]
