"""Charts as SVG text: lines with bands, and stacked bars. Pure; nothing is fetched or scripted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10

from attrs import field, frozen

from .text import one_line

__all__ = ["Series", "line_chart", "stacked_chart"]

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 30
_COLOURS = ("#2f6fdb", "#d9822b", "#2a9d62", "#b8405e", "#7b5cc4", "#5b8a94", "#9a8a2c", "#777777")


@frozen(kw_only=True)
class Series:
    """Points in the order of x; a band has a lower and an upper value for each point."""

    name: str
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float]] = field(factory=tuple)


@frozen
class _Scale:
    """Values to places in the picture."""

    x_range: tuple[float, float]
    y_range: tuple[float, float]

    def x(self, value: float) -> float:
        low, high = self.x_range
        return _LEFT + (value - low) / ((high - low) or 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        share = (value - low) / ((high - low) or 1)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def line_chart(title: str, series: Sequence[Series]) -> str:
    """Return a figure with one line a series; an empty text where there is no point."""
    series = [line for line in series if line.points]
    if not series:
        return ""
    values: list[float] = []
    for line in series:
        values += [y for _, y in line.points]
        values += [bound for bounds in line.band for bound in bounds]
    places = [x for line in series for x, _ in line.points]
    scale = _Scale((min(places), max(places)), (min(0.0, *values), max(values) or 1.0))
    marks = [_line(line, _COLOURS[i % len(_COLOURS)], scale) for i, line in enumerate(series)]
    return _figure(title, [line.name for line in series], scale, marks)


def stacked_chart(title: str, steps: Sequence[float], parts: Mapping[str, Sequence[float]]) -> str:
    """Return a figure with one bar a step, its parts on top of each other."""
    if not steps or not parts:
        return ""
    totals = [sum(values[i] for values in parts.values()) for i in range(len(steps))]
    scale = _Scale((min(steps) - 0.5, max(steps) + 0.5), (0.0, max(totals) or 1.0))
    width = max(0.5, (scale.x(1) - scale.x(0)) * 0.85)
    marks = []
    floors = [0.0] * len(steps)
    for number, values in enumerate(parts.values()):
        colour = _COLOURS[number % len(_COLOURS)]
        for i, (step, value) in enumerate(zip(steps, values, strict=True)):
            top, bottom = scale.y(floors[i] + value), scale.y(floors[i])
            floors[i] += value
            if value > 0:
                marks.append(
                    f'<rect x="{scale.x(step) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
                    f'height="{bottom - top:.1f}" fill="{colour}"/>'
                )
    return _figure(title, list(parts), scale, marks)


def _line(line: Series, colour: str, scale: _Scale) -> str:
    places = [f"{scale.x(x):.1f},{scale.y(y):.1f}" for x, y in line.points]
    band = ""
    if line.band:
        both = list(zip(line.points, line.band, strict=True))
        upper = [f"{scale.x(x):.1f},{scale.y(high):.1f}" for (x, _), (_, high) in both]
        lower = [f"{scale.x(x):.1f},{scale.y(low):.1f}" for (x, _), (low, _) in both[::-1]]
        band = f'<polygon points="{" ".join(upper + lower)}" fill="{colour}" opacity="0.15"/>'
    if len(places) == 1:
        x, y = places[0].split(",")
        return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>'
    return (
        f'{band}<polyline points="{" ".join(places)}" fill="none" stroke="{colour}" '
        f'stroke-width="2"/>'
    )


def _figure(title: str, names: Sequence[str], scale: _Scale, marks: Sequence[str]) -> str:
    legend = "".join(
        f'<span><i style="background:{_COLOURS[i % len(_COLOURS)]}"></i>'
        f"{escape(one_line(name))}</span>"
        for i, name in enumerate(names)
    )
    return (
        f"<figure><figcaption><b>{escape(title)}</b>{legend}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{_axes(scale)}{''.join(marks)}</svg></figure>"
    )


def _axes(scale: _Scale) -> str:
    parts = []
    for value in _ticks(*scale.y_range):
        y = scale.y(value)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.6g}</text>'
        )
    parts += [
        f'<text x="{scale.x(value):.1f}" y="{_HEIGHT - 10}" text-anchor="middle">'
        f"{int(value)}</text>"
        for value in _ticks(*scale.x_range)
        if value == int(value)
    ]
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between two."""
    span = (high - low) or 1.0
    unit = 10.0 ** floor(log10(span / 4))
    step = next((unit * m for m in (1, 2, 5, 10) if span / (unit * m) <= 6), unit * 10)
    first = floor(low / step)
    ticks = [round((first + i) * step, 12) for i in range(9)]
    return [tick for tick in ticks if low - 1e-12 <= tick <= high + 1e-12]
