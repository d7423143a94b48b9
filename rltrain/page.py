"""A run's page: one HTML file without scripts or links, readable on a phone.

Pure: records in, text out. Everything that a model or an environment wrote is escaped, and the
page's own policy forbids whatever might get through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from attrs import frozen

from .charts import Series, line_chart, stacked_chart
from .metrics import reward_spread
from .text import visible

__all__ = ["RunFiles", "comparison_page", "run_page"]

_SAMPLES = 10

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 46rem; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
figure { margin: 1.5rem 0; } svg { width: 100%; height: auto; }
svg text { font-size: 11px; fill: currentColor; } .grid { stroke: currentColor; opacity: .15; }
figcaption span { margin-left: 1rem; font-size: .85rem; white-space: nowrap; }
figcaption i { display: inline-block; width: .7rem; height: .7rem; margin-right: .3rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td, th { text-align: left; padding: .25rem .5rem; border-bottom: 1px solid #8884; }
pre { overflow-x: auto; padding: .6rem; background: #8882; border-radius: .3rem; font-size: .8rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
details { margin: .5rem 0; } summary { cursor: pointer; }
"""

Records = Sequence[Mapping[str, Any]]


@frozen(kw_only=True)
class RunFiles:
    """What was read from a run's folder."""

    name: str
    metrics: Records
    evaluations: Records
    samples: Records


def run_page(run: RunFiles) -> str:
    """Return the page of one run."""
    body = [
        f"<h1>{escape(run.name)}</h1>",
        _summary_table([run]),
        line_chart("Mean reward by training step", [*_rewards(run)]),
        line_chart("Solved", [_series("training", run.metrics, "solved")]),
        line_chart(
            "Policy gap: mean |log π − log μ| on fresh tokens",
            [_series("gap", run.metrics, "policy_gap")],
        ),
        line_chart("Entropy", [_series("entropy", run.metrics, "entropy")]),
        line_chart(
            "Sampled tokens an episode", [_series("length", run.metrics, "completion_tokens")]
        ),
        stacked_chart("Verdicts", _steps(run.metrics), _verdicts(run.metrics)),
        stacked_chart("Seconds a step", _steps(run.metrics), _seconds(run.metrics)),
        "<h2>Sampled answers</h2>",
        *(_sample(sample) for sample in run.samples[-_SAMPLES:]),
    ]
    return _document(run.name, body)


def comparison_page(runs: Sequence[RunFiles]) -> str:
    """Return a page that lays runs side by side."""
    body = [
        "<h1>Runs compared</h1>",
        _summary_table(runs),
        line_chart("Mean reward", [_series(r.name, r.metrics, "reward_mean") for r in runs]),
        line_chart("Held out", [_series(r.name, r.evaluations, "reward_mean") for r in runs]),
        line_chart("Entropy", [_series(r.name, r.metrics, "entropy") for r in runs]),
        line_chart("Seconds a step", [_series(r.name, r.metrics, "step_seconds") for r in runs]),
    ]
    return _document("Runs compared", body)


def _document(title: str, body: Sequence[str]) -> str:
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>"
        + "\n".join(part for part in body if part)
        + "</body></html>\n"
    )


def _summary_table(runs: Sequence[RunFiles]) -> str:
    rows = [
        "<tr><th>run<th>steps<th>reward, first → last<th>held out, before → best → last<th>s a step"
    ]
    for run in runs:
        held_out = _values(run.evaluations, "reward_mean")
        best = max(held_out) if held_out else None
        rewards, seconds = _values(run.metrics, "reward_mean"), _values(run.metrics, "step_seconds")
        mean = sum(seconds) / len(seconds) if seconds else None
        rows.append(
            f"<tr><td>{escape(run.name)}<td>{len(run.metrics)}"
            f"<td>{_shown(_at(rewards, 0))} → {_shown(_at(rewards, -1))}"
            f"<td>{_shown(_at(held_out, 0))} → {_shown(best)} → {_shown(_at(held_out, -1))}"
            f"<td>{_shown(mean)}"
        )
    return f"<table>{''.join(rows)}</table>"


def _rewards(run: RunFiles) -> list[Series]:
    scored = [record for record in run.metrics if record["reward_mean"] is not None]
    training = Series(
        name="training, sampled (± deviation)",
        points=[(record["step"], record["reward_mean"]) for record in scored],
        band=[reward_spread(record) for record in scored],
    )
    return [training, _series("held out, greedy", run.evaluations, "reward_mean")]


def _series(name: str, records: Records, key: str) -> Series:
    return Series(
        name=name,
        points=[(record["step"], record[key]) for record in records if record[key] is not None],
    )


def _steps(records: Records) -> list[float]:
    return [record["step"] for record in records]


def _verdicts(records: Records) -> dict[str, list[float]]:
    names = sorted({verdict for record in records for verdict in record["verdicts"]})
    parts = {name: [float(record["verdicts"].get(name, 0)) for record in records] for name in names}
    unscored = [float(record["unscored"]) for record in records]
    return {**parts, "not scored": unscored} if any(unscored) else parts


def _seconds(records: Records) -> dict[str, list[float]]:
    return {
        phase: [record[f"{phase}_seconds"] for record in records]
        for phase in ("generate", "score", "train", "sync")
    }


def _values(records: Records, key: str) -> list[float]:
    return [record[key] for record in records if record[key] is not None]


def _at(values: Sequence[float], place: int) -> float | None:
    return values[place] if values else None


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _sample(sample: Mapping[str, Any]) -> str:
    kind = "evaluation" if sample["is_evaluation"] else "training"
    reward = "not scored" if sample["reward"] is None else f"reward {sample['reward']:g}"
    verdicts = ", ".join(turn["verdict"] for turn in sample["turns"] if turn["verdict"])
    head = f"Step {sample['step']}, {kind}: {reward} {verdicts}"
    parts = [f"<details open><summary>{escape(visible(head))}</summary>", _pre(sample["prompt"])]
    for turn in sample["turns"]:
        parts.append(_pre(turn["completion"]))
        if turn["observation"]:
            parts.append(_pre(turn["observation"]))
    if sample["failure"]:
        parts.append(_pre(sample["failure"]))
    return "".join(parts) + "</details>"


def _pre(text: str) -> str:
    return f"<pre>{escape(visible(text))}</pre>"
