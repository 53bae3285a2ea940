"""Charts of curves over the steps of a training.

Long curves are thinned, but keep their spikes. A mark shows where each stage begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from markupsafe import Markup

from graftseg.reporting.run_files import Curve, Stage
from graftseg.reporting.svg import Axis, chart, dot, element, format_number, points

Style = Literal["noisy", "plain", "dots"]
MAX_POINTS = 400
SMOOTH_POINTS = 100
MEAN_FRACTION, MIN_MEAN_WIDTH = 0.05, 10  # see ``running_mean_width``
LEFT, RIGHT, TOP, BOTTOM = 52.0, 10.0, 26.0, 22.0  # margins of a chart
CHARACTER_WIDTH = 6.2


@dataclass(frozen=True)
class Frame:
    """The size of a chart and the range of its steps."""

    width: float
    height: float
    first: float
    last: float

    @property
    def right(self) -> float:
        """Return the right end of the plot area."""
        return self.width - RIGHT

    @property
    def steps(self) -> Axis:
        """Return the horizontal axis."""
        return Axis.between(self.first, self.last, LEFT, self.right, max(2, round(self.width / 120)))

    def values(self, curve: Curve) -> Axis:
        """Return a vertical axis that contains 0 and all values of a curve."""
        count = max(2, round((self.height - TOP - BOTTOM) / 36))
        ends = (min(0.0, float(curve.values.min())), float(curve.values.max()))
        return Axis.enclosing(ends, self.height - BOTTOM, TOP, count)


def thin(curve: Curve, limit: int = MAX_POINTS) -> Curve:
    """Return at most ``limit`` points: the lowest and the highest point of every group of neighbors."""
    if len(curve.steps) <= limit:
        return curve
    indices: list[int] = []
    for group in np.array_split(np.arange(len(curve.steps)), limit // 2):
        values = curve.values[group]
        indices.extend(sorted({int(group[values.argmin()]), int(group[values.argmax()])}))
    return Curve(curve.steps[indices], curve.values[indices])


def running_mean_width(count: int) -> int:
    """Return a quarter of ``count``, but at most 10. Above 200, return 5 % of ``count``."""
    return max(1, round(count * MEAN_FRACTION), min(MIN_MEAN_WIDTH, count // 4))


def smooth(curve: Curve, points: int = SMOOTH_POINTS) -> Curve:
    """Return the running mean at ``points`` steps, including the last step. Short curves are unchanged."""
    count = len(curve.steps)
    width = running_mean_width(count)
    if width == 1:
        return curve
    indices = np.unique(np.linspace(0, count - 1, min(points, count)).round().astype(np.int64))
    means = [curve.values[max(0, index + 1 - width) : index + 1].mean() for index in indices]
    return Curve(curve.steps[indices], np.array(means))


def split(curve: Curve, stages: Sequence[Stage]) -> list[Curve]:
    """Return the part of a curve in each stage. Each part is a separate line, so that no line connects two stages."""
    cuts = np.searchsorted(curve.steps, [stage.first for stage in stages[1:]])
    parts = zip(np.split(curve.steps, cuts), np.split(curve.values, cuts), strict=True)
    return [Curve(steps, values) for steps, values in parts if len(steps)]


def panel(title: str, curve: Curve, frame: Frame, *, stages: Sequence[Stage] = (), style: Style = "noisy") -> Markup:
    """Draw a chart of a curve in one of these styles.

    noisy: a faint line of the values and a strong line of their running mean
    plain: one line
    dots: one line with a dot for each value, for curves of a few measurements
    """
    steps, values = frame.steps, frame.values(curve)
    parts = [curve] if style == "dots" else split(curve, stages)
    width = running_mean_width(len(parts[-1].steps)) if style == "noisy" else 1
    last = format_number(parts[-1].values[-width:].mean())
    end = f"last {last}" if width == 1 else f"mean of last {width} steps {last}"
    content = values.rows(LEFT, frame.right)
    for x, step in ((steps.at(step), step) for step in steps.ticks):
        anchor = "end" if x > frame.right - 20 else "middle"  # numbers near the right end are right-aligned
        content.append(element("text", f"{step:,.0f}", x=x, y=frame.height - 6, text_anchor=anchor))
    content += _stage_marks(frame, steps, stages)
    content.append(element("text", title, class_="name", x=0, y=12))
    content.append(element("text", end, class_="last", x=frame.right, y=12, text_anchor="end"))
    for part in parts:
        extremes, means = thin(part, MAX_POINTS // len(parts)), smooth(part, SMOOTH_POINTS // len(parts))
        if style != "noisy" or means is part:
            content.append(_line(extremes, steps, values, "means"))
        else:
            content += [_line(extremes, steps, values, "extremes"), _line(means, steps, values, "means")]
    if style == "dots" or len(curve.steps) == 1:
        pairs = zip(curve.steps, curve.values, strict=True)
        content += [dot(f"step {step:.0f}", value, steps.at(step), values.at(value), "dot") for step, value in pairs]
    return chart(f"{title}: first {format_number(curve.values[0])}, {end}", frame.width, frame.height, content)


def _line(curve: Curve, steps: Axis, values: Axis, class_: str) -> Markup:
    return element("polyline", class_=class_, points=points(map(steps.at, curve.steps), map(values.at, curve.values)))


def _stage_marks(frame: Frame, steps: Axis, stages: Sequence[Stage]) -> list[Markup]:
    """Draw a dashed line where a stage begins, and the name of its method if there is enough space."""
    drawn: list[Markup] = []
    starts = [steps.at(stage.first) for stage in stages]
    for index, stage in enumerate(stages):
        x, end = starts[index], [*starts, frame.right][index + 1]
        if index > 0:
            drawn.append(element("line", class_="border", x1=x, x2=x, y1=TOP, y2=frame.height - BOTTOM))
        if len(stages) > 1 and end - x > CHARACTER_WIDTH * len(stage.method) + 8:
            drawn.append(element("text", stage.method, class_="stage", x=x + 5, y=TOP + 10))
    return drawn
