"""The program in an answer: a model's text to source code.

Owns the rules only; the table of cases is in the tests.
"""

from __future__ import annotations

import re
import textwrap

__all__ = ["extract_code"]

_LANGUAGES = frozenset(("", "py", "py3", "python", "python3"))
_FENCE = re.compile(r"^\s*(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[\w+#.-]*)(?P<rest>.*)$")


def extract_code(answer: str) -> str | None:
    """Return the last fenced block that is Python or names no language; None where there is none.

    What a `<think>` part says does not count; a fence that is never closed runs to the end; a
    fence of more characters may hold others; a block that is indented as a whole is dedented.
    """
    text = answer.replace("\r\n", "\n")
    _, separator, after = text.rpartition("</think>")
    if separator:
        text = after
    elif "<think>" in text:
        text = text.partition("<think>")[0]
    found = None
    lines = iter(text.split("\n"))
    for line in lines:
        opening = _FENCE.match(line)
        if opening is None:
            continue
        fence, rest = opening["fence"], opening["rest"].strip()
        if rest.endswith(fence):  # a block on one line
            block = [rest.removesuffix(fence)]
        else:
            block = []
            for inner in lines:
                if _closes(inner, fence):
                    break
                block.append(inner)
        if opening["language"].lower() in _LANGUAGES:
            found = block
    if found is None:
        return None
    return textwrap.dedent("\n".join(found)) + "\n"


def _closes(line: str, fence: str) -> bool:
    bare = line.strip()
    return len(bare) >= len(fence) and set(bare) == {fence[0]}
