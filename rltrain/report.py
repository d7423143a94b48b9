"""What a run leaves to look at: its page, the curve of its rewards, its sampled answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import SetupError
from .metrics import read_records, reward_spread
from .page import RunFiles, comparison_page, run_page
from .text import visible

__all__ = ["compare_runs", "write_page", "write_report"]


def write_page(folder: Path) -> None:
    """Write `report.html` from the files of a run's folder; cheap enough for every step."""
    page = run_page(_read(folder))
    partial = folder / ".report.html.partial"
    partial.write_text(page)
    partial.replace(folder / "report.html")  # a browser that reloads sees a whole page


def write_report(folder: Path) -> None:
    """Write `report.html` and `samples.md` and draw `reward.png`: all there is to look at."""
    run = _read(folder)
    write_page(folder)
    if run.metrics:
        _draw_curve(folder / "reward.png", run.metrics, run.evaluations)
    (folder / "samples.md").write_text(samples_page(run.samples))


def compare_runs(folders: Sequence[Path], output: Path) -> None:
    """Write a page that lays the runs in these folders side by side.

    Raises:
        SetupError: A folder holds no run.
    """
    for folder in folders:
        if not (folder / "metrics.jsonl").exists():
            raise SetupError(f"{folder}: expected a run's folder, found no metrics.jsonl")
    output.write_text(comparison_page([_read(folder) for folder in folders]))


def _read(folder: Path) -> RunFiles:
    return RunFiles(
        name=folder.resolve().name,
        metrics=read_records(folder / "metrics.jsonl"),
        evaluations=read_records(folder / "evaluations.jsonl"),
        samples=read_records(folder / "samples.jsonl"),
    )


def _draw_curve(
    path: Path, metrics: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]
) -> None:
    """Draw the mean reward of each training step with its spread, and the evaluations."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    scored = [record for record in metrics if record["reward_mean"] is not None]
    steps = [record["step"] for record in scored]
    means = [record["reward_mean"] for record in scored]
    spreads = [reward_spread(record) for record in scored]
    lows, highs = [low for low, _ in spreads], [high for _, high in spreads]
    axes.fill_between(steps, lows, highs, alpha=0.15, linewidth=0)
    axes.plot(steps, means, label="training, sampled")
    held_out = [record for record in evaluations if record["reward_mean"] is not None]
    axes.plot(
        [record["step"] for record in held_out],
        [record["reward_mean"] for record in held_out],
        marker="o",
        label="held out, greedy",
    )
    axes.set_xlabel("training step")
    axes.set_ylabel("mean reward")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=120)


def samples_page(samples: Sequence[Mapping[str, Any]]) -> str:
    """Return the samples as Markdown; what models and environments wrote stands in code blocks."""
    parts = ["# Sampled answers\n"]
    for sample in samples:
        kind = "evaluation" if sample["is_evaluation"] else "training"
        reward = "not scored" if sample["reward"] is None else f"reward {sample['reward']:g}"
        parts.append(f"## Step {sample['step']}, {kind}: {reward}\n")
        parts.append(_block(sample["prompt"]))
        for turn in sample["turns"]:
            verdict = f" Verdict: `{_word(turn['verdict'])}`." if turn["verdict"] else ""
            cut = " Cut by the length limit." if turn["finish"] == "length" else ""
            parts.append(f"Answer.{verdict}{cut}\n")
            parts.append(_block(turn["completion"]))
        if sample["failure"]:
            parts.append("Failure:\n")
            parts.append(_block(sample["failure"]))
    return "\n".join(parts)


def _block(text: str) -> str:
    """Return a code block that the text cannot end, control characters spelled out."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{visible(text)}\n{fence}\n"


def _word(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_. -]", "?", text)[:40]
