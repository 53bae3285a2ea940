"""Charts of distributions: rows with one dot per case, and intensity quantiles of two groups of cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from graftseg.reporting.svg import Axis, chart, dot, element, evenly_spaced, format_number, points

Floats = npt.NDArray[np.float64]

WIDTH, LEFT, RIGHT = 330.0, 84.0, 16.0  # width of a chart, its left and its right margin
TITLE, ROW, AXIS = 26.0, 28.0, 22.0  # heights
HEIGHT, CURVE_LEFT = 190.0, 48.0  # height and left margin of a chart of bands
MAX_DOTS = 300
OFFSETS = (0.0, -3.0, 3.0, -6.0, 6.0, -9.0, 9.0)  # vertical shifts, so that dots do not hide each other
MAX_NAME_LENGTH = 12
TICK_LEVELS = (5.0, 25.0, 50.0, 75.0, 95.0)  # percentiles with a label on the axis


@dataclass(frozen=True)
class Strip:
    """A row with a dot for the value of each case. ``kind`` is the CSS class of the color, such as ``labeled``."""

    name: str
    kind: str
    values: dict[str, float]

    @property
    def median(self) -> float:
        """Return the median of the values."""
        return float(np.median([*self.values.values()]))


@dataclass(frozen=True)
class Band:
    """Quantiles ``(case, level)`` of a group of cases, drawn as median and interquartile range over the cases."""

    kind: str
    curves: Floats


def strips(title: str, rows: Sequence[Strip]) -> Markup:
    """Draw rows of dots over an axis that contains 0, with a line at the median of each row."""
    rows = [row for row in rows if row.values]
    values = [value for row in rows for value in row.values.values()]
    axis = Axis.enclosing([min(0.0, *values), max(values)], LEFT, WIDTH - RIGHT)
    height = TITLE + ROW * len(rows) + AXIS
    content = [element("text", title, class_="name", x=0, y=12), *axis.columns(TITLE, height - AXIS, height - 6)]
    for index, row in enumerate(rows):
        middle, x = TITLE + ROW * (index + 0.5), axis.at(row.median)
        name = row.name if len(row.name) <= MAX_NAME_LENGTH else row.name[: MAX_NAME_LENGTH - 1] + "…"
        label = element("title", row.name)
        content.append(element("text", label, name, x=LEFT - 12, y=middle, dy="0.32em", text_anchor="end"))
        ranked = sorted(row.values.items(), key=lambda pair: (pair[1], pair[0]))
        shown = (ranked[place] for place in evenly_spaced(len(ranked), MAX_DOTS))
        for (case, value), offset in zip(shown, cycle(OFFSETS), strict=False):
            content.append(dot(case, value, axis.at(value), middle + offset, f"case {row.kind}"))
        content.append(element("line", class_="median", x1=x, x2=x, y1=middle - 11, y2=middle + 11))
    medians = ", ".join(f"{row.name} {format_number(row.median)}" for row in rows)
    return chart(f"{title}; medians: {medians}", WIDTH, height, content)


def bands(title: str, levels: Sequence[float], groups: Sequence[Band]) -> Markup:
    """Draw intensity over quantile level: the median of each group as a line, the interquartile range as an area."""
    quartiles = [np.percentile(group.curves, (25, 50, 75), axis=0) for group in groups]
    ends = [float(end(quartile)) for quartile in quartiles for end in (np.min, np.max)]
    axis = Axis.enclosing(ends, HEIGHT - AXIS, TITLE)
    right = WIDTH - RIGHT
    content = [element("text", title, class_="name", x=0, y=12), *axis.rows(CURVE_LEFT, right)]
    xs = [CURVE_LEFT + level / 100 * (right - CURVE_LEFT) for level in levels]
    for level, x in zip(levels, xs, strict=True):
        if level in TICK_LEVELS:
            content.append(element("text", f"{level:g} %", x=x, y=HEIGHT - 6, text_anchor="middle"))
    for group, quartile in zip(groups, quartiles, strict=True):
        first, middle, third = ([axis.at(float(value)) for value in values] for values in quartile)
        outline = f"{points(xs, first)} {points(xs[::-1], third[::-1])}"
        content.append(element("polygon", class_=f"area {group.kind}", points=outline))
        content.append(element("polyline", class_=f"line {group.kind}", points=points(xs, middle)))
    names = " and ".join(group.kind for group in groups)
    return chart(f"{title}: {names}", WIDTH, HEIGHT, content)
