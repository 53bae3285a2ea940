"""Charts of distributions over cases: a dot for each case, or quantiles as a line and an area."""

from collections.abc import Mapping, Sequence
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
TICK_LEVELS = (5.0, 25.0, 50.0, 75.0, 95.0)  # percentiles with a label on the axis


def strips(title: str, groups: Mapping[str, Mapping[str, float]]) -> Markup:
    """Draw a row for each group: a dot for the value of each case, and a line at the median. The axis contains 0.

    The names of the groups, such as ``labeled``, are also the CSS classes of their colors.
    """
    groups = {group: values for group, values in groups.items() if values}
    medians = {group: float(np.median([*values.values()])) for group, values in groups.items()}
    ends = [value for values in groups.values() for value in values.values()]
    axis = Axis.enclosing([min(0.0, *ends), max(ends)], LEFT, WIDTH - RIGHT)
    height = TITLE + ROW * len(groups) + AXIS
    content = [element("text", title, class_="name", x=0, y=12), *axis.columns(TITLE, height - AXIS, height - 6)]
    for index, (group, values) in enumerate(groups.items()):
        middle, x = TITLE + ROW * (index + 0.5), axis.at(medians[group])
        content.append(element("text", group, x=LEFT - 12, y=middle, dy="0.32em", text_anchor="end"))
        ranked = sorted(values.items(), key=lambda pair: (pair[1], pair[0]))
        shown = (ranked[place] for place in evenly_spaced(len(ranked), MAX_DOTS))
        for (case, value), offset in zip(shown, cycle(OFFSETS), strict=False):
            content.append(dot(case, value, axis.at(value), middle + offset, f"case {group}"))
        content.append(element("line", class_="median", x1=x, x2=x, y1=middle - 11, y2=middle + 11))
    texts = ", ".join(f"{group} {format_number(median)}" for group, median in medians.items())
    return chart(f"{title}; medians: {texts}", WIDTH, height, content)


def bands(title: str, levels: Sequence[float], groups: Mapping[str, Floats]) -> Markup:
    """Draw quantiles ``(case, level)`` of each group: the median case as a line, the interquartile range as an area."""
    quartiles = {group: np.percentile(curves, (25, 50, 75), axis=0) for group, curves in groups.items()}
    ends = [float(end(quartile)) for quartile in quartiles.values() for end in (np.min, np.max)]
    axis = Axis.enclosing(ends, HEIGHT - AXIS, TITLE)
    right = WIDTH - RIGHT
    content = [element("text", title, class_="name", x=0, y=12), *axis.rows(CURVE_LEFT, right)]
    xs = [CURVE_LEFT + level / 100 * (right - CURVE_LEFT) for level in levels]
    for level, x in zip(levels, xs, strict=True):
        if level in TICK_LEVELS:
            content.append(element("text", f"{level:g} %", x=x, y=HEIGHT - 6, text_anchor="middle"))
    for group, quartile in quartiles.items():
        first, middle, third = ([axis.at(float(value)) for value in values] for values in quartile)
        outline = f"{points(xs, first)} {points(xs[::-1], third[::-1])}"
        content.append(element("polygon", class_=f"area {group}", points=outline))
        content.append(element("polyline", class_=f"line {group}", points=points(xs, middle)))
    return chart(f"{title}: {' and '.join(groups)}", WIDTH, HEIGHT, content)
