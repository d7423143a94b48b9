"""`python -m envhost score`: judge program files as the server would, and show the verdicts."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click
from attrs import evolve, frozen

from ..envs.code_options import CodeOptions
from ..errors import ConfigError, NotScored
from ..judge.extract import extract_code
from ..judge.judging import Verdict, VerdictName, no_code
from ..judge.problems import Problem, ProblemSet, Split
from ..sandbox.limits import Outcome
from ..settings import nearest
from ..telemetry import printable
from .judging import code_options, echo_table, for_each, judging_options, run, verdict_of

__all__ = ["score"]

_MIB = 1024 * 1024


@frozen
class _Scored:
    """What came of one program: the step's metadata, and with `--verbose` a line of each test."""

    program: str
    result: Mapping[str, Any]
    tests: tuple[Mapping[str, Any], ...] = ()


@click.command(short_help="Judge program files and show the verdicts.")
@click.argument("problems")
@click.argument("programs", nargs=-1, required=True, metavar="PROGRAM...")
@click.option("--row", type=int, help="Row of the problem in its split.")
@click.option("--split", type=click.Choice(("train", "test")), default="train", show_default=True)
@click.option("--problem", "problem_id", metavar="ID", help="Id of the problem, instead of a row.")
@click.option("--answers", is_flag=True, help="The files are answers: judge the code in them.")
@click.option("-v", "--verbose", is_flag=True, help="Show test by test, and all of stderr.")
@judging_options
def score(
    problems: str,
    programs: tuple[str, ...],
    row: int | None,
    split: Split,
    problem_id: str | None,
    answers: bool,
    verbose: bool,
    env_config: str | None,
    unsafe_no_sandbox: bool,
    as_json: bool,
) -> None:
    """Judge each PROGRAM file (- is standard input) against one problem of PROBLEMS.

    PROBLEMS is a data set as the option `dataset` names it. The exit status is 0 if all programs
    are right, 1 if not, 2 for wrong use.
    """
    options = code_options(problems, env_config, unsafe_no_sandbox=unsafe_no_sandbox)
    loaded = options.load_problems()
    problem, split = _problem(loaded, row, split, problem_id)
    sources = {program: _source(program, answers) for program in programs}
    scored = run(lambda: _score(options, loaded, problem, split, sources, verbose))
    (_echo_json if as_json else _echo)(problem, scored)
    sys.exit(any(each.result["verdict"] != "AC" for each in scored))


def _problem(
    problems: ProblemSet, row: int | None, split: Split, problem_id: str | None
) -> tuple[Problem, Split]:
    if row is not None and problem_id is not None:
        raise ConfigError("--row and --problem exclude each other: give one")
    if row is not None:
        return problems.rows(split)[problems.check_row(split, row)], split
    splits: tuple[Split, ...] = ("train", "test")
    known = {
        prompt.problem_id: (row, name)
        for name in splits
        for row, prompt in enumerate(problems.prompts(name))
    }
    if problem_id is not None:
        if problem_id not in known:
            hint = nearest(problem_id, known)
            raise ConfigError(f"--problem {problem_id}: {problems.name} has none of that id{hint}")
        found, split = known[problem_id]
        return problems.rows(split)[found], split
    if len(known) != 1:
        raise ConfigError(
            f"which of the {len(known)} problems of {problems.name}? Give --row N or --problem ID"
        )
    ((found, split),) = known.values()
    return problems.rows(split)[found], split


def _source(program: str, is_answer: bool) -> str | None:
    try:
        with click.open_file(program, "rb") as file:
            text = file.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise ConfigError(f"program {program}: {error.strerror}") from None
    return extract_code(text) if is_answer else text


async def _score(
    options: CodeOptions,
    problems: ProblemSet,
    problem: Problem,
    split: Split,
    sources: Mapping[str, str | None],
    verbose: bool,
) -> list[_Scored]:
    found: dict[str, _Scored] = {}
    max_tests = options.tests_of(split)
    if verbose:  # the tests after the first failed one too
        options = evolve(options, reward_mode="fraction")
    async with options.open_judge(problems) as judge:

        async def one(program: str) -> None:
            code = sources[program]
            if code is None:
                none = no_code(problem, max_tests=max_tests)
                found[program] = _Scored(program, none.metadata())
                return
            tests: list[Mapping[str, Any]] = []

            def note(index: int, name: VerdictName, outcome: Outcome) -> None:
                tests.append(_test_result(index, name, outcome))

            verdict = await verdict_of(
                judge, problem, code, max_tests=max_tests, on_test=note if verbose else None
            )
            found[program] = _Scored(program, _result(verdict), tuple(tests))

        await for_each(sources, one)
    return [found[program] for program in sources]


def _test_result(index: int, name: VerdictName, outcome: Outcome) -> Mapping[str, Any]:
    return {
        "test": index,
        "verdict": name,
        "cpu_seconds": round(outcome.cpu_seconds, 4),
        "wall_seconds": round(outcome.wall_seconds, 4),
        "peak_memory_bytes": outcome.peak_memory_bytes,
    }


def _result(verdict: Verdict | NotScored) -> Mapping[str, Any]:
    if isinstance(verdict, NotScored):
        return {"verdict": "IE", "stderr_tail": str(verdict)}
    return verdict.metadata()


def _echo_json(problem: Problem, scored: list[_Scored]) -> None:
    for each in scored:
        told = {"program": each.program, "problem_id": problem.problem_id, **each.result}
        click.echo(json.dumps(told | ({"tests": each.tests} if each.tests else {})))


def _echo(problem: Problem, scored: list[_Scored]) -> None:
    click.echo(printable(f"problem {problem.problem_id}, {len(problem.tests)} tests"))
    header = ("program", "verdict", "passed", "first failed", *_COSTS)
    echo_table(header, [_row(each) for each in scored])
    for each in scored:
        if each.tests:
            click.echo(printable(f"\n{each.program}, test by test".lstrip()))
            rows = [(test["test"], test["verdict"], *_costs(test)) for test in each.tests]
            echo_table(("test", "verdict", *_COSTS), rows)
        said = each.result.get("stderr_tail", "").rstrip().split("\n")
        for line in said if each.tests else said[-1:]:
            if line:
                click.echo(printable(f"{each.program}: {line}"))


_COSTS = ("CPU s", "wall s", "MiB")


def _row(scored: _Scored) -> tuple[object, ...]:
    result = scored.result
    passed = f"{result.get('tests_passed', 0)} of {result.get('tests_total', 0)}"
    failed = result.get("first_failed")
    shown = "" if failed is None else failed
    return (scored.program, result["verdict"], passed, shown, *_costs(result))


def _costs(result: Mapping[str, Any]) -> tuple[str, str, str]:
    cpu, wall = result.get("cpu_seconds", 0.0), result.get("wall_seconds", 0.0)
    return f"{cpu:.3f}", f"{wall:.3f}", f"{result.get('peak_memory_bytes', 0) / _MIB:.0f}"
