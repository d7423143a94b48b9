"""The memory behind the status page: what it counts, what it forgets, what it never keeps."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envhost.history import BIN_COUNT, BIN_SECONDS, Bin, History


def _note(history: History, verdict: Any, problem_id: str = "p", **facts: Any) -> None:
    history.note_verdict(
        {"verdict": verdict, **facts}, session="abcd", problem_id=problem_id, answer="print(1)"
    )


def test_a_stretch_holds_what_was_counted_in_it() -> None:
    """Three steps and two verdicts, then a page is turned, then one more step."""
    history = History()
    history.tick(100.0)
    history.steps += 3
    _note(history, "AC")
    _note(history, "WA")
    history.tick(100.0 + BIN_SECONDS)
    history.steps += 1
    _note(history, "AC")

    assert history.bins() == [Bin(3, {"AC": 1, "WA": 1}), Bin(1, {"AC": 1})]
    assert dict(history.verdicts) == {"AC": 2, "WA": 1}


def test_no_page_is_turned_early() -> None:
    """A tick within the stretch changes nothing."""
    history = History()
    history.tick(0.0)
    history.steps += 1
    history.tick(BIN_SECONDS - 0.001)

    assert history.bins() == [Bin(1, {})]


def test_a_machine_that_slept_leaves_empty_stretches() -> None:
    """Three stretches passed between two ticks: what was counted stands in the first."""
    history = History()
    history.tick(0.0)
    history.steps += 5
    history.tick(3.5 * BIN_SECONDS)

    assert [one.steps for one in history.bins()] == [5, 0, 0, 0]
    history.tick(4 * BIN_SECONDS)  # the next page is turned on the same grid
    assert len(history.bins()) == 5


@given(st.lists(st.floats(min_value=0, max_value=1e7), max_size=30))
def test_the_memory_of_time_is_bounded(pauses: list[float]) -> None:
    """However long and however unevenly it runs; every step is in the total."""
    history, now = History(), 0.0
    for pause in pauses:
        now += pause
        history.steps += 1
        history.tick(now)

    assert len(history.bins()) <= BIN_COUNT + 1
    assert sum(one.steps for one in history.bins()) <= history.steps == len(pauses)


def test_the_rate_is_steps_over_the_last_stretches() -> None:
    """20 steps in a whole stretch and 10 in half a one, which is 30 in 15 seconds."""
    history = History()
    assert history.steps_per_second(7.0) == 0.0
    history.tick(0.0)
    assert history.steps_per_second(0.0) == 0.0
    history.steps += 20
    history.tick(BIN_SECONDS)
    history.steps += 10

    assert history.steps_per_second(1.5 * BIN_SECONDS) == pytest.approx(30 / (1.5 * BIN_SECONDS))


def test_failed_programs_are_the_last_twenty_newest_first() -> None:
    """Right ones are not among them."""
    history = History()
    for number in range(30):
        _note(history, "AC", f"right{number}")
        _note(history, "WA", f"wrong{number}", tests_passed=number, tests_total=30)

    failures = history.failures()
    assert [failure.problem_id for failure in failures] == [f"wrong{n}" for n in range(29, 9, -1)]
    assert (failures[0].number, failures[0].tests_passed, failures[0].tests_total) == (30, 29, 30)


def test_a_programs_text_is_kept_only_where_programs_are_recorded() -> None:
    """Neither the answer nor what the program wrote to standard error."""
    silent, recording = History(), History(keeps_programs=True)
    for history in (silent, recording):
        _note(history, "RE", stderr_tail="ZeroDivisionError")

    assert (silent.failures()[0].answer, silent.failures()[0].stderr_tail) == (None, None)
    assert recording.failures()[0].answer == "print(1)"
    assert recording.failures()[0].stderr_tail == "ZeroDivisionError"
    assert "print(1)" not in repr(recording.failures())


def test_a_long_answer_is_cut() -> None:
    """4,096 characters of it, and a sign that there was more."""
    history = History(keeps_programs=True)
    history.note_verdict({"verdict": "WA"}, session="", problem_id="", answer="x" * 10_000)

    assert history.failures()[0].answer == "x" * 4096 + "\n…"


def test_the_slowest_problems_are_those_with_the_longest_mean() -> None:
    """One long run among short ones does not make a problem slow."""
    history = History()
    for problem, seconds in (("a", 1.0), ("a", 3.0), ("b", 2.5), ("c", 0.5), ("d", None)):
        _note(history, "AC", problem, wall_seconds=seconds)

    slow = history.slowest(2)
    assert [
        (one.problem_id, one.programs, one.mean_seconds, one.longest_seconds) for one in slow
    ] == [("b", 1, 2.5, 2.5), ("a", 2, 2.0, 3.0)]


def test_the_number_of_problems_is_bounded_and_slow_ones_stay() -> None:
    """Ten thousand problems pass, and the one that takes longest is still known."""
    history = History()
    _note(history, "AC", "slow", wall_seconds=50.0)
    for number in range(10_000):
        _note(history, "AC", f"p{number}", wall_seconds=0.1)

    assert len(history._problems) <= 4096
    assert history.slowest(1)[0].problem_id == "slow"


def test_the_number_of_verdicts_is_bounded() -> None:
    """An environment of somebody's own may call them anything."""
    history = History()
    for number in range(100):
        _note(history, f"verdict-{number}")
    _note(history, "V" * 1000)
    _note(history, ["a", 1])

    assert len(history.verdicts) == 17
    assert history.verdicts["other"] == 86


@given(
    st.dictionaries(
        st.sampled_from(["tests_passed", "tests_total", "wall_seconds", "stderr_tail"]),
        st.none() | st.booleans() | st.text() | st.floats() | st.integers() | st.lists(st.none()),
    )
)
def test_no_metadata_is_an_error(facts: dict[str, Any]) -> None:
    """Whatever an environment puts there is a number, a text or nothing."""
    history = History(keeps_programs=True)
    history.note_verdict({"verdict": "WA", **facts}, session="", problem_id="p", answer=None)

    (failure,) = history.failures()
    assert failure.answer is None
    assert failure.wall_seconds is None or 0 <= failure.wall_seconds < 1e9
    assert failure.tests_passed is None or type(failure.tests_passed) is int
