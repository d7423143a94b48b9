"""Write the problems of `scripts/classics` as the data set `bundled:classics`.

The file is a function of the sources alone: run it again and compare the bytes.
"""

from __future__ import annotations

import argparse
import inspect
import json
import subprocess
import sys
from pathlib import Path
from random import Random
from textwrap import indent

from classics import Checker, Classic, all_classics

ROOT = Path(__file__).resolve().parent.parent
HELD_OUT_EVERY = 4
DEFAULT_OUTPUT = ROOT / "envhost" / "problems" / "classics.jsonl"

CHECKER_MAIN = """

import sys
import traceback


def _read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


try:
    right = {name}(*map(_read, sys.argv[1:4]))
except Exception:
    # Status 1 would blame the answer for our own mistake.
    traceback.print_exc()
    sys.exit(3)
sys.exit(0 if right else 1)
"""


def checker_source(checker: Checker) -> str:
    """Return a program: `checker.py INPUT EXPECTED ACTUAL` exits with 0 (right) or 1 (wrong)."""
    return inspect.getsource(checker) + CHECKER_MAIN.replace("{name}", checker.__name__)


def run(program: str, stdin: str) -> str:
    """Return what a program of ours prints; it must end well."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        input=stdin,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.replace("\r\n", "\n")


def statement(classic: Classic) -> str:
    """Return what contestants read: the text and an example with its output."""
    output = run(classic.solutions[0], classic.example)
    return (
        f"{classic.statement}\n"
        f"Example input:\n{indent(classic.example, '    ')}\n"
        f"Example output:\n{indent(output, '    ')}"
    )


def row(number: int, classic: Classic) -> dict[str, str]:
    """Return one line of the data set; every fourth problem is held out."""
    inputs = [classic.example, *classic.inputs(Random(classic.problem_id))]
    outputs = [run(classic.solutions[0], text) for text in inputs]
    return {
        "problem_id": f"classics/{classic.problem_id}",
        "problem": statement(classic),
        "split": "test" if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else "train",
        "tests": json.dumps({"inputs": inputs, "outputs": outputs}),
        "checker": checker_source(classic.checker) if classic.checker else "",
        "solutions": json.dumps(classic.solutions),
        "wrong_solutions": json.dumps([wrong.program for wrong in classic.wrong]),
        "wrong_verdicts": json.dumps([wrong.verdict for wrong in classic.wrong]),
    }


def main() -> None:
    """Write the file and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    output: Path = parser.parse_args().output
    lines = [json.dumps(row(*numbered)) + "\n" for numbered in enumerate(all_classics())]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("".join(lines), encoding="utf-8")
    print(f"{output}: {len(lines)} problems, {output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
