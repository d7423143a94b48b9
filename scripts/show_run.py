"""Show what a run of rltrain left: the curve in the terminal, the files, whether it learned.

    python scripts/show_run.py RUN_FOLDER [--expected-rise 0.3]

Ends with status 1 if the held-out solve rate did not rise as far as expected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rltrain.metrics import read_records

HEIGHT = 12
FILES = {
    "metrics.jsonl": "each training step in numbers",
    "evaluations.jsonl": "the evaluations",
    "reward.png": "the curve",
    "samples.md": "answers with their verdicts",
    "adapter": "the trained LoRA adapter, in peft's format",
    "server.log": "what the environment server logged",
}


def plot(values: Sequence[float | None]) -> str:
    """Return a curve of numbers from 0 to 1, one column each; None leaves its column empty."""
    lines = []
    for level in range(HEIGHT, -1, -1):
        label = f"{level / HEIGHT:.2f} ┤" if level % (HEIGHT // 4) == 0 else "     │"
        dots = (" ●" if v is not None and round(v * HEIGHT) == level else "  " for v in values)
        lines.append((label + "".join(dots)).rstrip())
    lines.append("     └" + "──" * len(values))
    lines.append(f"      training step 1 to {len(values)}")
    return "\n".join(lines)


def show(folder: Path, expected_rise: float) -> bool:
    """Print it all; return whether the rise is as expected."""
    steps = read_records(folder / "metrics.jsonl")
    evaluations = read_records(folder / "evaluations.jsonl")
    print("\nmean reward of the sampled programs\n")
    print(plot([step["reward_mean"] for step in steps]))
    print(f"\nrun folder: {folder}")
    for name, meaning in FILES.items():
        if (folder / name).exists():
            print(f"  {name:18} {meaning}")

    if len(evaluations) < 2:
        print("\nNot known whether it learned: the run has no evaluation before and after.")
        return False
    before, after = evaluations[0], evaluations[-1]
    if before["solved"] is None or after["solved"] is None:
        print("\nNot known whether it learned: an evaluation has no scored answer.")
        return False
    rise = after["solved"] - before["solved"]
    print(
        f"\nheld-out problems solved, all tests, greedy decoding: {before['solved']:.1%} before, "
        f"{after['solved']:.1%} after ({before['episodes']} problems, none of them trained on)"
    )
    if rise < expected_rise:
        print(
            f"It did NOT learn as expected: a rise of {rise:+.2f}, expected {expected_rise:+.2f}."
        )
        return False
    print(f"It learned: {rise:+.2f}.")
    return True


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--expected-rise", type=float, default=0.3)
    arguments = parser.parse_args()
    sys.exit(0 if show(arguments.folder, arguments.expected_rise) else 1)


if __name__ == "__main__":
    main()
