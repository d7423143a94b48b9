"""Text of unknown origin cannot steer a terminal."""

from __future__ import annotations

from rltrain.text import one_line, visible


def test_control_characters_are_spelled_out() -> None:
    """Escape sequences, also the one-byte ones, become letters."""
    assert one_line("a\x1b[2Jb\nc\x9b\u202e") == r"a\x1b[2Jb\nc\x9b\u202e"


def test_lines_may_be_kept() -> None:
    """Line breaks and tabs stay where a block of text is shown; a lone return does not."""
    assert visible("a\r\nb\tc\rd") == "a\nb\tc\\rd"
