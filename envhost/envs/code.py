"""The code environment: a problem is the prompt, a program the answer, its verdict the reward.

Owns the options, the episode, and the proof at start that a known-right program is judged right;
judging is the judge's work. `python -m envhost serve` serves it when no entrypoint is named.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from attrs import evolve, field, fields, frozen

from ..environment import Description, Observation, StepResult, text_observation
from ..errors import ConfigError, EpisodeError, NotScored, ProtocolError
from ..judge.compare import CheckerName, Tolerance
from ..judge.extract import extract_code
from ..judge.judging import Judge, JudgeRules, Verdict
from ..judge.problems import Problem, ProblemSet, Split, Test, load_problems
from ..sandbox.bwrap import find_interpreter
from ..sandbox.cells import Cells, bwrap_cells, plain_cells
from ..sandbox.limits import CellLimits

__all__ = ["CodeEnvironment", "CodeOptions", "make"]

_PRELUDE = """\
import sys, os, re, math, random, string, bisect, heapq, functools, itertools, collections
from typing import *
from functools import *
from itertools import *
from collections import *
from heapq import *
from bisect import *
from math import *
"""


@frozen(kw_only=True)
class CodeOptions:
    """Options of the code environment, the keys of `--env-config`."""

    dataset: str = "bundled:lists"
    """`bundled:lists`, `bundled:classics`, or the path of a JSON-lines file in TACO's layout."""
    evaluation_fraction: float = 0.1
    """Share of the problems held out, where the data set has no `split` column."""
    max_rows: int | None = None
    """Use only the first rows of the data set."""
    shuffle_seed: int = 0
    """Which of the fixed permutations leads from seeds to rows."""
    max_tests: int = 12
    """Tests that a program is run against; of more, those with the longest inputs."""
    evaluation_max_tests: int | None = None
    """The same in evaluation episodes; null: as `max_tests`."""
    checker: CheckerName = "lines"
    """How outputs are compared: lines, exact, tokens or floats."""
    abs_tolerance: float = 1e-6
    rel_tolerance: float = 1e-6
    """For the checker `floats` and for returned values: either suffices."""
    reward_right: float = 1.0
    reward_wrong: float = 0.0
    reward_no_code: float = -0.1
    reward_mode: Literal["all", "fraction"] = "all"
    """`all`: right only if all tests pass, stop at the first failure. `fraction`: run all tests."""
    prompt_template: str = "{problem}"
    """The prompt; `{problem}` is the problem's text."""
    system_prompt: str | None = None
    """Given to the trainer in the reset's metadata."""
    prelude: bool = False
    """Import the usual contest modules before the program."""
    sandbox_type: Literal["bwrap", "none"] = "bwrap"
    """`none` is no sandbox: it needs --unsafe-no-sandbox too."""
    python: str | None = None
    """Interpreter that runs the programs; null: the server's own."""
    cpu_limit_seconds: float = 10.0
    wall_limit_seconds: float = 60.0
    memory_limit_bytes: int = 1024 * 1024 * 1024
    output_limit_bytes: int = 16 * 1024 * 1024
    tmp_limit_bytes: int = 64 * 1024 * 1024
    process_limit: int = 64
    unsafe_no_sandbox: bool = field(default=False)

    def limits(self) -> CellLimits:
        """Return the limits of one run."""
        return CellLimits(**{name.name: getattr(self, name.name) for name in fields(CellLimits)})


def make(*, unsafe_no_sandbox: bool = False, **options: Any) -> CodeEnvironments:
    """Return the factory of a code environment; the options are `CodeOptions`.

    Raises:
        ConfigError: An option is unknown or has a wrong value.
    """
    return CodeEnvironments(_checked(options, unsafe_no_sandbox=unsafe_no_sandbox))


def _checked(options: Mapping[str, Any], *, unsafe_no_sandbox: bool) -> CodeOptions:
    kinds = get_type_hints(CodeOptions)
    for name, value in options.items():
        if name not in kinds:
            close = difflib.get_close_matches(name, kinds, n=1)
            hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(kinds)}"
            raise ConfigError(f"env_config.{name}: unknown option{hint}")
        if not _fits(value, kinds[name]):
            raise ConfigError(
                f"env_config.{name}: expected {_shown(kinds[name])}, got {value!r:.40}"
            )
        _check_range(name, value)
    chosen = evolve(CodeOptions(**options), unsafe_no_sandbox=unsafe_no_sandbox)
    if "{problem}" not in chosen.prompt_template:
        raise ConfigError("env_config.prompt_template: expected a text with {problem} in it")
    if chosen.sandbox_type == "none" and not unsafe_no_sandbox:
        raise ConfigError(
            "sandbox_type none lets programs of a model run unconfined on this machine: use bwrap, "
            "or say --unsafe-no-sandbox too"
        )
    return chosen


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if isinstance(kind, UnionType):
        return any(_fits(value, each) for each in get_args(kind))
    if kind is float:
        return type(value) in {int, float} and math.isfinite(value)
    return type(value) is kind


def _shown(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if isinstance(kind, UnionType):
        return " or ".join(map(_shown, get_args(kind)))
    return "null" if kind is type(None) else str(kind.__name__)


_POSITIVE = ("_limit_seconds", "_limit_bytes", "_limit", "max_tests", "max_rows")


def _check_range(name: str, value: Any) -> None:
    if name.endswith(_POSITIVE) and value is not None and value <= 0:
        raise ConfigError(f"env_config.{name}: expected more than 0, got {value}")
    if name == "evaluation_fraction" and not 0 <= value < 1:
        raise ConfigError(f"env_config.{name}: expected 0 to 1, got {value}")


class CodeEnvironments:
    """What all sessions share: the problems, the cells and the judge."""

    def __init__(self, options: CodeOptions) -> None:
        self.options = options
        self._problems: ProblemSet | None = None
        self._judge: Judge | None = None
        self._isolation = ""

    def describe(self) -> Description:
        """Say what is served."""
        report = self._problems.report if self._problems else self.options.dataset
        return Description(
            name=f"code:{self.options.dataset}",
            description="Programs judged against contest tests.",
            notes=(report, f"isolation: {self._isolation}"),
        )

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Load the problems, open the cells, and prove that a right program is judged right."""
        options = self.options
        self._problems = load_problems(
            options.dataset,
            evaluation_fraction=options.evaluation_fraction,
            max_rows=options.max_rows,
            shuffle_seed=options.shuffle_seed,
        )
        rules = JudgeRules(
            limits=options.limits(),
            checker=options.checker,
            tolerance=Tolerance(options.abs_tolerance, options.rel_tolerance),
            run_all=options.reward_mode == "fraction",
            prelude=_PRELUDE if options.prelude else "",
        )
        interpreter = find_interpreter(options.python)
        if options.sandbox_type == "bwrap":
            opened = bwrap_cells(interpreter, hidden=self._problems.files)
        else:
            opened = plain_cells(interpreter)
        async with opened as cells:
            self._isolation = cells.isolation
            self._judge = Judge(cells, rules, processors=len(os.sched_getaffinity(0)))
            await _prove(cells, rules)
            yield

    async def build(self) -> CodeEnvironment:
        """Make a session's environment; it holds nothing but its place in the data set."""
        assert self._problems is not None
        assert self._judge is not None
        return CodeEnvironment(self.options, self._problems, self._judge, self._isolation)


async def _prove(cells: Cells, rules: JudgeRules) -> None:
    """Refuse to serve where a known-right program is not judged right.

    Raises:
        ConfigError: Programs do not run here; every reward would be wrong.
    """
    canary = Problem(problem_id="canary", text="", tests=(Test("20 22\n", "42\n"),))
    judge = Judge(cells, rules, processors=1)
    code = "import json, sys\nprint(sum(map(int, sys.stdin.read().split())))\n"
    try:
        verdict = await judge.judge(canary, code, max_tests=1)
    except NotScored as error:
        raise ConfigError(f"programs cannot be run here: {error}{_remedy(str(error))}") from None
    if verdict.name != "AC":
        raise ConfigError(
            f"a known-right program got {verdict.name} here, so that every reward would be wrong; "
            f"are the limits too low? {verdict.stderr_tail[-300:]}".rstrip()
        )


def _remedy(said: str) -> str:
    if "uid map" in said or "RTM_NEWADDR" in said:
        return (
            "; on Ubuntu 24.04 allow bwrap user namespaces: install the AppArmor profile "
            "bwrap-userns-restrict, or set kernel.apparmor_restrict_unprivileged_userns=0"
        )
    if "bwrap" in said and "ermission" in said:
        return (
            "; in Docker start the container with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        )
    return ""


class CodeEnvironment:
    """One session's episodes: reset gives a problem, one step judges the answer and ends it."""

    def __init__(
        self, options: CodeOptions, problems: ProblemSet, judge: Judge, isolation: str
    ) -> None:
        self._options = options
        self._problems = problems
        self._judge = judge
        self._isolation = isolation
        self._problem: Problem | None = None
        self._split: Split = "train"
        self._evaluated = 0
        self._drawn = int.from_bytes(os.urandom(3), "big")

    async def reset(
        self,
        *,
        seed: int | None = None,
        row_index: int | None = None,
        evaluation: bool | None = False,
    ) -> Observation:
        """Begin an episode with the row that the seed means; `row_index` wins over it.

        Without either, evaluation walks its split in order and training draws a seed, which the
        metadata tells.
        """
        _check_reset(seed=seed, row_index=row_index, evaluation=evaluation)
        self._split = "test" if evaluation else "train"
        if not self._problems.rows(self._split):
            raise ProtocolError(
                "VALIDATION_ERROR", f"{self._problems.name} has no {self._split} rows"
            )
        if row_index is not None:
            row = self._problems.check_row(self._split, row_index)
        elif seed is not None:
            row = self._problems.row_of_seed(self._split, seed)
        elif evaluation:
            row = self._evaluated % len(self._problems.evaluation)
            self._evaluated += 1
        else:
            self._drawn += 1
            seed = self._drawn
            row = self._problems.row_of_seed(self._split, seed)
        self._problem = problem = self._problems.rows(self._split)[row]
        prompt = self._options.prompt_template.replace("{problem}", problem.text)
        metadata: dict[str, Any] = {
            "seed": seed,
            "row_index": row,
            "split": self._split,
            "problem_id": problem.problem_id,
            "isolation": self._isolation,
        }
        if self._options.system_prompt is not None:
            metadata["system_prompt"] = self._options.system_prompt
        return Observation(text_observation(prompt, question=prompt), metadata)

    async def step(self, action: Mapping[str, Any]) -> StepResult:
        """Judge the program in an answer; cancelled, every process of it is gone.

        Raises:
            NotScored: We could not judge it.
        """
        answer = action.get("message")
        if not isinstance(answer, str):
            raise ProtocolError(
                "VALIDATION_ERROR", "expected a text action with the string field 'message'"
            )
        if self._problem is None:
            raise EpisodeError("no episode is running: reset first")
        problem, self._problem = self._problem, None
        code = extract_code(answer)
        if code is None:
            metadata = {"verdict": "NC", "isolation": self._isolation}
            return _ended(self._options.reward_no_code, metadata)
        options = self._options
        max_tests = options.max_tests
        if self._split == "test" and options.evaluation_max_tests is not None:
            max_tests = options.evaluation_max_tests
        verdict = await self._judge.judge(problem, code, max_tests=max_tests)
        return _ended(self._reward(verdict), verdict.metadata() | {"isolation": self._isolation})

    def _reward(self, verdict: Verdict) -> float:
        right, wrong = self._options.reward_right, self._options.reward_wrong
        if self._options.reward_mode == "fraction":
            return wrong + (right - wrong) * verdict.tests_passed / verdict.tests_total
        return right if verdict.name == "AC" else wrong

    async def state(self) -> Mapping[str, Any]:
        """Return how many problems there are to train on and to evaluate on."""
        return {
            "dataset_size": len(self._problems.training),
            "evaluation_size": len(self._problems.evaluation),
        }

    async def close(self) -> None:
        """Give back nothing: what runs belongs to the step, and ends with it."""
        self._problem = None


def _check_reset(*, evaluation: bool | None, **numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and type(value) is not int:
            raise ProtocolError(
                "VALIDATION_ERROR", f"{name}: expected an integer, got {value!r:.40}"
            )
    if evaluation is not None and type(evaluation) is not bool:
        raise ProtocolError(
            "VALIDATION_ERROR", f"evaluation: expected true or false, got {evaluation!r:.40}"
        )


def _ended(reward: float, metadata: Mapping[str, Any]) -> StepResult:
    return StepResult(
        observation=text_observation(""), reward=reward, terminated=True, metadata=metadata
    )
