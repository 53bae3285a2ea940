"""SVG elements, axes and number formats shared by all charts and pictures."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from graftseg.core.errors import visible
from graftseg.reporting.text import visible_value

RELATIVE_TOLERANCE = 1e-9  # a range below this fraction of its largest value counts as one value
ABSOLUTE_TOLERANCE = 1e-27  # a range below this size counts as one value


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Return an SVG element. Plain strings and attributes are escaped.

    Underscores in attribute names become hyphens and a trailing underscore is dropped (``class_``, ``text_anchor``).
    Numbers are rounded to two decimals. Attributes with the value None are left out.
    """
    texts = {
        key.rstrip("_").replace("_", "-"): visible(value) if isinstance(value, str) else f"{round(value, 2):g}"
        for key, value in attributes.items()
        if value is not None
    }
    written = Markup().join(Markup(' {}="{}"').format(key, text) for key, text in texts.items())
    return Markup("<{}{}>{}</{}>").format(name, written, Markup().join(map(visible_value, children)), name)


def chart(title: str, width: float, height: float, content: Iterable[Markup], class_: str = "curve") -> Markup:
    """Return an inline drawing with a title for screen readers."""
    view = f"0 0 {width:g} {height:g}"
    return element("svg", element("title", title), *content, class_=class_, viewBox=view, role="img")


def dot(name: str, value: float, x: float, y: float, class_: str) -> Markup:
    """Draw a dot. Browsers show its name and its value as a tooltip."""
    return element("circle", element("title", f"{name}: {format_number(value)}"), class_=class_, r=2.5, cx=x, cy=y)


def evenly_spaced(total: int, count: int) -> list[int]:
    """Return at most ``count`` of the indices below ``total``, including the first and the last."""
    return [round(index * (total - 1) / (count - 1)) for index in range(count)] if total > count else [*range(total)]


def points(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Return the ``points`` attribute of a line through these positions."""
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))


def format_number(value: float) -> str:
    """Return a value with three significant digits, or rounded to an integer if it is from 1,000 to 1,000,000."""
    written = f"{value:,.0f}" if 999.5 <= abs(value) < 1e6 else f"{value:.3g}"
    mantissa, _, exponent = written.partition("e")
    return (f"{mantissa}e{int(exponent)}" if exponent else mantissa).replace("-", "−")


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Return round tick values from below ``low`` to above ``high``, with about ``count`` intervals.

    The distance of two ticks is 1, 2 or 5 times a power of ten. Equal ends are moved apart.
    """
    if high - low <= max(RELATIVE_TOLERANCE * max(abs(low), abs(high)), ABSOLUTE_TOLERANCE):
        high = low + (abs(low) if abs(low) > ABSOLUTE_TOLERANCE else 1.0)
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


@dataclass(frozen=True)
class Axis:
    """A linear axis: the value ``low`` is drawn at ``start`` and ``high`` at ``end``."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]

    @classmethod
    def enclosing(cls, values: Sequence[float], start: float, end: float, count: int = 4) -> "Axis":
        """Return an axis whose outer ticks enclose all values."""
        ticks = nice_ticks(min(values), max(values), count)
        return cls(ticks[0], ticks[-1], start, end, tuple(ticks))

    @classmethod
    def between(cls, low: float, high: float, start: float, end: float, count: int) -> "Axis":
        """Return an axis that begins at ``low`` and ends at ``high``, but is at least 1 long."""
        ticks = (tick for tick in nice_ticks(low, high, count) if low <= tick <= high)
        return cls(low, max(high, low + 1.0), start, end, tuple(ticks))

    def at(self, value: float) -> float:
        """Return the position of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def rows(self, left: float, right: float) -> list[Markup]:
        """Draw a vertical axis: a horizontal line for each tick and its number on the left."""
        drawn = []
        for tick in self.ticks:
            y = self.at(tick)
            drawn.append(element("line", class_="grid", x1=left, x2=right, y1=y, y2=y))
            drawn.append(element("text", format_number(tick), x=left - 6, y=y, dy="0.32em", text_anchor="end"))
        return drawn

    def columns(
        self, top: float, bottom: float, number_y: float, *, number_class: str | None = None, marks_zero: bool = False
    ) -> list[Markup]:
        """Draw a horizontal axis: a vertical line for each tick and its number at the height ``number_y``.

        ``number_class`` is the CSS class of the numbers. With ``marks_zero``, the line at 0 has the class ``zero``.
        """
        drawn = []
        for tick in self.ticks:
            x, line_class = self.at(tick), "zero" if marks_zero and tick == 0 else "grid"
            drawn.append(element("line", class_=line_class, x1=x, x2=x, y1=top, y2=bottom))
            number = element("text", format_number(tick), x=x, class_=number_class, y=number_y, text_anchor="middle")
            drawn.append(number)
        return drawn
