"""`python -m envhost check-data`: which problems have tests or a checker that cannot be right?"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator

import click
from attrs import frozen

from ..envs.code_options import CodeOptions
from ..errors import NotScored
from ..judge.compare import text_of
from ..judge.judging import Judge
from ..judge.problems import Problem, ProblemSet, Split
from .judging import (
    Progress,
    code_options,
    echo_table,
    for_each,
    judging_options,
    run,
    verdict_of,
)

__all__ = ["check_data"]


@frozen
class _Checked:
    """One problem: the verdicts of its known programs, and what cannot be right with it."""

    problem_id: str
    verdicts: tuple[tuple[str, ...], tuple[str, ...]]
    """Those of the right solutions and those of the wrong ones."""
    faults: tuple[str, ...]


@click.command(short_help="List the problems whose tests or checker cannot be right.")
@click.argument("problems")
@click.option(
    "--solutions",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="Right and wrong solutions of a problem to judge, of each kind at most.",
)
@judging_options
def check_data(
    problems: str,
    solutions: int,
    env_config: str | None,
    unsafe_no_sandbox: bool,
    as_json: bool,
) -> None:
    """Judge the known-right and known-wrong solutions of PROBLEMS as the server would.

    PROBLEMS is a data set as the option `dataset` names it; the columns `solutions` and
    `wrong_solutions` hold the programs. The exit status is 0 if no problem is faulty, 1 if one is.
    """
    options = code_options(problems, env_config, unsafe_no_sandbox=unsafe_no_sandbox)
    loaded = options.load_problems()
    checked = run(lambda: _check_all(options, loaded, solutions))
    faults = [(id_, f"dropped: a row {reason}") for id_, reason in loaded.dropped]
    faults += [(each.problem_id, fault) for each in checked for fault in each.faults]
    (_echo_json if as_json else _echo)(loaded, checked, faults)
    sys.exit(bool(faults))


async def _check_all(options: CodeOptions, problems: ProblemSet, most: int) -> list[_Checked]:
    splits: tuple[Split, ...] = ("train", "test")
    rows = [(split, row) for split in splits for row in range(len(problems.rows(split)))]
    checked: dict[int, _Checked] = {}
    progress = Progress("problems", len(rows))
    async with options.open_judge(problems) as judge:

        async def one(numbered: tuple[int, tuple[Split, int]]) -> None:
            number, (split, row) = numbered
            problem = problems.rows(split)[row]
            checked[number] = await _check(judge, problem, options.tests_of(split), most)
            progress.step()

        await for_each(enumerate(rows), one)
    progress.end()
    return [checked[number] for number in range(len(rows))]


async def _check(judge: Judge, problem: Problem, max_tests: int, most: int) -> _Checked:
    failures: list[str] = []

    async def name(program: str) -> str:
        verdict = await verdict_of(judge, problem, program, max_tests=max_tests)
        if isinstance(verdict, NotScored):
            failures.append(f"cannot be judged: {verdict}")
            return "IE"
        return verdict.name

    right = tuple([await name(program) for program in problem.solutions[:most]])
    wrong = tuple([await name(program) for program in problem.wrong_solutions[:most]])
    faults = (*_faults_of_tests(problem), *_faults_of_verdicts(right, wrong), *failures[:1])
    return _Checked(problem.problem_id, (right, wrong), faults)


def _faults_of_verdicts(right: tuple[str, ...], wrong: tuple[str, ...]) -> Iterator[str]:
    if right and not {"AC", "IE"} & {*right}:
        yield f"no right solution gets AC: {', '.join(right)}"
    for number, verdict in enumerate(wrong, 1):
        if verdict == "AC":
            yield f"wrong solution {number} of {len(wrong)} gets AC"


def _faults_of_tests(problem: Problem) -> Iterator[str]:
    """Tests of one input and several outputs can only be right by a checker's word."""
    if problem.checker is not None:
        return
    outputs: dict[str, str] = {}
    for number, test in enumerate(problem.tests):
        given = text_of(test.input) if problem.fn_name is None else json.dumps(test.input)
        expected = text_of(test.expected) if problem.fn_name is None else json.dumps(test.expected)
        if outputs.setdefault(given, expected).split() != expected.split():
            yield f"test {number}: its input has another output in an earlier test"
            return


def _echo_json(
    problems: ProblemSet, checked: list[_Checked], faults: list[tuple[str, str]]
) -> None:
    for problem_id, fault in faults:
        click.echo(json.dumps({"problem_id": problem_id, "fault": fault}))
    right, wrong = _counts(checked)
    told = {"problems": len(checked), "faults": len(faults), "report": problems.report}
    click.echo(json.dumps(told | {"solutions": right, "wrong_solutions": wrong}))


def _echo(problems: ProblemSet, checked: list[_Checked], faults: list[tuple[str, str]]) -> None:
    if faults:
        echo_table(("problem", "fault"), faults)
        click.echo("")
    click.echo(problems.report)
    right, wrong = _counts(checked)
    for what, counts in (("right", right), ("wrong", wrong)):
        shown = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common())
        click.echo(f"{what} solutions: {shown or 'none, so nothing is known by them'}")
    faulty = len({problem_id for problem_id, _ in faults})
    click.echo(f"{faulty} problems cannot be right")


def _counts(checked: list[_Checked]) -> tuple[Counter[str], Counter[str]]:
    right = Counter(verdict for each in checked for verdict in each.verdicts[0])
    wrong = Counter(verdict for each in checked for verdict in each.verdicts[1])
    return right, wrong
