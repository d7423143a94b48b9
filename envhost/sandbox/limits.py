"""What one run of a program may use, and what came of it."""

from __future__ import annotations

from attrs import field, frozen

__all__ = ["CellLimits", "Ending", "Outcome", "Program"]

MIB = 1024 * 1024

# How a run ended: by itself, or which limit cut it.
Ending = str
EXITED, CPU, WALL, OUTPUT, STARVED = "exited", "cpu", "wall", "output", "starved"


@frozen(kw_only=True)
class CellLimits:
    """Bounds on one run; the CPU time is that of the program's whole process tree."""

    cpu_limit_seconds: float = 10.0
    wall_limit_seconds: float = 60.0
    memory_limit_bytes: int = 1024 * MIB
    output_limit_bytes: int = 16 * MIB
    tmp_limit_bytes: int = 64 * MIB
    process_limit: int = 64


@frozen(kw_only=True)
class Program:
    """What to run: a source text and what it reads.

    `fn_name` set means a call: `stdin` is then the JSON list of arguments, and the run's `stdout`
    is the return value as JSON, kept apart from what the program prints. `files` become read-only
    files below `/cell`, and `arguments` are the program's `sys.argv[1:]`.
    """

    source: bytes
    stdin: bytes
    fn_name: str | None = None
    files: tuple[tuple[str, bytes], ...] = ()
    arguments: tuple[str, ...] = ()


@frozen(kw_only=True)
class Outcome:
    """What came of a run.

    `exit_code` is the program's own, negative for a signal, and None where a limit of ours ended
    the run or it never began (`is_compiled` False: nothing of it was run).
    """

    ending: Ending
    exit_code: int | None
    is_compiled: bool
    stdout: bytes = field(repr=False)
    stderr_tail: bytes = field(repr=False)
    cpu_seconds: float
    wall_seconds: float
    peak_memory_bytes: int
    is_out_of_memory: bool = False
