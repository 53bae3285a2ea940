"""The course of training: loss curves, validation, learning rate, and the time of each phase of a step."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from graftseg.reporting.curves import Curve, Frame, Stage, Style, panel, split, window
from graftseg.reporting.folder import Log
from graftseg.reporting.gaps import TRAIN, Missing
from graftseg.reporting.rendering import render

WIDE, NARROW = 1040.0, 330.0
PHASES = ("batch", "forward", "backward", "update")
NOT_LOGGED = Missing("No step has been logged.", *TRAIN)


def training_section(log: Log | None, facts: dict[str, Any]) -> Markup:
    """Render the curves of every logged value and the share of each phase of a step."""
    view: dict[str, Any] = {"empty": NOT_LOGGED, "charts": [], "small_charts": [], "caption": ""}
    if log is not None and log.total is not None:
        charts = _main_curves(log, log.total)
        view = {"empty": None, "charts": charts, "small_charts": _term_curves(log), "caption": _caption(log)}
    seconds = facts.get("seconds_per_step") or {}
    total = sum(seconds.values())
    return render("training", **view, has_phases=True, step=f"{total * 1000:.1f} ms", phases=_phases(seconds, total))


def fold_curves_section(logs: Sequence[Log | None]) -> Markup:
    """Render the total loss and the validation scores of every fold over the same steps."""
    known = {number: log for number, log in enumerate(logs) if log is not None and log.total is not None}
    view: dict[str, Any] = {"charts": [], "has_phases": False}
    if not known:
        return render("training", **view, empty=NOT_LOGGED, small_charts=[], caption="")
    spans = [_span(log) for log in known.values()]
    frame = Frame(NARROW, 170.0, min(first for first, _ in spans), max(last for _, last in spans))
    charts = [
        panel(f"Fold {number}: {name}", curve, frame, stages=_unnamed(log.stages), style=style)
        for number, log in known.items()
        for name, curve, style in _fold_curves(log)
    ]
    longest = max(known.values(), key=lambda log: _span(log)[1])
    return render("training", **view, empty=None, small_charts=charts, caption=_caption(longest))


def _fold_curves(log: Log) -> Iterator[tuple[str, Curve, Style]]:
    if log.total is not None:
        yield "total loss", log.total, "noisy"
    for name, curve in log.validation.items():
        yield _score_title(name).lower(), curve, "dots"


def _main_curves(log: Log, total: Curve) -> list[Markup]:
    """Draw total loss, validation and learning rate over the same steps."""
    first, last = _span(log)
    unnamed = _unnamed(log.stages)
    panels = [panel("Total loss", total, Frame(WIDE, 260.0, first, last), stages=log.stages)]
    panels += [
        panel(_score_title(name), curve, Frame(WIDE, 150.0, first, last), stages=unnamed, style="dots")
        for name, curve in log.validation.items()
    ]
    if log.rates is not None:
        frame = Frame(WIDE, 100.0, first, last)
        panels.append(panel("Learning rate", log.rates, frame, stages=unnamed, style="plain"))
    return panels


def _term_curves(log: Log) -> list[Markup]:
    """Draw a small chart for each term of the loss; none if the only term is the total."""
    if len(log.terms) < 2:
        return []
    frame = Frame(NARROW, 170.0, *_span(log))
    return [panel(name, curve, frame, stages=_unnamed(log.stages)) for name, curve in log.terms.items()]


def _caption(log: Log) -> str:
    spans = [f"{stage.method}, steps {stage.first:,} to {stage.last:,}" for stage in log.stages]
    text = f"Stages: {'; '.join(spans)}.{_smoothing(log)}"
    text += "".join(f" {sentence}" for sentence in _jumps(log))
    if log.dropped:
        text += f" {log.dropped:,} logged values were not finite and are left out."
    return text


def _smoothing(log: Log) -> str:
    """Explain the lines and the label of a noisy curve."""
    parts = [] if log.total is None else split(log.total, log.stages)
    widths = sorted({window(len(part.steps)) for part in parts} - {1})
    if not widths:
        return ""
    count = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]}, depending on the stage"
    return (
        " Faint line: single steps, or their extremes in a long run; they vary with the patches of the batch. "
        f"Strong line: running mean of the last steps ({count}). The number next to a loss is the last running mean."
    )


def _jumps(log: Log) -> Iterator[str]:
    """Explain jumps of the total where a stage has other loss terms than the previous stage."""
    sums = [_terms_of(log, stage) for stage in log.stages]
    for (before, terms), (stage, others) in pairwise(zip(log.stages, sums, strict=True)):
        if terms and others and len(terms) != len(others):
            yield (
                f"The total of {stage.method} is {' + '.join(others)}, the total of {before.method} is "
                f"{' + '.join(terms)}, so the total may jump between the stages and cannot be compared across them."
            )


def _terms_of(log: Log, stage: Stage) -> list[str]:
    """Return the names of the loss terms that were logged in a stage."""
    return [
        name for name, curve in log.terms.items() if ((curve.steps >= stage.first) & (curve.steps <= stage.last)).any()
    ]


def _score_title(name: str) -> str:
    """Return the title of a chart of scores; the log marks scores on test cases."""
    return name.capitalize() if name.startswith("test ") else f"Validation {name}"


def _span(log: Log) -> tuple[float, float]:
    return float(min(stage.first for stage in log.stages)), float(max(stage.last for stage in log.stages))


def _unnamed(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """Return the stages without names, for the charts below the first."""
    return tuple(Stage("", stage.first, stage.last) for stage in stages)


def _phases(seconds: dict[str, float], total: float) -> list[tuple[int, str, str]]:
    """Return the color, the share and the text of each phase of a step; empty if no time was recorded."""
    if total <= 0:
        return []
    ordered = sorted(seconds.items(), key=lambda item: PHASES.index(item[0]) if item[0] in PHASES else len(PHASES))
    return [
        (place % 4, f"{value / total:.4f}", f"{name} {value * 1000:.1f} ms ({value / total:.0%})")
        for place, (name, value) in enumerate(ordered)
    ]
