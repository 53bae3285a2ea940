"""The training section: charts of losses, scores and learning rate, and the duration of each phase of a step."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from graftseg.reporting.curves import Frame, panel, running_mean_width, split
from graftseg.reporting.missing import TRAIN_COMMAND, Missing
from graftseg.reporting.rendering import render
from graftseg.reporting.run_files import Curve, Log, Stage

WIDE, NARROW = 1040.0, 330.0
PHASES = ("batch", "forward", "backward", "update")
NOT_LOGGED = Missing("No step has been logged.", *TRAIN_COMMAND)


def training_section(log: Log | None, facts: dict[str, Any]) -> Markup:
    """Render the curves of all logged values, with the same step axis, and the time of each phase of a step."""
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
    """Return the stages without the names of methods, which only the chart of the total loss shows."""
    return tuple(Stage("", stage.first, stage.last) for stage in stages)
