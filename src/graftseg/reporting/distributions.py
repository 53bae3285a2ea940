"""Distributions as inline SVG: a dot for each case in rows, and curves of quantiles of two groups."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from graftseg.reporting.curves import nice_ticks, number
from graftseg.reporting.markup import Html, tag

Floats = npt.NDArray[np.float64]

WIDTH, LEFT, RIGHT = 330.0, 84.0, 16.0
TITLE, ROW, AXIS = 26.0, 28.0, 22.0
HEIGHT = 190.0
CURVE_LEFT = 48.0
DOTS = 300
OFFSETS = (0.0, -3.0, 3.0, -6.0, 6.0, -9.0, 9.0)
NAME_LENGTH = 12


@dataclass(frozen=True)
class Strip:
    """One row of dots: a value for each case by its name, in the colours of a kind (``labeled``, ``unlabeled`` ...)."""

    name: str
    kind: str
    values: dict[str, float]


@dataclass(frozen=True)
class Band:
    """The quantiles of a group of cases ``(case, level)``, drawn as their median and the middle half around it."""

    kind: str
    curves: Floats


def strips(title: str, rows: Sequence[Strip]) -> Html:
    """Rows of dots over one axis that starts at 0, the median of each as a line."""
    rows = [row for row in rows if row.values]
    values = [value for row in rows for value in row.values.values()]
    ticks = nice_ticks(min(0.0, *values), max(values), 4)
    height = TITLE + ROW * len(rows) + AXIS
    drawn = [tag("text", title, class_="name", x=0, y=12)]
    for tick in ticks:
        x = f"{_x(tick, ticks):.1f}"
        drawn.append(tag("line", class_="grid", x1=x, x2=x, y1=TITLE, y2=f"{height - AXIS:g}"))
        drawn.append(tag("text", number(tick), x=x, y=f"{height - 6:g}", text_anchor="middle"))
    for place, row in enumerate(rows):
        drawn += _strip(row, ticks, TITLE + ROW * (place + 0.5))
    medians = ", ".join(f"{row.name} {number(float(np.median([*row.values.values()])))}" for row in rows)
    label = f"{title}; medians: {medians}"
    return tag("svg", tag("title", label), *drawn, class_="curve", viewBox=f"0 0 {WIDTH:g} {height:g}", role="img")


def bands(title: str, levels: Sequence[float], groups: Sequence[Band]) -> Html:
    """Intensities over quantiles: for each group the median case as a line and the middle half of the cases shaded."""
    quartiles = [np.percentile(group.curves, (25, 50, 75), axis=0) for group in groups]
    low, high = min(float(q.min()) for q in quartiles), max(float(q.max()) for q in quartiles)
    ticks = nice_ticks(low, high, 4)
    drawn = [tag("text", title, class_="name", x=0, y=12)]
    for tick in ticks:
        y = f"{_y(tick, ticks):.1f}"
        drawn.append(tag("line", class_="grid", x1=CURVE_LEFT, x2=f"{WIDTH - RIGHT:g}", y1=y, y2=y))
        drawn.append(tag("text", number(tick), x=CURVE_LEFT - 6, y=y, dy="0.32em", text_anchor="end"))
    positions = [CURVE_LEFT + level / 100 * (WIDTH - RIGHT - CURVE_LEFT) for level in levels]
    for level, x in zip(levels, positions, strict=True):
        if level in (5.0, 25.0, 50.0, 75.0, 95.0):
            drawn.append(tag("text", f"{level:g} %", x=f"{x:.1f}", y=f"{HEIGHT - 6:g}", text_anchor="middle"))
    for group, (first, middle, third) in zip(groups, quartiles, strict=True):
        there = _points(positions, first, ticks)
        back = _points(positions[::-1], third[::-1], ticks)
        drawn.append(tag("polygon", class_=f"area {group.kind}", points=f"{there} {back}"))
        drawn.append(tag("polyline", class_=f"line {group.kind}", points=_points(positions, middle, ticks)))
    names = " and ".join(group.kind for group in groups)
    view = f"0 0 {WIDTH:g} {HEIGHT:g}"
    return tag("svg", tag("title", f"{title}: {names}"), *drawn, class_="curve", viewBox=view, role="img")


def kinds_legend(kinds: Sequence[str]) -> Html:
    """The kinds of cases beside their colours."""
    return tag("ul", *(tag("li", tag("i", class_=f"swatch {kind}"), kind) for kind in kinds), class_="legend")


def _strip(row: Strip, ticks: Sequence[float], middle: float) -> list[Html]:
    name = row.name if len(row.name) <= NAME_LENGTH else row.name[: NAME_LENGTH - 1] + "…"
    drawn = [tag("text", tag("title", row.name), name, x=LEFT - 12, y=f"{middle:g}", dy="0.32em", text_anchor="end")]
    for place, (case, value) in enumerate(_thinned(row.values)):
        at = {"cx": f"{_x(value, ticks):.1f}", "cy": f"{middle + OFFSETS[place % len(OFFSETS)]:.1f}"}
        drawn.append(tag("circle", tag("title", f"{case}: {number(value)}"), class_=f"case {row.kind}", r=2.5, **at))
    x = f"{_x(float(np.median([*row.values.values()])), ticks):.1f}"
    ends = {"y1": f"{middle - 11:g}", "y2": f"{middle + 11:g}"}
    return [*drawn, tag("line", class_="median", x1=x, x2=x, **ends)]


def _thinned(values: dict[str, float]) -> list[tuple[str, float]]:
    """At most ``DOTS`` of the cases in the order of their values, the lowest and the highest among them."""
    ranked = sorted(values.items(), key=lambda pair: (pair[1], pair[0]))
    if len(ranked) <= DOTS:
        return ranked
    return [ranked[round(place * (len(ranked) - 1) / (DOTS - 1))] for place in range(DOTS)]


def _points(positions: Sequence[float], values: Floats, ticks: Sequence[float]) -> str:
    return " ".join(f"{x:.1f},{_y(float(value), ticks):.1f}" for x, value in zip(positions, values, strict=True))


def _x(value: float, ticks: Sequence[float]) -> float:
    return LEFT + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (WIDTH - LEFT - RIGHT)


def _y(value: float, ticks: Sequence[float]) -> float:
    share = (value - ticks[0]) / (ticks[-1] - ticks[0])
    return HEIGHT - AXIS - share * (HEIGHT - TITLE - AXIS)
