"""Text of unknown origin, made safe to show: control characters spelled out."""

from __future__ import annotations

__all__ = ["one_line", "visible"]


def visible(text: str) -> str:
    """Return a text with its control characters spelled out, line breaks and tabs kept."""
    return _spelled_out(text.replace("\r\n", "\n"), keep="\n\t")


def one_line(text: str) -> str:
    """Return a text with all its control characters spelled out, line breaks too."""
    return _spelled_out(text, keep="")


def _spelled_out(text: str, *, keep: str) -> str:
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )
