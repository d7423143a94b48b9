"""Judges all the attacks in a process of its own, a verdict a line: `as_user.py KIND`.

For the test that runs it as a normal user, whom it tells apart from root by nothing but its uid.
Two attacks at a time share the cells, and each has a neighbour that is served meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import sys

import trio
from leftovers import nothing_left
from programs import ATTACKS, Attack, in_warm_cell
from test_programs import SECRET, given_to_attacks, judged

from envhost.sandbox.bwrap import find_interpreter
from envhost.sandbox.cells import Cells, bwrap_cells
from envhost.sandbox.warm import warm_cells

AT_ONCE = 2


async def judge_all(cells: Cells, attacks: list[Attack], given: dict[str, str]) -> None:
    """Judge the attacks and print what came of them."""
    waiting = iter(attacks)

    async def worker() -> None:
        for attack in waiting:
            if attack.needs_memory_group and "memory" in cells.isolation:
                continue
            verdict = await judged(cells, attack, given)
            shown = {"number": attack.number, "verdict": verdict.name}
            shown |= {"exit_code": verdict.exit_code, "said": verdict.stderr_tail}
            print(json.dumps(shown), flush=True)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(worker)


async def main(kind: str) -> None:
    """Judge the attacks in cells of a kind, and see that nothing of them is left."""
    os.environ["HOST_SECRET"] = SECRET
    attacks = ATTACKS if kind == "cold" else [in_warm_cell(attack) for attack in ATTACKS]
    open_cells = bwrap_cells if kind == "cold" else warm_cells
    with (
        nothing_left(),
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        given = given_to_attacks(listener, abstract)
        async with open_cells(find_interpreter(None)) as cells:
            print(json.dumps({"isolation": cells.isolation}), flush=True)
            await judge_all(cells, attacks, given)


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
