"""Training curves as inline SVG: thinned so that spikes stay, with the stages marked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from graftseg.reporting.markup import Html, tag

Values = npt.NDArray[np.float64]
Style = Literal["noisy", "plain", "dots"]

POINTS = 400
SMOOTH_POINTS = 100
SMOOTH_SHARE, SMOOTH_LEAST = 0.05, 10
LEFT, RIGHT, TOP, BOTTOM = 52.0, 10.0, 26.0, 22.0
CHARACTER = 6.2
SAME = 1e-9
NOTHING = 1e-27


@dataclass(frozen=True)
class Curve:
    """Values over global steps; both finite, steps ascending."""

    steps: Values
    values: Values


@dataclass(frozen=True)
class Stage:
    """A stage of training: its method and the global steps it covers."""

    method: str
    first: int
    last: int


@dataclass(frozen=True)
class Frame:
    """The size of a panel and the steps it spans."""

    width: float
    height: float
    first: float
    last: float

    def x(self, step: float) -> float:
        """Position of a global step, from the left edge."""
        share = (step - self.first) / max(self.last - self.first, 1.0)
        return LEFT + share * (self.width - LEFT - RIGHT)

    def y(self, value: float, ticks: Sequence[float]) -> float:
        """Position of a value, from the top edge; the outer ticks are the ends of the axis."""
        share = (value - ticks[0]) / (ticks[-1] - ticks[0])
        return self.height - BOTTOM - share * (self.height - TOP - BOTTOM)


def thin(curve: Curve, limit: int = POINTS) -> Curve:
    """At most ``limit`` points: of every bucket of neighbours, its lowest and its highest, in order."""
    if len(curve.steps) <= limit:
        return curve
    kept: list[int] = []
    for bucket in np.array_split(np.arange(len(curve.steps)), limit // 2):
        values = curve.values[bucket]
        kept.extend(sorted({int(bucket[values.argmin()]), int(bucket[values.argmax()])}))
    return Curve(curve.steps[kept], curve.values[kept])


def window(count: int) -> int:
    """Over how many of the last of ``count`` values a mean is taken: a few percent of them, more of few."""
    return max(1, round(count * SMOOTH_SHARE), min(SMOOTH_LEAST, count // 4))


def smooth(curve: Curve, points: int = SMOOTH_POINTS) -> Curve:
    """At each of ``points`` steps, the last among them, the mean of the values up to it; few values stay."""
    count = len(curve.steps)
    width = window(count)
    if width == 1:
        return curve
    kept = np.unique(np.linspace(0, count - 1, min(points, count)).round().astype(np.int64))
    means = [curve.values[max(0, place + 1 - width) : place + 1].mean() for place in kept]
    return Curve(curve.steps[kept], np.array(means))


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers (1, 2, 5 times a power of ten) that enclose both ends in about ``count`` steps."""
    if high - low <= max(SAME * max(abs(low), abs(high)), NOTHING):
        high = low + (abs(low) if abs(low) > NOTHING else 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def split(curve: Curve, stages: Sequence[Stage]) -> list[Curve]:
    """The parts of a curve that belong to each stage, so that no line leads from one into the next."""
    cuts = np.searchsorted(curve.steps, [stage.first for stage in stages[1:]])
    parts = zip(np.split(curve.steps, cuts), np.split(curve.values, cuts), strict=True)
    return [Curve(steps, values) for steps, values in parts if len(steps)]


def _anchor(frame: "Frame", x: float) -> str:
    """How a label stands at its tick: the last ones end there, so that they are not cut off."""
    return "end" if x > frame.width - RIGHT - 20 else "middle"


def panel(title: str, curve: Curve, frame: Frame, *, stages: Sequence[Stage] = (), style: Style = "noisy") -> Html:
    """One chart with the stages' borders.

    A ``noisy`` curve is a faint line through its values and a strong one through means of the last of them, and its
    label is such a mean; a ``plain`` one is a single line; ``dots`` also marks each point, for measurements that are
    few.
    """
    tick_count = max(2, round((frame.height - TOP - BOTTOM) / 36))
    ticks = nice_ticks(min(0.0, float(curve.values.min())), float(curve.values.max()), tick_count)
    parts = [curve] if style == "dots" else split(curve, stages)
    end = _end(parts[-1], style)
    content = [*_grid(frame, ticks), *_borders(frame, stages), *_title(frame, title, end)]
    for part in parts:
        extremes, means = thin(part, POINTS // len(parts)), smooth(part, SMOOTH_POINTS // len(parts))
        if style != "noisy" or means is part:
            content.append(_line(extremes, frame, ticks, "means"))
        else:
            content += [_line(extremes, frame, ticks, "extremes"), _line(means, frame, ticks, "means")]
    if style == "dots" or len(curve.steps) == 1:
        content += [_dot(frame, ticks, step, value) for step, value in zip(curve.steps, curve.values, strict=True)]
    label = f"{title}: first {number(curve.values[0])}, {end}"
    view = f"0 0 {frame.width:g} {frame.height:g}"
    return tag("svg", tag("title", label), *content, class_="curve", viewBox=view, role="img")


def number(value: float) -> str:
    """A value with three significant digits; from a thousand to a million, in full."""
    written = f"{value:,.0f}" if 1e3 <= abs(value) < 1e6 else f"{value:.3g}"
    mantissa, _, exponent = written.partition("e")
    return (f"{mantissa}e{int(exponent)}" if exponent else mantissa).replace("-", "−")


def _line(curve: Curve, frame: Frame, ticks: Sequence[float], kind: str) -> Html:
    pairs = zip(curve.steps, curve.values, strict=True)
    points = " ".join(f"{frame.x(step):.1f},{frame.y(value, ticks):.1f}" for step, value in pairs)
    return tag("polyline", class_=kind, points=points)


def _dot(frame: Frame, ticks: Sequence[float], step: float, value: float) -> Html:
    position = {"cx": f"{frame.x(step):.1f}", "cy": f"{frame.y(value, ticks):.1f}"}
    return tag("circle", tag("title", f"step {step:.0f}: {number(value)}"), class_="dot", r=2.5, **position)


def _end(part: Curve, style: Style) -> str:
    """Where a curve has come to: of a noisy one the mean of the last steps, as a single one says little."""
    width = window(len(part.steps)) if style == "noisy" else 1
    mean = number(part.values[-width:].mean())
    return f"last {mean}" if width == 1 else f"mean of last {width} steps {mean}"


def _title(frame: Frame, title: str, last: str) -> list[Html]:
    return [
        tag("text", title, class_="name", x=0, y=12),
        tag("text", last, class_="last", x=f"{frame.width - RIGHT:g}", y=12, text_anchor="end"),
    ]


def _grid(frame: Frame, ticks: Sequence[float]) -> list[Html]:
    lines: list[Html] = []
    for tick in ticks:
        y = f"{frame.y(tick, ticks):.1f}"
        lines.append(tag("line", class_="grid", x1=LEFT, x2=f"{frame.width - RIGHT:g}", y1=y, y2=y))
        lines.append(tag("text", number(tick), x=LEFT - 6, y=y, dy="0.32em", text_anchor="end"))
    for step in nice_ticks(frame.first, frame.last, max(2, round(frame.width / 120))):
        if frame.first <= step <= frame.last:
            x = f"{frame.x(step):.1f}"
            lines.append(
                tag("text", f"{step:,.0f}", x=x, y=f"{frame.height - 6:g}", text_anchor=_anchor(frame, float(x)))
            )
    return lines


def _borders(frame: Frame, stages: Sequence[Stage]) -> list[Html]:
    """A dashed line where a stage begins, and its method's name where there is room for it."""
    drawn: list[Html] = []
    top, bottom = f"{TOP:g}", f"{frame.height - BOTTOM:g}"
    starts = [frame.x(stage.first) for stage in stages]
    for place, stage in enumerate(stages):
        x, end = starts[place], [*starts, frame.width - RIGHT][place + 1]
        if place > 0:
            drawn.append(tag("line", class_="border", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=top, y2=bottom))
        if len(stages) > 1 and end - x > CHARACTER * len(stage.method) + 8:
            drawn.append(tag("text", stage.method, class_="stage", x=f"{x + 5:.1f}", y=f"{TOP + 10:g}"))
    return drawn
