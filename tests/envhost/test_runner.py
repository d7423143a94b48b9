"""A program in a cell behaves as under a plain interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import bwrap_cells
from envhost.sandbox.limits import CellLimits, Outcome, Program


async def run(source: str, stdin: bytes = b"", **more: object) -> Outcome:
    """Run a program in a cell."""
    program = Program(source=source.encode(), stdin=stdin, **more)  # type: ignore[arg-type]
    async with bwrap_cells(find_interpreter(None)) as cells:
        return await cells.run(program, CellLimits())


POOL = """\
import multiprocessing
def double(n): return 2 * n
if __name__ == '__main__':
    with multiprocessing.get_context('fork').Pool(2) as pool:
        print(pool.map(double, [1, 2]))
"""
MANAGER = """\
import multiprocessing
if __name__ == '__main__':
    with multiprocessing.Manager() as manager:
        print(list(manager.list([1, 2])))
"""
THREAD = """\
import threading, time
threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()
print('first')
"""
FACTS = {
    "the main module": ("import __main__; print(__main__.__name__, __name__)", "__main__ __main__"),
    "its names": ("x = 1; import __main__; print(__main__.x)", "1"),
    "its file": ("print(__file__.rpartition('/')[2])", "main.py"),
    "its arguments": ("import sys; print(len(sys.argv), sys.argv[0] == __file__)", "1 True"),
    "exit and quit": ("print(callable(exit), callable(quit))", "True True"),
    "the recursion limit": ("import sys; print(sys.getrecursionlimit())", "1000"),
    "a writable directory": ("open('x', 'w').write('y'); print(open('x').read())", "y"),
    "the encoding": ("import sys; print(sys.stdout.encoding, 'é')", "utf-8 é"),
    "no terminal": ("import sys; print(sys.stdin.isatty(), sys.stdout.isatty())", "False False"),
    "pickle": (
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
        "True",
    ),
    "typing": (
        "from typing import get_type_hints\nclass A: x: 'int'\nprint(get_type_hints(A))",
        "{'x': <class 'int'>}",
    ),
    "multiprocessing": (POOL, "[2, 4]"),
    "asyncio": ("import asyncio\nasync def main(): print(1)\nasyncio.run(main())", "1"),
    "a manager": (MANAGER, "[1, 2]"),
    "threads are joined": (THREAD, "first\nlate"),
    "descriptors": ("import os; print(len(os.listdir('/proc/self/fd')))", "4"),  # the listing's own
    "niceness": ("import os; print(os.nice(0))", "10"),
    "no core files": ("import resource; print(resource.getrlimit(resource.RLIMIT_CORE))", "(1, 1)"),
    "a large input": ("import sys; print(len(sys.stdin.read()))", "3000000"),
}


@pytest.mark.parametrize("fact", FACTS)
async def test_facts(fact: str) -> None:
    """What a program can see of its interpreter is as usual."""
    source, expected = FACTS[fact]
    outcome = await run(source, stdin=b"x" * 3_000_000)
    assert outcome.exit_code == 0, outcome.stderr_tail
    assert outcome.stdout.decode().strip() == expected


@pytest.mark.parametrize(
    ("source", "exit_code"),
    [
        ("", 0),
        ("raise SystemExit", 0),
        ("raise SystemExit(None)", 0),
        ("raise SystemExit(5)", 5),
        ("raise SystemExit('text')", 1),
        ("exit(6)", 6),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.abort()", -6),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("import sys; sys.stdout.close(); import os; os.close(1)", 0),
        ("import os; os.close(1); print(5)", 120),  # the flush at the end fails
    ],
)
async def test_exit_codes(source: str, exit_code: int) -> None:
    """The exit code is the program's own, negative for a signal."""
    assert (await run(source)).exit_code == exit_code


async def test_the_same_each_time() -> None:
    """A program that depends on hashes prints the same each time it is run."""
    source = "print(hash('text'), {*'abcdef'})"
    assert (await run(source)).stdout == (await run(source)).stdout


async def test_a_traceback_names_the_line() -> None:
    """The error output shows where the program failed."""
    outcome = await run("x = 1\nraise ValueError('here')\n")
    assert b'main.py", line 2' in outcome.stderr_tail
    assert outcome.stderr_tail.endswith(b"ValueError: here\n")


async def test_packages_of_the_interpreter() -> None:
    """What is installed with the interpreter can be imported; no file there is run for that."""
    outcome = await run("import sys; print(sys.path[-2:]); import site_packages_are_read")
    assert b"site-packages" in outcome.stdout
    assert b"ModuleNotFoundError" in outcome.stderr_tail
    packages = f"{sys.base_prefix}/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    if not Path(packages, "site-packages", "pip").exists():
        pytest.skip("the interpreter has no pip beside it to import")
    assert (await run("import pip")).exit_code == 0


async def test_files_and_arguments() -> None:
    """Files are read-only and named by the arguments."""
    source = (
        "import sys\nfor path in sys.argv[1:]: print(open(path).read())\nopen(sys.argv[1], 'a')"
    )
    given = (("one", b"1"), ("two", b"2"))
    outcome = await run(source, files=given, arguments=("two", "one"))
    assert outcome.stdout == b"2\n1\n"
    assert b"Read-only file system" in outcome.stderr_tail or b"Permission" in outcome.stderr_tail


async def test_what_does_not_compile_is_not_run() -> None:
    """A syntax error is told from a failure, and its text is in the error output."""
    outcome = await run("print(1)\nif")
    assert not outcome.is_compiled
    assert outcome.stdout == b""
    assert outcome.stderr_tail.startswith(b"SyntaxError: ")


async def test_times_and_memory() -> None:
    """CPU time, wall time and peak memory are the program's, children included."""
    outcome = await run(
        "import os, time\n"
        "held = bytearray(b'x') * (50 << 20)\n"
        "if not os.fork():\n"
        "    while time.process_time() < 0.2: pass\n"
        "    os._exit(0)\n"
        "os.wait(); time.sleep(0.1)"
    )
    assert 0.2 <= outcome.cpu_seconds < 0.6
    assert outcome.wall_seconds >= 0.3
    assert outcome.peak_memory_bytes > 50 << 20
