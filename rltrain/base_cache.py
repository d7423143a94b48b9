"""The base as the trainer sees it, quantised and undone again, on disk for the sampler to load.

A sampler that has the original weights is another policy than a trainer whose base is rounded to
four bits. So the rounded weights are written out once, and kept under a key of all that decides
them: the model's revision, the quantisation, the device and the libraries' versions.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from .disk import flush_tree
from .errors import SetupError
from .manifest import Algorithm, Network
from .models import compute_dtype, model_revision, model_shape, save_dequantised

__all__ = ["default_cache", "dequantised_base"]

_LIBRARIES = ("torch", "transformers", "bitsandbytes")
_FACTS = "base.json"


def default_cache() -> Path:
    """Return `~/.cache/rltrain`, or where XDG_CACHE_HOME says."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rltrain"


def dequantised_base(
    network: Network,
    algorithm: Algorithm,
    *,
    device: torch.device,
    cache: Path,
    say: Callable[[str], None],
) -> Path:
    """Return the folder of the dequantised base, made if it is not there yet.

    Args:
        network: Names the model.
        algorithm: Says how the trainer quantises it.
        device: Where the trainer quantises it.
        cache: The folder of all bases.
        say: Shows a line.

    Raises:
        SetupError: The model cannot be loaded, or the disk has no room.
    """
    facts = _facts(network, algorithm, device)
    key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", Path(network.pretrained_model_name_or_path).name)
    final = cache / f"{name}-{key}"
    if (final / _FACTS).exists():
        return final
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{key}.lock", say):
            if not (final / _FACTS).exists():
                _write(network, algorithm, device, final, facts, say)
    except OSError as error:
        raise SetupError(f"--cache-dir {cache}: cannot be written: {error}") from error
    return final


def _facts(network: Network, algorithm: Algorithm, device: torch.device) -> dict[str, Any]:
    """Return all that decides the weights."""
    quantization = algorithm.quantization
    return {
        "model": network.pretrained_model_name_or_path,
        "revision": model_revision(network.pretrained_model_name_or_path),
        "quantization": quantization if isinstance(quantization, str) else dict(quantization),
        "device": device.type,
        "versions": {library: version(library) for library in _LIBRARIES},
    }


def _write(
    network: Network,
    algorithm: Algorithm,
    device: torch.device,
    final: Path,
    facts: dict[str, Any],
    say: Callable[[str], None],
) -> None:
    """Write beside and rename, so that a kill at any moment leaves a whole base or none."""
    size = model_shape(network).parameters * compute_dtype(device).itemsize
    free = shutil.disk_usage(final.parent).free
    if free < size:
        raise SetupError(
            f"--cache-dir {final.parent}: {_gib(size)} needed for the dequantised base, "
            f"{_gib(free)} free: make room, or name another folder"
        )
    for abandoned in final.parent.glob(f".partial-{final.name}-*"):  # the lock is ours
        shutil.rmtree(abandoned)
    partial = final.with_name(f".partial-{final.name}-{os.getpid()}")
    began = time.monotonic()
    say(f"Base: writing the dequantised model for vLLM, {_gib(size)}, once, to {final}")
    try:
        save_dequantised(network, algorithm, device=device, folder=partial)
        (partial / _FACTS).write_text(json.dumps(facts, indent=2) + "\n")
        flush_tree(partial)
        partial.rename(final)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    say(f"Base: written in {time.monotonic() - began:.0f} s")


@contextmanager
def _locked(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock among the processes of this machine; say so where it has to be waited for."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Base: another process is writing the dequantised model: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _gib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB"
