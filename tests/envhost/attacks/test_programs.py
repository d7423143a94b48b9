"""Every program of the list gets its verdict, leaves nothing, and disturbs nobody."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

import pytest
import trio
from leftovers import nothing_left
from programs import ATTACKS, Attack

from envhost.judge.judging import Judge, JudgeRules, Verdict
from envhost.judge.problems import Problem
from envhost.judge.problems import Test as Case
from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import Cells, bwrap_cells, plain_cells
from envhost.sandbox.limits import CellLimits

# One of each kind; the rest is slow.
FAST = {"1", "10", "11", "19", "22", "24", "33", "37", "42", "43", "44", "46"}
SECRET = "HOST-SECRET-6031"  # attack 37 is told it, and looks for it
MOST_GROWTH_KIB = 64 * 1024
NEIGHBOUR = Problem(problem_id="neighbour", text="", tests=(Case("1 2\n", "3\n"),))
SUM = "print(sum(map(int, input().split())))"


def marked(attacks: list[Attack]) -> list[object]:
    """Return the parameters, the slow ones marked."""
    return [
        pytest.param(
            attack,
            id=f"{attack.number}-{attack.name.replace(' ', '-')}",
            marks=() if attack.number in FAST else (pytest.mark.slow,),
        )
        for attack in attacks
    ]


def given_to_attacks(listener: socket.socket, abstract: socket.socket) -> dict[str, str]:
    """Return what attacks are told of the host: a port that listens, and an abstract socket."""
    name = f"envhost-{os.urandom(4).hex()}"
    abstract.bind(b"\0" + name.encode())
    abstract.listen()
    return {"port": str(listener.getsockname()[1]), "name": name}


async def judged(cells: Cells, attack: Attack, given: dict[str, str]) -> Verdict:
    """Judge an attack while another program is served; both are asserted to end."""
    tests = tuple(Case(stdin.format_map(given), expected) for stdin, expected in attack.tests)
    problem = Problem(problem_id=attack.number, text="", tests=tests)
    rules = JudgeRules(limits=CellLimits(**attack.limits))
    judge = Judge(cells, rules, processors=2)
    neighbours: list[Verdict] = []
    async with trio.open_nursery() as nursery:

        async def serve_another() -> None:
            other = Judge(cells, JudgeRules(), processors=1)
            neighbours.append(await other.judge(NEIGHBOUR, SUM, max_tests=1))

        nursery.start_soon(serve_another)
        verdict = await judge.judge(problem, attack.source, max_tests=12)
    assert [one.name for one in neighbours] == ["AC"], neighbours
    return verdict


@contextmanager
def flat_memory() -> Iterator[None]:
    """Assert that this process, the host, does not grow with what a program writes."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_GROWTH_KIB


async def check(opened: AbstractAsyncContextManager[Cells], attack: Attack) -> None:
    """Assert an attack's verdict, and that nothing of it is left."""
    with (
        nothing_left(),
        flat_memory(),
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        given = given_to_attacks(listener, abstract)
        async with opened as cells:
            if attack.needs_memory_group and "memory" in cells.isolation:
                pytest.skip(f"no memory cgroup here: {cells.isolation}")
            verdict = await judged(cells, attack, given)
    assert verdict.name in attack.verdicts, verdict.stderr_tail
    if attack.exit_code is not None:
        assert verdict.exit_code == attack.exit_code


@pytest.mark.parametrize("attack", marked(ATTACKS))
async def test_in_a_cell(attack: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a bubblewrap cell a program gets its verdict and leaves nothing."""
    monkeypatch.setenv("HOST_SECRET", SECRET)
    await check(bwrap_cells(find_interpreter(None)), attack)


@pytest.mark.slow
@pytest.mark.parametrize("attack", marked([one for one in ATTACKS if not one.needs_bwrap]))
async def test_without_a_sandbox(attack: Attack) -> None:
    """Without a sandbox the same limits hold, and nothing is left either."""
    await check(plain_cells(find_interpreter(None)), attack)
