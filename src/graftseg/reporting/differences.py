"""Paired differences as one self-contained picture: a dot for each case, the mean and its interval."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graftseg.evaluation.comparison import Comparison, unit_of
from graftseg.evaluation.figures import FIGURES, SHARES
from graftseg.evaluation.statistics import Effect, Pairs
from graftseg.reporting.curves import nice_ticks, number
from graftseg.reporting.markup import Html, tag

WIDTH, LEFT, RIGHT = 760.0, 230.0, 24.0
TITLE, ROW, AXIS, GAP = 26.0, 26.0, 36.0, 14.0
OFFSETS = (0.0, -3.2, 3.2, -6.4, 6.4)
STYLE = """\
svg{background:#fff;font:12px system-ui,sans-serif;fill:#222}
.name{font-weight:600}.grid{stroke:#e4e4e4}.zero{stroke:#888}
.case{fill:#56b4e9;fill-opacity:.7}.interval{stroke:#222;stroke-width:2}.mean{fill:#e69f00;stroke:#222}
.small{fill:#555;font-size:11px}
"""


@dataclass(frozen=True)
class Scale:
    """The axis of a panel, from the outer of its ticks to the other."""

    ticks: tuple[float, ...]

    @classmethod
    def over(cls, values: Sequence[float]) -> "Scale":
        """An axis that holds all values and zero."""
        return cls(tuple(nice_ticks(min(0.0, *values), max(0.0, *values))))

    def x(self, value: float) -> float:
        """Position of a difference, from the left edge."""
        share = (value - self.ticks[0]) / (self.ticks[-1] - self.ticks[0])
        return LEFT + share * (WIDTH - LEFT - RIGHT)


def picture(comparison: Sequence[Comparison]) -> str:
    """An SVG file: a panel for each figure, a line in it for each class of each run."""
    content: list[Html] = []
    top = 8.0
    for place, beside in enumerate(comparison, start=1):
        run = f" ({place})" if len(comparison) > 1 else ""
        content.append(tag("text", f"{beside.second.name}{run} less {beside.first.name}", x=8, y=f"{top + 12:g}"))
        top += 18
    top += GAP
    for figure in FIGURES:
        drawn, height = _panel(figure, comparison, top)
        content += drawn
        top += height + GAP
    size = {"width": f"{WIDTH:g}", "height": f"{top:g}", "viewBox": f"0 0 {WIDTH:g} {top:g}"}
    named = tag("title", "Paired differences of each case, their mean and its 95 % interval")
    return tag("svg", named, tag("style", Html(STYLE)), *content, xmlns="http://www.w3.org/2000/svg", **size) + "\n"


def _panel(figure: str, comparison: Sequence[Comparison], top: float) -> tuple[list[Html], float]:
    """A panel, and how high it is."""
    lines = _lines(figure, comparison)
    values = [value for _, pairs, _ in lines for value in pairs.differences.tolist()]
    scale = Scale.over([0.0, *values])
    bottom = top + TITLE + ROW * len(lines)
    better = "better to the right" if figure in SHARES else "better to the left"
    drawn = [tag("text", f"{FIGURES[figure]}, {unit_of(figure)}: {better}", class_="name", x=8, y=f"{top + 12:g}")]
    for tick in scale.ticks:
        x = f"{scale.x(tick):.1f}"
        kind = "zero" if tick == 0 else "grid"
        drawn.append(tag("line", class_=kind, x1=x, x2=x, y1=f"{top + TITLE - 6:g}", y2=f"{bottom:g}"))
        drawn.append(tag("text", number(tick), class_="small", x=x, y=f"{bottom + 14:g}", text_anchor="middle"))
    for place, (name, pairs, effect) in enumerate(lines):
        middle = top + TITLE + ROW * (place + 0.5)
        drawn.append(tag("text", name, x=LEFT - 12, y=f"{middle:g}", dy="0.32em", text_anchor="end"))
        drawn += _strip(pairs, effect, scale, middle)
    return drawn, bottom + AXIS - 12 - top


def _lines(figure: str, comparison: Sequence[Comparison]) -> list[tuple[str, Pairs, Effect]]:
    """The pairs of a figure with their names."""
    found = []
    for place, beside in enumerate(comparison, start=1):
        run = f"({place}) " if len(comparison) > 1 else ""
        found += [(run + pairs.name, pairs, effect) for pairs, effect in beside.effects if pairs.figure == figure]
    return found


def _strip(pairs: Pairs, effect: Effect, scale: Scale, middle: float) -> list[Html]:
    """A dot for each case, spread a little so that neighbours are seen; the interval as a line, the mean on it."""
    drawn = []
    for index, (case, value) in enumerate(zip(pairs.cases, pairs.differences.tolist(), strict=True)):
        y = f"{middle + OFFSETS[index % len(OFFSETS)]:.1f}"
        words = tag("title", f"{case}: {number(value)}")
        drawn.append(tag("circle", words, class_="case", cx=f"{scale.x(value):.1f}", cy=y, r=2.5))
    if not math.isnan(effect.low):
        ends = {"x1": f"{scale.x(effect.low):.1f}", "x2": f"{scale.x(effect.high):.1f}"}
        drawn.append(tag("line", class_="interval", y1=f"{middle:g}", y2=f"{middle:g}", **ends))
    if not math.isnan(effect.difference):
        drawn.append(tag("circle", class_="mean", cx=f"{scale.x(effect.difference):.1f}", cy=f"{middle:g}", r=4))
    return drawn
