"""Warm cells: faithful as cold ones, replaced when anything went wrong, refused where unproven."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import test_runner
import trio
from test_runner import (  # noqa: F401 - all of them once more, in warm cells
    test_a_traceback_names_the_line,
    test_exit_codes,
    test_facts,
    test_files_and_arguments,
    test_packages_of_the_interpreter,
    test_the_same_each_time,
    test_times_and_memory,
    test_what_does_not_compile_is_not_run,
)

from envhost.envs.code_options import checked_options
from envhost.errors import ConfigError, NotScored
from envhost.judge.judging import JudgeRules
from envhost.judge.opening import open_judge
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case
from envhost.process import children, descendants
from envhost.sandbox import run, warm
from envhost.sandbox.bwrap import Interpreter, find_interpreter
from envhost.sandbox.limits import CPU, EXITED, OUTPUT, CellLimits, Outcome, Program
from envhost.sandbox.warm import warm_cells

LIMITS = CellLimits()
INTERPRETER = find_interpreter(None)
# What a program may do at its end, and in which order it shows.
ENDS = {
    "objects": """\
class Last:
    def __init__(self, name): self.name = name
    def __del__(self): print('deleted', self.name)
one, _two = Last('one'), Last('two')
def keep(): return one
""",
    "a cycle": """\
class Last:
    def __del__(self): print('deleted')
last = Last(); last.self = last
""",
    "functions at exit": """\
import atexit
for number in range(3): atexit.register(print, number)
raise ValueError
""",
    "an open file": """\
import os
file = os.fdopen(os.dup(1), 'w')
file.write('late')
print('early', flush=True)
""",
    "a thread": """\
import threading, time
threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()
import sys; sys.exit(3)
""",
    "a daemon thread": """\
import threading, time
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
print('done')
""",
    "another output": """\
import io, sys
sys.stdout = io.StringIO()
print('lost')
""",
    "a hook": """\
import os, sys
sys.excepthook = lambda *_: os._exit(7)
1 / 0
""",
    "a hook that leaves": """\
import sys
sys.excepthook = lambda *_: sys.exit(8)
1 / 0
""",
    "a large status": "raise SystemExit(1000)",
    "an interrupt": "import os; os.kill(os.getpid(), 2)",
}


@pytest.fixture(autouse=True)
def in_warm_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the imported tests run in warm cells."""
    monkeypatch.setattr(test_runner, "bwrap_cells", warm_cells)


def program(source: str, stdin: bytes = b"") -> Program:
    """Return a program to run."""
    return Program(source=source.encode(), stdin=stdin)


@pytest.mark.parametrize("end", ENDS)
async def test_a_program_ends_as_under_a_plain_interpreter(end: str, tmp_path: Path) -> None:
    """What a program prints at its end, and its status, are those of a plain interpreter."""
    path = tmp_path / "main.py"
    path.write_text(ENDS[end])
    plain = subprocess.run([sys.executable, "-S", path], capture_output=True, check=False)
    async with warm_cells(INTERPRETER, size=1) as cells:
        outcome = await cells.run(program(ENDS[end]), LIMITS)
    assert outcome.stdout == plain.stdout
    assert outcome.exit_code == plain.returncode, outcome.stderr_tail
    assert outcome.stderr_tail.splitlines()[-1:] == plain.stderr.splitlines()[-1:]


async def test_calls_and_preludes() -> None:
    """A call's value comes apart from what is printed; files are there; the prelude runs first."""
    source = "import sys\ndef double(n): print('noise', sys.stdin.read()); return [n * factor]"
    called = Program(
        source=source.encode(),
        stdin=b"[21]",
        fn_name="double",
        files=(("prelude.py", b"factor = 2"), ("other", b"")),
    )
    async with warm_cells(INTERPRETER, size=1) as cells:
        outcome = await cells.run(called, LIMITS)
        assert (outcome.stdout, outcome.exit_code) == (b"[42]", 0), outcome.stderr_tail
        assert outcome.stderr_tail == b"noise \n"
        # Nothing of that is there for the next program.
        outcome = await cells.run(program("import os; print(os.listdir('/cell'))"), LIMITS)
        assert outcome.stdout == b"['main.py']\n"


async def test_runs_at_once_and_one_after_the_other() -> None:
    """More runs than cells wait their turn, and each gets its own output."""
    outcomes: dict[int, Outcome] = {}
    async with warm_cells(INTERPRETER, size=2) as cells, trio.open_nursery() as nursery:

        async def one(number: int) -> None:
            outcomes[number] = await cells.run(program(f"print({number})"), LIMITS)

        for number in range(20):
            nursery.start_soon(one, number)
    assert [outcomes[number].stdout for number in range(20)] == [b"%d\n" % n for n in range(20)]


async def test_time_of_what_a_program_leaves_counts() -> None:
    """The CPU time of a child that outlives the program is the program's."""
    source = """\
import os, time
read_end, write_end = os.pipe()
if not os.fork():
    while time.process_time() < 0.2: pass
    os.write(write_end, b'x')
    while True: pass
os.read(read_end, 1)
"""
    async with warm_cells(INTERPRETER, size=1) as cells:
        outcome = await cells.run(program(source), LIMITS)
        assert outcome.exit_code == 0
        assert outcome.cpu_seconds >= 0.2
        outcome = await cells.run(program(source), CellLimits(cpu_limit_seconds=0.05))
        assert outcome.ending == CPU


async def test_a_cut_run_costs_its_cell_and_nothing_else() -> None:
    """After a limit the cells are as many as before, and all of them serve."""
    async with warm_cells(INTERPRETER, size=1) as cells:
        await serves(cells.run)
        before = set(children(os.getpid()))
        outcome = await cells.run(program("while True: pass"), CellLimits(cpu_limit_seconds=0.1))
        assert outcome.ending == CPU
        await serves(cells.run)
        assert len(before - set(children(os.getpid()))) == 1


async def serves(run: Callable[[Program, CellLimits], Awaitable[Outcome]]) -> None:
    """Assert that right programs are run, in more runs than there are cells."""
    for _ in range(4):
        assert (await run(program("print(42)"), LIMITS)).stdout == b"42\n"


async def test_limits_are_each_runs_own() -> None:
    """A run's bounds are not those of the run before it."""
    source = "held = bytearray(b'x') * (100 << 20); print(len(held))"
    async with warm_cells(INTERPRETER, size=1) as cells:
        for _ in range(4):
            small = await cells.run(program(source), CellLimits(memory_limit_bytes=64 << 20))
            assert small.exit_code != 0
            assert (await cells.run(program(source), LIMITS)).exit_code == 0
            low = await cells.run(program("print(1)"), LIMITS)
            assert low.peak_memory_bytes < 64 << 20


@pytest.mark.parametrize("soon_seconds", [0.0, 10.0])
@pytest.mark.parametrize(
    ("printed", "limit_bytes", "ending"),
    [(5000, 5000, EXITED), (5000, 4999, OUTPUT), (60_000, 100_000, EXITED)],
)
async def test_outputs_of_short_and_long_runs(
    printed: int,
    limit_bytes: int,
    ending: str,
    soon_seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read at a run's end or all along, outputs are whole, bounded, and apart from each other."""
    monkeypatch.setattr(run, "_SOON_SECONDS", soon_seconds)
    source = f"import sys; print('x' * {printed - 1}); sys.stderr.write('y' * 20_000 + 'end')"
    async with warm_cells(INTERPRETER, size=1) as cells:
        for _ in range(2):
            outcome = await cells.run(program(source), CellLimits(output_limit_bytes=limit_bytes))
            assert outcome.ending == ending
            assert outcome.stdout == (b"x" * (printed - 1) + b"\n")[:limit_bytes]
            assert len(outcome.stderr_tail) <= 8192
            assert ending == OUTPUT or outcome.stderr_tail.endswith(b"yend")
        await serves(cells.run)


async def test_a_full_pipe_is_read_before_a_runs_end() -> None:
    """A program that prints more than a pipe holds is waited for by nobody."""
    async with warm_cells(INTERPRETER, size=1) as cells:
        outcome = await cells.run(program("print('x' * 3_000_000)"), LIMITS)
    assert len(outcome.stdout) == 3_000_001


async def test_cells_retire(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell serves a bounded number of programs."""
    monkeypatch.setattr(warm, "_MOST_RUNS", 2)
    seen = set()
    async with warm_cells(INTERPRETER, size=1) as cells:
        for _ in range(12):
            seen |= set(children(os.getpid()))
            assert (await cells.run(program("print(42)"), LIMITS)).exit_code == 0
    assert len(seen) >= 6


async def test_a_killed_cell_is_our_fault_and_replaced() -> None:
    """A run whose cell is killed from outside is not scored, and the next ones are served."""
    async with warm_cells(INTERPRETER, size=1) as cells:
        await serves(cells.run)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(kill_a_busy_parent)
            with pytest.raises(NotScored, match="a warm cell ended in mid-run"):
                await cells.run(program("while True: pass"), LIMITS)
        await serves(cells.run)


async def kill_a_busy_parent() -> None:
    """Kill the parent above the first program that runs."""
    while True:
        for cell in children(os.getpid()):
            below = descendants(cell)
            if len(below) > 4:
                os.kill(below[2], signal.SIGKILL)
                return
        await trio.lowlevel.checkpoint()


async def test_idle_cells_that_are_killed_are_replaced() -> None:
    """Cells that were killed while they stood ready fail once each, and are replaced."""
    async with warm_cells(INTERPRETER, size=1) as cells:
        await serves(cells.run)
        killed = children(os.getpid())
        for pid in killed:
            os.killpg(pid, signal.SIGKILL)
        for _ in killed:
            with pytest.raises(NotScored):
                await cells.run(program("print(42)"), LIMITS)
        await serves(cells.run)


async def test_cells_that_do_not_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a program gets out, warm cells are refused and cold ones taken, with the reason."""
    monkeypatch.setattr(warm, "_ESCAPES", b"print('mount')")
    with pytest.raises(ConfigError, match="warm cells do not hold here: mount"):
        async with warm_cells(INTERPRETER):
            pass
    async with open_judge(JudgeRules(), kind="auto", python=None, hidden=()) as judge:
        assert judge.cells_kind == "cold: warm cells do not hold here: mount"
    with pytest.raises(ConfigError, match="do not hold"):
        async with open_judge(JudgeRules(), kind="warm", python=None, hidden=()):
            pass


# Lines of the parent without which a cell has a hole, and a word of what gets through it.
HOLES = {
    "            privileges.drop()": "CapEff",
    "        check(libc.prctl(PR_SET_SECCOMP": "no filter",
    "        for capability in (CAP_SYS_ADMIN, CAP_SETPCAP):": "CapBnd",
    "    runner.prctl(runner.PR_SET_DUMPABLE, 0)": "descriptors",
    '    mount(b"tmpfs", b"/tmp"': "/tmp/left",
    '    mount(b"tmpfs", b"/dev/shm"': "/dev/shm/left",
    '    mount(None, b"/cell"': "a new file beside it",
}


@pytest.mark.parametrize("line", HOLES)
async def test_the_self_test_sees_holes(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parent that leaves out one of its guards is found out."""
    before, found, after = warm._PARENT.decode().partition(line)
    assert found
    indent = line[: -len(line.lstrip())]
    after = after.partition("\n")[2]
    left_out = "for capability in ():" if line.endswith(":") else "pass"
    holed = f"{before}{indent}{left_out}\n{after}"
    monkeypatch.setattr(warm, "_PARENT", holed.encode())
    with pytest.raises(ConfigError, match=f"do not hold here: .*{HOLES[line]}"):
        async with warm_cells(INTERPRETER):
            pass


async def test_without_a_filter_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libseccomp nothing would keep keys and the like apart."""
    monkeypatch.setattr(warm, "deny_filter", lambda: None)
    with pytest.raises(ConfigError, match="libseccomp"):
        async with warm_cells(INTERPRETER):
            pass


async def test_an_interpreter_that_a_test_would_cover() -> None:
    """An interpreter below /tmp, where each test has its own files, needs cold cells."""
    with pytest.raises(ConfigError, match="below /tmp"):
        async with warm_cells(Interpreter("/tmp/python/bin/python3", "/tmp/python")):
            pass


async def test_what_a_cell_says_when_it_cannot_start() -> None:
    """A parent that fails is reported in its own words."""
    with pytest.raises(ConfigError, match="No module named 'nowhere'"):
        async with warm_cells(INTERPRETER, modules=("nowhere",)):
            pass


async def test_modules_that_are_asked_for_are_loaded_ahead() -> None:
    """Also such as lie in the interpreter's packages; the program's path is the usual one."""
    packages = Path(sys.base_prefix, "lib", f"python3.{sys.version_info[1]}", "site-packages")
    ahead = ["csv", *(["pip"] if (packages / "pip").exists() else [])]
    source = f"import sys; print(all(name in sys.modules for name in {ahead})); print(sys.path)"
    outcomes = []
    for modules in ((*warm.CONTEST_MODULES, *ahead), warm.CONTEST_MODULES):
        async with warm_cells(INTERPRETER, size=1, modules=modules) as cells:
            outcomes.append((await cells.run(program(source), LIMITS)).stdout.splitlines())
    assert [seen for seen, _ in outcomes] == [b"True", b"False"]
    assert outcomes[0][1] == outcomes[1][1]


async def test_preload_is_an_option_of_the_judge() -> None:
    """What a judge is opened with reaches its cells."""
    problem = Problem(problem_id="p", text="", tests=(Case("", "True\n"),))
    source = "import sys; print('csv' in sys.modules)"
    options = checked_options({"preload": "csv wave", "cells": "warm"}, unsafe_no_sandbox=False)
    async with options.open_judge(options.load_problems()) as judge:
        assert (await judge.judge(problem, source, max_tests=1)).name == "AC"


async def test_modules_that_start_threads_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of several threads has one, and whatever locks the others held."""
    before, imported, after = warm._PARENT.decode().partition("importlib.import_module(name)\n")
    assert imported
    thread = "        import _thread, time; _thread.start_new_thread(time.sleep, (100,))\n"
    monkeypatch.setattr(warm, "_PARENT", f"{before}{imported}{thread}{after}".encode())
    with pytest.raises(ConfigError, match="starts threads: csv"):
        async with warm_cells(INTERPRETER, modules=("csv",)):
            pass


async def test_errors_of_the_caller_come_as_they_are() -> None:
    """What is raised while cells are open is not wrapped in a group."""
    with pytest.raises(ConfigError, match="mine"):
        async with warm_cells(INTERPRETER, size=1):
            raise ConfigError("mine")
