"""Comparing outputs and returned values."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from envhost.judge.compare import CHECKERS, Tolerance, outputs_match, text_of, values_match

SMALL = Tolerance()
CASES = {
    # (checker, expected, actual): whether they match
    ("lines", "42\n", "42"): True,
    ("lines", "42\n", "42\r\n"): True,
    ("lines", "1 2\n3\n", "1 2  \n3\n\n\n"): True,
    ("lines", "1 2\n", "1  2\n"): True,
    ("lines", "1 2  3\n", "1\t2 3\n"): True,
    ("lines", "1.5 2\n", "1.50   2\n"): True,
    ("lines", "1 2\n", "12\n"): False,
    ("lines", "1 2\n", " 1 2\n"): False,
    ("lines", "  *\n ***\n", "*\n***\n"): False,
    ("lines", "a\n  b\n", "a\n  b \n"): True,
    ("lines", "a\n  b\n", "a\n\tb\n"): False,
    ("floats", "0.5 1\n", "0.5   1\n"): True,
    ("lines", "1 2\n", "1\n2\n"): False,
    ("lines", "1\n2\n", "1\n"): False,
    ("lines", "1\n", "1\njunk\n"): False,
    ("lines", "0.333333", "0.33333333"): True,
    ("lines", "0.333333", "0.3334"): False,
    ("lines", "1.0", "1"): True,
    ("lines", "1", "1.0"): False,
    ("lines", "1e3", "1000"): True,
    ("lines", "1000000007", "1000000008"): False,
    ("lines", "1000000.5", "1000001.2"): True,
    ("lines", "Yes", "yes"): False,
    ("lines", "0.5", "0_0.5"): False,
    ("lines", "0.5", "nan"): False,
    ("lines", "0.5", "inf"): False,
    ("lines", "", ""): True,
    ("lines", "", "\n \n"): True,
    ("lines", "", "0"): False,
    ("lines", "a\n\nb", "a\nb"): False,
    ("exact", " 42\n", "42"): True,
    ("exact", "0.5", "0.50"): False,
    ("exact", "1 2", "1  2"): False,
    ("tokens", "1 2\n3", "1\n2   3\n"): True,
    ("tokens", "1 2", "1 2 3"): False,
    ("tokens", "1 2 3", "1 2"): False,
    ("tokens", "1 2", "2 1"): False,
    ("tokens", "", " \n"): True,
    ("floats", "0.5", "0.52"): True,
    ("floats", "0.5", "0.58"): False,
}


@pytest.mark.parametrize(("checker", "expected", "actual"), CASES)
def test_outputs(checker: str, expected: str, actual: str) -> None:
    """Each kind of difference counts or does not, as the checker's rule says."""
    tolerance = Tolerance(0.05, 0.0)
    match = outputs_match(checker, expected, actual.encode(), tolerance)
    assert match == CASES[checker, expected, actual]


@pytest.mark.parametrize("checker", CHECKERS)
@given(text=st.text())
def test_reflexive(checker: str, text: str) -> None:
    """Every output matches itself."""
    assert outputs_match(checker, text, text.encode("utf-8", "surrogatepass"), SMALL)


@given(lines=st.lists(st.lists(st.sampled_from(["a", "1", "2.5"]))), blanks=st.text(" \t\r"))
def test_trailing_white_space_counts_on_neither_side(lines: list[list[str]], blanks: str) -> None:
    """Blanks at the ends of lines and empty lines at the end change nothing, on either side."""
    plain = "\n".join(" ".join(line) for line in lines)
    blank = "".join(" ".join(line) + blanks + "\n" for line in lines) + "\n"
    assert outputs_match("lines", plain, blank.encode(), SMALL)
    assert outputs_match("lines", blank, plain.encode(), SMALL)


BLANKS = st.text(" \t", min_size=1, max_size=4)


@given(words=st.lists(st.sampled_from(["a", "1", "2.5"]), min_size=1), data=st.data())
def test_white_space_between_tokens_is_all_alike(words: list[str], data: st.DataObject) -> None:
    """Any run of blanks and tabs between two tokens is one, on either side."""
    plain = " ".join(words)
    wide = words[0] + "".join(data.draw(BLANKS) + word for word in words[1:])
    assert outputs_match("lines", plain, wide.encode(), SMALL)
    assert outputs_match("lines", wide, plain.encode(), SMALL)


WORDS = st.lists(st.sampled_from(["1", "2", "33", "x", "0.5"]), min_size=1)


@pytest.mark.parametrize("checker", CHECKERS)
@given(expected=WORDS, actual=WORDS)
def test_never_a_match_of_sets(checker: str, expected: list[str], actual: list[str]) -> None:
    """Outputs of the same words in another order or number never match."""
    assume(expected != actual)
    assert not outputs_match(checker, " ".join(expected), " ".join(actual).encode(), SMALL)


@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("unit", [b"\n", b" ", b"x ", b"x\n", b"\xff", b"1.5 "])
def test_a_huge_output_is_quickly_wrong(checker: str, unit: bytes) -> None:
    """16 MiB of anything is compared in a moment: the server does nothing else meanwhile."""
    huge = unit * (16 * 1024 * 1024 // len(unit))
    started = time.perf_counter()
    assert not outputs_match(checker, "1.5 2\n3\n", huge, SMALL)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(
    ("expected", "actual", "is_match"),
    [
        (1, 1, True),
        (1, 2, False),
        (0.1 + 0.2, 0.3, True),
        (2.0, 2, True),
        ([1, [2.0, "a"]], [1, [2, "a"]], True),
        ([1, 2], [1, 2, 3], False),
        ([1, 2, 3], [1, 2], False),
        ([1, None], [1], False),
        ({"a": 0.5}, {"a": 0.5000000001}, True),
        ({"a": 1}, {"b": 1}, False),
        ("1", 1, False),
        (None, None, True),
        (None, 0, False),
        ([], None, False),
        (float("nan"), float("nan"), True),
        (0.5, float("nan"), False),
        (0.5, True, False),
        (10**20, 10**20 + 1, False),
    ],
)
def test_values(expected: object, actual: object, is_match: bool) -> None:
    """Returned values are compared as JSON, floats within the tolerance."""
    assert values_match(expected, actual, SMALL) is is_match


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        (5, "5\n"),
        (2.5, "2.5\n"),
        ([1, 2], "1\n2\n"),
        ([[1, 2], ["a", 3.5]], "1 2\na 3.5\n"),
        ([], ""),
    ],
)
def test_text_of(value: object, text: str) -> None:
    """A data set's lists and numbers become text as a program would read or print them."""
    assert text_of(value) == text
