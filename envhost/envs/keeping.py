"""How an environment is kept: where it runs and what it may use.

Owns the options that the server takes out of `--env-config` before the entrypoint sees it:
`run_in`, `session_memory_bytes` and `sandbox_readable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ..errors import ConfigError
from .template import Wanted
from .worker import WorkerEnvironments

__all__ = ["Keeping", "kept_apart", "take_keeping"]

_PLACES = ("process", "sandbox", "thread")
_MEMORY_BYTES = 4 * 1024**3


@frozen(kw_only=True)
class Keeping:
    """Where an environment runs; `run_in` None leaves it to what the environment is."""

    run_in: str | None
    session_memory_bytes: int
    sandbox_readable: tuple[str, ...]


def take_keeping(options: dict[str, Any]) -> Keeping:
    """Take our own options out of an environment's.

    Raises:
        ConfigError: One of them has a wrong value.
    """
    run_in = options.pop("run_in", None)
    if run_in is not None and run_in not in _PLACES:
        raise ConfigError(f"run_in: expected one of {', '.join(_PLACES)}, got {run_in!r:.60}")
    limit = options.pop("session_memory_bytes", _MEMORY_BYTES)
    if type(limit) is not int or limit < 0:
        raise ConfigError(
            f"session_memory_bytes: expected a number of bytes, 0 for no limit, got {limit!r:.60}"
        )
    readable = options.pop("sandbox_readable", [])
    if not isinstance(readable, list) or not all(isinstance(path, str) for path in readable):
        raise ConfigError(f"sandbox_readable: expected a list of paths, got {readable!r:.60}")
    if readable and run_in != "sandbox":
        raise ConfigError('sandbox_readable: only of use with "run_in": "sandbox"')
    return Keeping(run_in=run_in, session_memory_bytes=limit, sandbox_readable=tuple(readable))


def kept_apart(
    entrypoint: str, options: Mapping[str, Any], keeping: Keeping, *, description: str = ""
) -> WorkerEnvironments:
    """Return the factory of environments that run in a process each."""
    wanted = Wanted(
        entrypoint=entrypoint,
        options=options,
        is_sandboxed=keeping.run_in == "sandbox",
        readable=keeping.sandbox_readable,
        memory_limit_bytes=keeping.session_memory_bytes,
    )
    return WorkerEnvironments(wanted, name=entrypoint, description=description)
