"""Large JSON texts parsed in steps: the same values, and others get their turn."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from envhost.judge import gradual
from envhost.judge.gradual import parsed_in_steps
from envhost.judge.loading import load_problems

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def parsed(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the value, and how many times others had a turn."""
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, turns
        turns += 1


@given(value=VALUES, indent=st.sampled_from([None, 2]), is_ascii=st.booleans())
def test_values_are_those_of_json(value: Any, indent: int | None, is_ascii: bool) -> None:
    """Whatever the value and the blanks between, it is what `json.loads` returns."""
    text = json.dumps(value, indent=indent, ensure_ascii=is_ascii)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradual, "_STEP_CHARACTERS", 0)
        found, _ = parsed(parsed_in_steps(text))
    assert found == json.loads(text)
    assert json.dumps(found) == json.dumps(json.loads(text))


def test_a_large_text_takes_several_steps() -> None:
    """A megabyte of tests is parsed in at least three steps, a small text in one."""
    tests = {"inputs": ["x" * 1000] * 1000, "outputs": ["y"] * 1000}
    found, turns = parsed(parsed_in_steps(json.dumps(tests)))
    assert found == tests
    assert turns >= 3
    assert parsed(parsed_in_steps(json.dumps({"inputs": ["x"], "outputs": ["y"]})))[1] == 0


async def test_others_get_their_turn(tmp_path: Path) -> None:
    """While a problem with megabytes of tests is read, another task goes on; both readers share."""
    path = tmp_path / "rows.jsonl"
    tests = json.dumps({"inputs": ["7 " * 50_000] * 40, "outputs": ["y"] * 40})
    path.write_text(json.dumps({"problem": "large", "tests": tests}) + "\n")
    problems = load_problems(str(path), evaluation_fraction=0)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        problem = await problems.problem("train", 0)
        nursery.cancel_scope.cancel()

    assert len(problem.tests) == 40
    assert problem.tests[39].input == "7 " * 50_000
    assert turns >= 8
    assert await problems.problem("train", 0) is problem
