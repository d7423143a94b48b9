"""Log lines and metrics: what they show, and what can never get into them."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envhost.telemetry import (
    Telemetry,
    configure_logging,
    log_event,
    log_traceback,
    printable,
    session_id,
)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Return what is logged, and give the log set-up back as it was."""
    logger = logging.getLogger("envhost")
    before = logger.handlers[:], logger.level, logger.propagate
    stream = io.StringIO()
    configure_logging("info", stream)
    yield stream
    logger.handlers[:], logger.level, logger.propagate = before


def test_an_event_is_one_line(log: io.StringIO) -> None:
    """Time, name, session, then key=value; None is left out and floats are short."""
    token = session_id.set("abcd")
    log_event("step", verdict="AC", tests=3, seconds=0.123456789, reward=None)
    session_id.reset(token)
    log_event("server.draining", running=0)

    first, second = log.getvalue().splitlines()
    assert first[8:] == " step session=abcd verdict=AC tests=3 seconds=0.1235"
    assert second[8:] == " server.draining running=0"


@pytest.mark.parametrize("value", ["a b", "a\nb", "a\x1b[31m", "a=b", "\u202e", "a\r", "'", "\x85"])
def test_a_value_cannot_forge_a_line_or_steer_a_terminal(log: io.StringIO, value: str) -> None:
    """Anything but a plain word is quoted and escaped."""
    log_event("reset", name=value)

    assert log.getvalue().count("\n") == 1
    assert ascii(value) in log.getvalue()
    assert log.getvalue()[:-1].isprintable()


def test_percent_signs_are_no_format(log: io.StringIO) -> None:
    """Neither in an event nor in a traceback's text."""
    log_event("reset", name="%s%d%(x)s")
    log_traceback("step.failed", ValueError("%s %d"), ref="1")

    assert "%s%d%(x)s" in log.getvalue()
    assert "ValueError: %s %d" in log.getvalue()


def test_a_traceback_is_set_off_and_escaped(log: io.StringIO) -> None:
    """An exception's text cannot pass for a log line."""
    with pytest.raises(ValueError) as caught:
        int("\x1b[31m\n12:00:00 session.opened peer=evil\r\ud800")
    error = ValueError("\x1b[31m\n12:00:00 session.opened peer=evil\r\ud800")
    error.__cause__ = caught.value

    log_traceback("step.failed", error, ref="abc")

    lines = log.getvalue().splitlines()
    assert "step.failed ref=abc" in lines[0]
    assert all(line.startswith("  | ") for line in lines[2:])
    assert all(line.isprintable() for line in lines)


def test_events_below_the_level_cost_nothing(log: io.StringIO) -> None:
    """They are not even made into text."""

    class Unprintable:
        def __str__(self) -> str:
            raise AssertionError

    log_event("reset", logging.DEBUG, value=Unprintable())

    assert log.getvalue() == ""


@given(st.text())
def test_printable_text_is_printable(text: str) -> None:
    """And unchanged where it was already."""
    shown = printable(text)

    assert shown.isprintable()
    assert shown == text or not text.isprintable()


def test_servers_count_apart() -> None:
    """Two servers in one process have a registry each."""
    one, two = Telemetry(), Telemetry()
    one.sessions_opened.inc()

    assert b"envhost_sessions_opened_total 1.0" in one.exposition()
    assert b"envhost_sessions_opened_total 0.0" in two.exposition()


def test_only_judged_steps_count_as_verdicts() -> None:
    """Other environments' metadata leaves the sandbox's metrics alone."""
    telemetry = Telemetry()
    telemetry.note_verdict({"said": "hello"})
    telemetry.note_verdict({"verdict": "WA", "queue_seconds": None, "wall_seconds": 0.5})

    text = telemetry.exposition().decode()
    assert 'envhost_verdicts_total{verdict="WA"} 1.0' in text
    assert "envhost_sandbox_seconds_count 1.0" in text
    assert "envhost_sandbox_seconds_sum 0.5" in text
