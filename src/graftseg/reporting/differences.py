"""Chart of paired differences as an SVG file: a dot for each case, the mean and its confidence interval."""

import math
from collections.abc import Sequence
from itertools import cycle

from markupsafe import Markup

from graftseg.evaluation.comparison import Comparison, unit_of
from graftseg.evaluation.statistics import Effect, Pairs
from graftseg.evaluation.table_metrics import METRIC_NAMES, OVERLAPS
from graftseg.reporting.svg import Axis, dot, element

WIDTH, LEFT, RIGHT = 760.0, 230.0, 24.0  # width of the chart, its left and its right margin
TITLE, ROW, AXIS, GAP = 26.0, 26.0, 36.0, 14.0  # heights
OFFSETS = (0.0, -3.2, 3.2, -6.4, 6.4)  # vertical shifts, so that dots do not hide each other
STYLE = """\
svg{background:#fff;font:12px system-ui,sans-serif;fill:#222}
.name{font-weight:600}.grid{stroke:#e4e4e4}.zero{stroke:#888}
.case{fill:#56b4e9;fill-opacity:.7}.interval{stroke:#222;stroke-width:2}.mean{fill:#e69f00;stroke:#222}
.small{fill:#555;font-size:11px}
"""


def differences_svg(comparisons: Sequence[Comparison]) -> str:
    """Return an SVG file with a panel for each metric, and rows for the classes and the mean of each comparison."""
    content: list[Markup] = []
    top = 8.0
    for number, comparison in enumerate(comparisons, start=1):
        run = f" ({number})" if len(comparisons) > 1 else ""
        names = f"{comparison.second.path}{run} minus {comparison.first.path}"
        content.append(element("text", names, x=8, y=top + 12))
        top += 18
    top += GAP
    for metric in METRIC_NAMES:
        drawn, height = _panel(metric, comparisons, top)
        content += drawn
        top += height + GAP
    title = element("title", "Paired differences of each case, their mean and its 95 % interval")
    about = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {WIDTH:g} {top:g}"}
    return element("svg", title, element("style", STYLE), *content, width=WIDTH, height=top, **about) + "\n"


def difference_axis(values: Sequence[float]) -> Axis:
    """Return the axis of a panel, which contains 0 and all differences."""
    return Axis.enclosing([0.0, *values], LEFT, WIDTH - RIGHT)


def _panel(metric: str, comparisons: Sequence[Comparison], top: float) -> tuple[list[Markup], float]:
    rows = _rows(metric, comparisons)
    axis = difference_axis([value for _, pairs, _ in rows for value in pairs.differences.tolist()])
    bottom = top + TITLE + ROW * len(rows)
    better = "better to the right" if metric in OVERLAPS else "better to the left"
    title = f"{METRIC_NAMES[metric]}, {unit_of(metric)}: {better}"
    drawn = [element("text", title, class_="name", x=8, y=top + 12)]
    drawn += axis.columns(top + TITLE - 6, bottom, bottom + 14, number_class="small", marks_zero=True)
    for index, (name, pairs, effect) in enumerate(rows):
        middle = top + TITLE + ROW * (index + 0.5)
        drawn.append(element("text", name, x=LEFT - 12, y=middle, dy="0.32em", text_anchor="end"))
        drawn += _row(pairs, effect, axis, middle)
    return drawn, bottom + AXIS - 12 - top


def _rows(metric: str, comparisons: Sequence[Comparison]) -> list[tuple[str, Pairs, Effect]]:
    """Return the name, the values of both runs by case, and the effect of each row of a panel."""
    rows = []
    for number, comparison in enumerate(comparisons, start=1):
        run = f"({number}) " if len(comparisons) > 1 else ""
        rows += [(run + pairs.name, pairs, effect) for pairs, effect in comparison.effects if pairs.metric == metric]
    return rows


def _row(pairs: Pairs, effect: Effect, axis: Axis, middle: float) -> list[Markup]:
    cases = zip(pairs.cases, pairs.differences.tolist(), cycle(OFFSETS), strict=False)
    drawn = [dot(case, value, axis.at(value), middle + offset, "case") for case, value, offset in cases]
    if not math.isnan(effect.low):
        low, high = axis.at(effect.low), axis.at(effect.high)
        drawn.append(element("line", class_="interval", y1=middle, y2=middle, x1=low, x2=high))
    if not math.isnan(effect.difference):
        drawn.append(element("circle", class_="mean", cx=axis.at(effect.difference), cy=middle, r=4))
    return drawn
