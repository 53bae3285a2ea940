"""The training section: curves of losses, scores and learning rate, and the duration of each phase of a step.

Long curves are thinned, but keep their spikes. A mark shows where each stage begins.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from markupsafe import Markup

from graftseg.reporting.folder import Curve, Log, Stage
from graftseg.reporting.missing import TRAIN, Missing
from graftseg.reporting.rendering import render
from graftseg.reporting.svg import Axis, chart, dot, element, format_number, points

Style = Literal["noisy", "plain", "dots"]

MAX_POINTS = 400
SMOOTH_POINTS = 100
MEAN_FRACTION, MIN_MEAN_WIDTH = 0.05, 10  # see ``running_mean_width``
LEFT, RIGHT, TOP, BOTTOM = 52.0, 10.0, 26.0, 22.0  # margins of a chart
CHARACTER_WIDTH = 6.2
WIDE, NARROW = 1040.0, 330.0
PHASES = ("batch", "forward", "backward", "update")
NOT_LOGGED = Missing("No step has been logged.", *TRAIN)


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


def training_section(log: Log | None, facts: dict[str, Any]) -> Markup:
    """Render the curves of all logged values, over the same steps, and the time of each phase of a step."""
    seconds = facts.get("seconds_per_step") or {}
    phases = sorted(seconds.items(), key=lambda item: PHASES.index(item[0]) if item[0] in PHASES else len(PHASES))
    view: dict[str, Any] = {"has_phases": True, "phases": phases, "total": sum(seconds.values())}
    if log is None or log.total is None:
        return render("training", empty=NOT_LOGGED, **view)
    span, unnamed = _span(log), _unnamed(log.stages)
    charts = [panel("Total loss", log.total, Frame(WIDE, 260.0, *span), stages=log.stages)]
    for name, curve in log.validation.items():
        charts.append(panel(_score_title(name), curve, Frame(WIDE, 150.0, *span), stages=unnamed, style="dots"))
    if log.learning_rates is not None:
        frame = Frame(WIDE, 100.0, *span)
        charts.append(panel("Learning rate", log.learning_rates, frame, stages=unnamed, style="plain"))
    small = [panel(name, curve, Frame(NARROW, 170.0, *span), stages=unnamed) for name, curve in log.terms.items()]
    small = small if len(small) > 1 else []  # a single term is the total loss
    return render("training", charts=charts, small_charts=small, caption=_caption(log), **view)


def fold_curves_section(logs: Sequence[Log | None]) -> Markup:
    """Render the total loss and the validation scores of every fold. All charts have the same step axis."""
    logged = {number: log for number, log in enumerate(logs) if log is not None and log.total is not None}
    if not logged:
        return render("training", empty=NOT_LOGGED, has_phases=False)
    spans = [_span(log) for log in logged.values()]
    frame = Frame(NARROW, 170.0, min(first for first, _ in spans), max(last for _, last in spans))
    charts = []
    for number, log in logged.items():
        stages = _unnamed(log.stages)
        if log.total is not None:
            charts.append(panel(f"Fold {number}: total loss", log.total, frame, stages=stages))
        for name, curve in log.validation.items():
            title = f"Fold {number}: {_score_title(name).lower()}"
            charts.append(panel(title, curve, frame, stages=stages, style="dots"))
    longest = max(logged.values(), key=lambda log: _span(log)[1])
    return render("training", charts=[], small_charts=charts, caption=_caption(longest), has_phases=False)


def _caption(log: Log) -> dict[str, Any]:
    """Collect the values of the caption.

    stages: the stages of the training
    widths: widths of the running means, in steps
    jumps: pairs of stages with different numbers of loss terms, between which the total loss may jump
    dropped: number of values that are not finite
    """
    parts = [] if log.total is None else split(log.total, log.stages)
    terms = [
        (stage.method, [name for name, curve in log.terms.items() if _has_steps(curve, stage)]) for stage in log.stages
    ]
    return {
        "stages": log.stages,
        "widths": sorted({running_mean_width(len(part.steps)) for part in parts} - {1}),
        "jumps": [pair for pair in pairwise(terms) if len({len(names) for _, names in pair} - {0}) == 2],
        "dropped": log.dropped,
    }


def _has_steps(curve: Curve, stage: Stage) -> bool:
    return bool(((curve.steps >= stage.first) & (curve.steps <= stage.last)).any())


def _score_title(name: str) -> str:
    """Return the title of a chart of scores. The names of scores of test cases start with ``test``."""
    return name.capitalize() if name.startswith("test ") else f"Validation {name}"


def _span(log: Log) -> tuple[float, float]:
    return float(min(stage.first for stage in log.stages)), float(max(stage.last for stage in log.stages))


def _unnamed(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages without the names of methods, which small charts do not show."""
    return tuple(Stage("", stage.first, stage.last) for stage in stages)


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
    """Return the part of a curve in each stage. They are drawn one by one, so that no line connects two stages."""
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
