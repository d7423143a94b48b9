"""Options of the code environment: their defaults, their checks, and what they mean for a judge.

Owns nothing that runs. The server's environment and the commands that judge read the same options,
so that a program gets the same verdict from both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from attrs import asdict, evolve, field, fields, frozen

from ..errors import ConfigError
from ..judge.aside import load_problems_aside
from ..judge.compare import CheckerName, Tolerance
from ..judge.judging import Judge, JudgeRules, Verdict
from ..judge.loading import Request, load_problems
from ..judge.opening import open_judge
from ..judge.problems import Columns, ProblemSet, Split
from ..sandbox.limits import CellLimits
from ..settings import nearest

__all__ = ["CodeOptions", "checked_options"]

_LIMITS = tuple(limit.name for limit in fields(CellLimits))
_NOT_DECIDING = frozenset(
    (
        "dataset",
        "shuffle_seed",
        "prompt_template",
        "system_prompt",
        "unsafe_no_sandbox",
        "share_verdicts",
    )
)
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
    """`bundled:NAME`, `OWNER/NAME` of the hub, or a path: .jsonl, .parquet, a folder."""
    revision: str | None = None
    """Branch, tag or commit of a data set of the hub."""
    split: str | None = None
    """The split that is trained on; null: `train`."""
    evaluation_split: str | None = None
    """The split that is held out; null: a share of the rows, or what their `split` says."""
    evaluation_fraction: float = 0.1
    """Share of the problems held out, where nothing else says which."""
    question_key: str = "problem"
    test_key: str = "tests"
    """The columns with the problem's text and its tests."""
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
    cells: Literal["auto", "warm", "cold"] = "auto"
    """Warm cells are started ahead of need; `auto` uses them where they prove themselves."""
    preload: str = ""
    """Modules that warm cells load ahead besides the usual ones, by blanks apart: `numpy`."""
    share_verdicts: bool = False
    """Judge identical programs for the same problem once; never in evaluation."""
    python: str | None = None
    """Interpreter that runs the programs; null: the server's own."""
    cpu_limit_seconds: float = 10.0
    wall_limit_seconds: float = 60.0
    memory_limit_bytes: int = 1024 * 1024 * 1024
    output_limit_bytes: int = 16 * 1024 * 1024
    tmp_limit_bytes: int = 64 * 1024 * 1024
    process_limit: int = 64
    unsafe_no_sandbox: bool = field(default=False)

    def rules(self) -> JudgeRules:
        """Return how programs are judged."""
        return JudgeRules(
            limits=CellLimits(**{name: getattr(self, name) for name in _LIMITS}),
            checker=self.checker,
            tolerance=Tolerance(self.abs_tolerance, self.rel_tolerance),
            run_all=self.reward_mode == "fraction",
            prelude=_PRELUDE if self.prelude else "",
        )

    def load_problems(self) -> ProblemSet:
        """Load the data set.

        Raises:
            ConfigError: There is none, or none of it can be used.
        """
        return load_problems(
            self._request(),
            evaluation_fraction=self.evaluation_fraction,
            shuffle_seed=self.shuffle_seed,
        )

    async def load_problems_aside(self) -> ProblemSet:
        """The same, a large data set by a child process.

        Raises:
            ConfigError: As above.
        """
        return await load_problems_aside(
            self._request(),
            evaluation_fraction=self.evaluation_fraction,
            shuffle_seed=self.shuffle_seed,
        )

    def _request(self) -> Request:
        return Request(
            dataset=self.dataset,
            split=self.split,
            evaluation_split=self.evaluation_split,
            revision=self.revision,
            max_rows=self.max_rows,
            columns=Columns(self.question_key, self.test_key),
        )

    def open_judge(self, problems: ProblemSet) -> AbstractAsyncContextManager[Judge]:
        """Open a judge of these problems; see `judge.opening`."""
        return open_judge(
            self.rules(),
            kind="plain" if self.sandbox_type == "none" else self.cells,
            python=self.python,
            hidden=problems.files,
            preload=self.preload.split(),
        )

    def tests_of(self, split: Split) -> int:
        """Return how many tests a program is run against, at most."""
        if split == "test" and self.evaluation_max_tests is not None:
            return self.evaluation_max_tests
        return self.max_tests

    def reward(self, verdict: Verdict) -> float:
        """Return what a verdict is worth."""
        if self.reward_mode == "fraction":
            share = verdict.tests_passed / verdict.tests_total
            return self.reward_wrong + (self.reward_right - self.reward_wrong) * share
        return self.reward_right if verdict.name == "AC" else self.reward_wrong

    def deciding(self) -> dict[str, Any]:
        """Return the options on which a verdict or its reward depends, for a record."""
        return asdict(self, filter=lambda attribute, _: attribute.name not in _NOT_DECIDING)


def checked_options(options: Mapping[str, Any], *, unsafe_no_sandbox: bool) -> CodeOptions:
    """Return the options that an `--env-config` gives.

    Raises:
        ConfigError: An option is unknown or has a wrong value.
    """
    kinds = get_type_hints(CodeOptions)
    for name, value in options.items():
        if name not in kinds:
            hint = nearest(name, kinds) or f"; known: {', '.join(kinds)}"
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
    if name == "preload" and not all(map(str.isidentifier, value.replace(".", " ").split())):
        raise ConfigError(
            f"env_config.preload: expected names of modules, blanks between, got {value!r:.40}"
        )
    if name == "evaluation_fraction" and not 0 <= value < 1:
        raise ConfigError(f"env_config.{name}: expected 0 to 1, got {value}")
