"""`python -m envhost rescore`: run recorded programs again and show what would change."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import trio
from attrs import frozen

from ..envs.code_options import CodeOptions
from ..errors import ConfigError, NotScored
from ..judge.judging import Judge
from ..judge.problems import Problem, ProblemSet, Split
from ..judge.record import Recorded, read_record
from .judging import (
    Progress,
    code_options,
    echo_table,
    for_each,
    judging_options,
    run,
    verdict_of,
)

__all__ = ["rescore"]

_SHOWN_CHANGES = 50
_GONE = "gone"


@frozen(kw_only=True)
class _Again:
    """A recorded program and what came of it now."""

    entry: Recorded
    verdict: str
    """The verdict now; `gone` where the data set no longer has the problem."""
    reward: float | None

    @property
    def is_changed(self) -> bool:
        return (self.verdict, self.reward) != (self.entry.verdict, self.entry.reward)

    def shown(self) -> dict[str, Any]:
        entry = self.entry
        return {
            "time": entry.time,
            "session": entry.session,
            "problem_id": entry.problem_id,
            "verdict": entry.verdict,
            "verdict_now": self.verdict,
            "reward": entry.reward,
            "reward_now": self.reward,
        }


@click.command(short_help="Run recorded programs again and show what would change.")
@click.argument("record")
@click.option("--problems", metavar="PROBLEMS", help="Data set to judge by, not the recorded one.")
@judging_options
def rescore(
    record: str,
    problems: str | None,
    env_config: str | None,
    unsafe_no_sandbox: bool,
    as_json: bool,
) -> None:
    """Judge the programs of RECORD again: the directory of `serve --record`, or a file of it.

    Each is judged by the options that were recorded with it; those of --env-config win over them.
    The exit status is 0 if nothing would change, 1 if something would.
    """

    def options_of(entry: Recorded) -> CodeOptions:
        return code_options(
            problems or entry.dataset,
            env_config,
            unsafe_no_sandbox=unsafe_no_sandbox,
            base=entry.options,
        )

    counts: Counter[tuple[str, str]] = Counter()
    changed: list[_Again] = []
    progress = Progress("programs")

    def take(again: _Again) -> None:
        counts[again.entry.verdict, again.verdict] += 1
        if again.is_changed:
            changed.append(again)
        progress.step()

    run(lambda: _rescore(Path(record), options_of, take))
    progress.end()
    (_echo_json if as_json else _echo)(counts, changed)
    sys.exit(bool(changed))


async def _rescore(
    place: Path,
    options_of: Callable[[Recorded], CodeOptions],
    take: Callable[[_Again], None],
) -> None:
    async with trio.open_nursery() as nursery:
        benches = _Benches(nursery)

        async def one(entry: Recorded) -> None:
            take(await _again(entry, await benches.bench(options_of(entry))))

        await for_each(read_record(place), one)
        nursery.cancel_scope.cancel()


@frozen
class _Bench:
    """A judge and the problems that its options name."""

    options: CodeOptions
    problems: ProblemSet
    by_id: Mapping[str, tuple[Split, int]]
    judge: Judge

    def problem(self, entry: Recorded) -> Problem | None:
        """Return the problem; its row decides where several have the same id."""
        split, row = _split(entry), entry.row_index
        rows = self.problems.rows(split)
        if row < len(rows) and self.problems.prompt(split, row).problem_id == entry.problem_id:
            return rows[row]
        if entry.problem_id not in self.by_id:
            return None
        split, row = self.by_id[entry.problem_id]
        return self.problems.rows(split)[row]


class _Benches:
    """Opens one bench for all entries with the same options; a task of its own holds it open."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._opening = trio.Lock()
        self._open: dict[CodeOptions, _Bench] = {}

    async def bench(self, options: CodeOptions) -> _Bench:
        async with self._opening:
            if options not in self._open:
                self._open[options] = await self._nursery.start(_hold_open, options)
            return self._open[options]


async def _hold_open(options: CodeOptions, *, task_status: trio.TaskStatus[_Bench]) -> None:
    problems = options.load_problems()
    async with options.open_judge(problems) as judge:
        splits: tuple[Split, ...] = ("train", "test")
        by_id = {
            prompt.problem_id: (split, row)
            for split in splits
            for row, prompt in enumerate(problems.prompts(split))
        }
        task_status.started(_Bench(options, problems, by_id, judge))
        await trio.sleep_forever()


async def _again(entry: Recorded, bench: _Bench) -> _Again:
    problem = bench.problem(entry)
    if problem is None:
        return _Again(entry=entry, verdict=_GONE, reward=None)
    max_tests = bench.options.tests_of(_split(entry))
    verdict = await verdict_of(bench.judge, problem, entry.program, max_tests=max_tests)
    if isinstance(verdict, NotScored):
        return _Again(entry=entry, verdict="IE", reward=None)
    return _Again(entry=entry, verdict=verdict.name, reward=bench.options.reward(verdict))


def _split(entry: Recorded) -> Split:
    return "test" if entry.split == "test" else "train"


def _echo_json(counts: Counter[tuple[str, str]], changed: list[_Again]) -> None:
    for again in changed:
        click.echo(json.dumps(again.shown()))
    for (was, now), number in sorted(counts.items()):
        click.echo(json.dumps({"verdict": was, "verdict_now": now, "programs": number}))


def _echo(counts: Counter[tuple[str, str]], changed: list[_Again]) -> None:
    if not counts:
        raise ConfigError("the record is empty: no program has been judged")
    rows = [(was, now, number) for (was, now), number in sorted(counts.items())]
    echo_table(("was", "now", "programs"), rows)
    click.echo(f"\n{len(changed)} of {counts.total()} would change")
    if changed:
        lines = [list(again.shown().values()) for again in changed[:_SHOWN_CHANGES]]
        echo_table(("time", "session", "problem", "was", "now", "reward", "now"), lines)
    if len(changed) > _SHOWN_CHANGES:
        click.echo(f"and {len(changed) - _SHOWN_CHANGES} more: see --json")
