"""Shared verdicts: the same program for the same tests is judged once for all who ask.

Owns the runs in flight, and the cache of those that ended by the program's own doing. A run belongs
to a nursery outside all sessions; it is cancelled when the last of those who wait for it leaves.

Not for evaluation, which counts every program's own run. A program that is right by chance is so
for all who share its verdict: that is why sharing is an option.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Protocol

import trio
from attrs import evolve

from ..background import background
from ..errors import NotScored
from .judging import Verdict, chosen_tests
from .problems import Problem

__all__ = ["Judging", "SharedVerdicts", "shared_verdicts", "verdict_key"]

_MOST_KEPT = 4096
# What ended by itself. A limit on time may have been reached because the machine was full.
_KEPT = frozenset(("AC", "WA", "RE", "CE", "OLE"))
_LEAVE_SECONDS = 20.0


class Judging(Protocol):
    """What judges programs: a judge, or one that shares its verdicts."""

    @property
    def circumstances(self) -> str:
        """All that verdicts depend on, besides the program and its tests."""

    async def judge(self, problem: Problem, code: str, *, max_tests: int) -> Verdict:
        """Judge a program; see `Judge.judge`."""


class _Run:
    """A run in flight, and how many wait for it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.verdict: Verdict | None = None
        self.error: Exception | None = None

    def result(self) -> Verdict:
        """Return the verdict.

        Raises:
            NotScored: There is none; each who waits gets an exception of its own.
        """
        if isinstance(self.error, NotScored):
            raise NotScored(str(self.error)) from self.error
        if self.error is not None:
            raise RuntimeError("judging failed in a shared run") from self.error
        if self.verdict is None:
            raise NotScored("the shared run was cancelled: the server is ending")
        return self.verdict


class SharedVerdicts:
    """Judges through a judge, each program once; make it with `shared_verdicts`."""

    def __init__(self, judge: Judging, nursery: trio.Nursery) -> None:
        self._judge = judge
        self._nursery = nursery
        self._running: dict[bytes, _Run] = {}
        self._kept: OrderedDict[bytes, Verdict] = OrderedDict()

    @property
    def circumstances(self) -> str:
        """The judge's own."""
        return self._judge.circumstances

    async def judge(self, problem: Problem, code: str, *, max_tests: int) -> Verdict:
        """Judge a program, or wait for who does, or return what is known of it.

        Cancelled as the last who waits, the run's processes are gone.

        Raises:
            NotScored: We failed twice; the program has no verdict.
        """
        key = verdict_key(problem, code, max_tests, self.circumstances)
        kept = self._kept.get(key)
        if kept is not None:
            self._kept.move_to_end(key)
            await trio.lowlevel.checkpoint()
            return evolve(kept, is_shared=True)
        run = self._running.get(key)
        is_first = run is None
        if run is None:
            run = self._running[key] = _Run()
            self._nursery.start_soon(self._follow, key, run, problem, code, max_tests)
        verdict = await self._wait(key, run)
        return verdict if is_first else evolve(verdict, is_shared=True)

    async def _wait(self, key: bytes, run: _Run) -> Verdict:
        run.waiting += 1
        try:
            await run.ended.wait()
        finally:
            run.waiting -= 1
            if not run.waiting and not run.ended.is_set():
                self._forget(key, run)  # who comes now starts anew
                run.scope.cancel()
                with trio.move_on_after(_LEAVE_SECONDS, shield=True):
                    await run.ended.wait()
        return run.result()

    async def _follow(
        self, key: bytes, run: _Run, problem: Problem, code: str, max_tests: int
    ) -> None:
        """Judge for all who wait; whatever goes wrong is theirs, and no other session's."""
        try:
            with run.scope:
                run.verdict = await self._judge.judge(problem, code, max_tests=max_tests)
        except Exception as error:  # noqa: BLE001 - a border: it is raised where it is waited for
            run.error = error
        finally:
            self._forget(key, run)
            run.ended.set()
        if run.verdict is not None and run.verdict.name in _KEPT:
            self._kept[key] = run.verdict
            if len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)

    def _forget(self, key: bytes, run: _Run) -> None:
        if self._running.get(key) is run:
            del self._running[key]


@asynccontextmanager
async def shared_verdicts(judge: Judging) -> AsyncIterator[SharedVerdicts]:
    """Give a judge's shared verdicts; runs that still go on at the end are cancelled."""
    async with background() as nursery:
        yield SharedVerdicts(judge, nursery)


def verdict_key(problem: Problem, code: str, max_tests: int, circumstances: str) -> bytes:
    """Return what stands for a program, its tests, and all else that its verdict depends on."""
    tests = [
        (index, problem.tests[index].input, problem.tests[index].expected)
        for index in chosen_tests(problem, max_tests)
    ]
    parts = [code, tests, problem.fn_name, problem.checker, circumstances]
    return sha256(json.dumps(parts).encode()).digest()
