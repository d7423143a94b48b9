"""README and docs as programs: their fenced blocks, and one shell script for each page.

A block of `sh` or `python` is run, in the order of its page, unless the line above it says why not:

    <!-- needs: another machine -->     it cannot run here
    <!-- run by: tests/test_x.py -->    that file runs it
    <!-- file: name.py -->              it is the content of a file that later blocks use

In a block without a language, lines that begin with `$ ` are run; what follows them is output.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

__all__ = ["OWN_TESTS", "ROOT", "Block", "blocks", "pages", "script"]

ROOT = Path(__file__).parent.parent
OWN_TESTS = {"docs/writing-an-environment.md": "tests/test_writing_an_environment.py"}
"""Pages whose blocks a test of their own reads and runs, since they need more than an order."""
_FENCE = re.compile(r"^( *)```(\w*)$")
_MARKER = re.compile(r"^ *<!-- (needs|run by|file): (.+) -->$")

# `serve` keeps a server beside what follows, once it serves; a page's next one takes its place.
_BEGIN = """
set -euo pipefail
stop() {
    [ -n "${server-}" ] || return 0
    kill "$server" || true
    tail --pid="$server" -f /dev/null # until it has ended
}
serve() {
    stop
    exec 3< <(exec "$@" 2>>server.log)
    server=$!
    read -r line <&3 || { cat server.log; exit 1; }
    echo "$line"
}
trap stop EXIT
"""


@frozen(kw_only=True)
class Block:
    """A fenced block: where it begins, its language, its text, and the marker above it."""

    page: str
    line: int
    language: str
    text: str
    marker: tuple[str, str] | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> str:
        """The shell commands in it."""
        if self.language == "sh":
            return self.text
        if self.language == "":
            return "".join(f"{line[2:]}\n" for line in self.text.splitlines() if line[:2] == "$ ")
        return ""


def pages() -> list[str]:
    """Return the names of README and of all pages of docs."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found]


def blocks(page: str) -> Iterator[Block]:
    """Return a page's fenced blocks in order."""
    lines = iter(enumerate((ROOT / page).read_text().splitlines(), start=1))
    above = ""
    for number, line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            above = line or above
            continue
        indent, language = fence.groups()
        text = ""
        for _, inner in lines:
            if inner == f"{indent}```":
                break
            text += f"{inner.removeprefix(indent)}\n"
        found = _MARKER.match(above)
        marker = (found[1], found[2]) if found else None
        yield Block(page=page, line=number, language=language, text=text, marker=marker)
        above = ""


def script(page: str, port: int) -> str:
    """Return a bash script of all that a page runs, at a port of its own instead of 8000."""
    parts = []
    for block in [] if page in OWN_TESTS else blocks(page):
        kind, argument = block.marker or ("", "")
        if kind == "file":
            parts.append(f"cat >{argument} <<'END_OF_FILE'\n{block.text}END_OF_FILE\n")
        elif kind:
            continue
        elif block.language == "python":
            parts.append(f"python - <<'END_OF_FILE'\n{block.text}END_OF_FILE\n")
        elif block.commands:
            parts.append(
                re.sub(r"(?m)^python -m envhost serve", "serve \\g<0> --port 8000", block.commands)
            )
    if not parts:
        return ""
    return re.sub(r"\b8000\b", str(port), "\n".join([_BEGIN, *parts]))
