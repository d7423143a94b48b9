"""The program in an answer: a model's text to source code.

Owns the rules only; the table of cases is in the tests. Every rule reads each line a bounded number
of times, since answers are as long and as odd as their writers like.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

__all__ = ["extract_code"]

_PYTHON = frozenset(("py", "py3", "python", "python3"))
_FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)(?P<rest>.*)$")


def extract_code(answer: str) -> str | None:
    """Return the last fenced block that is Python or names no language; None where there is none.

    What a `<think>` part says does not count. A fence that is never closed runs to the end; one of
    more characters, or of another language, may hold Python blocks. A block that is indented as a
    whole is dedented; an empty one is none.
    """
    lines = _after_thinking(answer.replace("\r\n", "\n")).split("\n")
    found: Sequence[str] | None = None
    outer = ""  # the fence of an open block of another language
    at = 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if outer and _closes(line, outer):
            outer = ""
            continue
        opening = _opening(line)
        if opening is None:
            continue
        fence, language, rest = opening
        is_python = language in _PYTHON or not (language or outer)
        if rest.endswith(fence):  # a block on one line
            block: Sequence[str] = [rest.removesuffix(fence)]
        elif is_python:
            block, at = _block(lines, at, fence)
        else:
            outer = outer or fence
        if is_python and any(map(str.strip, block)):
            found = block
    return None if found is None else textwrap.dedent("\n".join(found)) + "\n"


def _after_thinking(text: str) -> str:
    _, separator, after = text.rpartition("</think>")
    return after if separator else text.partition("<think>")[0]


def _opening(line: str) -> tuple[str, str, str] | None:
    """Return the fence, the language and the rest of a line that opens a block."""
    match = _FENCE.match(line)
    if match is not None:
        return match["fence"], match["language"].lower(), match["rest"].strip()
    # After prose a fence opens a block only where it names the language.
    _, fence, language = line.rstrip().rpartition("```")
    return (fence, language.lower(), "") if fence and language.lower() in _PYTHON else None


def _block(lines: Sequence[str], start: int, fence: str) -> tuple[Sequence[str], int]:
    """Return a block's lines and where to read on.

    A fence at the end of a line of code closes a block too, where no line of its own does before
    the next block opens.
    """
    glued = None
    for index in range(start, len(lines)):
        line = lines[index]
        if _closes(line, fence):
            return lines[start:index], index + 1
        if glued is not None and _opening(line) is not None:
            break
        if glued is None and line.rstrip().endswith(fence):
            glued = index
    if glued is None:
        return lines[start:], len(lines)
    return [*lines[start:glued], lines[glued].rstrip().removesuffix(fence)], glued + 1


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}
