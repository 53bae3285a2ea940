"""How training went: loss curves, validation, learning rate, and where the time was spent."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from graftseg.reporting.curves import Curve, Frame, Stage, Style, panel, split, window
from graftseg.reporting.folder import Log
from graftseg.reporting.markup import Html, join, missing, section, tag, wide

TITLE = "Training"
COMMAND = "graftseg train RECIPE --data DATA --out RUN"
WIDE, NARROW = 1040.0, 330.0
PHASES = ("batch", "forward", "backward", "update")


def training_section(log: Log | None, facts: dict[str, Any]) -> Html:
    """The curves of every logged value and the share of each phase of a step."""
    curves = missing("No step has been logged.", COMMAND)
    if log is not None and log.total is not None:
        curves = join([_main_curves(log, log.total), _term_curves(log), _caption(log)])
    return section("training", TITLE, curves, _phases(facts.get("seconds_per_step") or {}))


def fold_curves_section(logs: Sequence[Log | None]) -> Html:
    """The total loss of every fold, and its scores in validation if there are any, over the same steps."""
    known = {number: log for number, log in enumerate(logs) if log is not None and log.total is not None}
    if not known:
        return section("training", TITLE, missing("No step has been logged.", COMMAND))
    spans = [_span(log) for log in known.values()]
    frame = Frame(NARROW, 170.0, min(first for first, _ in spans), max(last for _, last in spans))
    charts = [
        panel(f"Fold {number}: {name}", curve, frame, stages=_unnamed(log.stages), style=style)
        for number, log in known.items()
        for name, curve, style in _fold_curves(log)
    ]
    longest = max(known.values(), key=lambda log: _span(log)[1])
    return section("training", TITLE, tag("div", *charts, class_="small-charts"), _caption(longest))


def _fold_curves(log: Log) -> Iterator[tuple[str, Curve, Style]]:
    if log.total is not None:
        yield "total loss", log.total, "noisy"
    for name, curve in log.validation.items():
        yield _scored(name).lower(), curve, "dots"


def _main_curves(log: Log, total: Curve) -> Html:
    """Total loss, validation and learning rate one above the other, on the same steps."""
    first, last = _span(log)
    unnamed = _unnamed(log.stages)
    panels = [panel("Total loss", total, Frame(WIDE, 260.0, first, last), stages=log.stages)]
    panels += [
        panel(_scored(name), curve, Frame(WIDE, 150.0, first, last), stages=unnamed, style="dots")
        for name, curve in log.validation.items()
    ]
    if log.rates is not None:
        frame = Frame(WIDE, 100.0, first, last)
        panels.append(panel("Learning rate", log.rates, frame, stages=unnamed, style="plain"))
    return wide(tag("div", *panels, class_="charts"), "Training curves")


def _term_curves(log: Log) -> Html:
    """A small chart per term of the loss; nothing where the only term is the total itself."""
    if len(log.terms) < 2:
        return Html("")
    first, last = _span(log)
    frame = Frame(NARROW, 170.0, first, last)
    charts = [panel(name, curve, frame, stages=_unnamed(log.stages)) for name, curve in log.terms.items()]
    return tag("div", *charts, class_="small-charts")


def _caption(log: Log) -> Html:
    spans = [f"{stage.method}, steps {stage.first:,} to {stage.last:,}" for stage in log.stages]
    text = f"Stages: {'; '.join(spans)}.{_smoothed(log)}"
    text += "".join(f" {sentence}" for sentence in _jumps(log))
    if log.dropped:
        text += f" {log.dropped:,} logged values were not finite and are left out."
    return tag("p", text, class_="caption")


def _smoothed(log: Log) -> str:
    """What the lines and the label of a noisy curve are."""
    parts = [] if log.total is None else split(log.total, log.stages)
    widths = sorted({window(len(part.steps)) for part in parts} - {1})
    if not widths:
        return ""
    many = f"{widths[0]}" if len(widths) == 1 else f"{widths[0]} to {widths[-1]}, by the length of the stage"
    return (
        " Faint line: single steps, of many the extremes, which jump by what their patches happen to hold; "
        f"strong line: the mean of the last steps ({many}) up to each one. "
        "The figure beside a loss is that mean at the end."
    )


def _jumps(log: Log) -> Iterator[str]:
    """Why the total jumps where a stage begins whose loss has other terms than that of the stage before."""
    sums = [_terms_of(log, stage) for stage in log.stages]
    for (before, terms), (stage, others) in pairwise(zip(log.stages, sums, strict=True)):
        if terms and others and len(terms) != len(others):
            yield (
                f"The total of {stage.method} is made of {' + '.join(others)}, that of {before.method} of "
                f"{' + '.join(terms)}: where the stage changes it may jump, and the two are not to be compared."
            )


def _terms_of(log: Log, stage: Stage) -> list[str]:
    """Names of the terms that were logged in a stage."""
    return [
        name for name, curve in log.terms.items() if ((curve.steps >= stage.first) & (curve.steps <= stage.last)).any()
    ]


def _scored(name: str) -> str:
    """The title of a score's chart; scores of the test cases are named so in the log."""
    return name.capitalize() if name.startswith("test ") else f"Validation {name}"


def _span(log: Log) -> tuple[float, float]:
    return float(min(stage.first for stage in log.stages)), float(max(stage.last for stage in log.stages))


def _unnamed(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    """The stages without their names, for the charts below the first."""
    return tuple(Stage("", stage.first, stage.last) for stage in stages)


def _phases(seconds: dict[str, float]) -> Html:
    """The phases of a step as one bar."""
    total = sum(seconds.values())
    if total <= 0:
        return missing("How long the phases of a step take was not recorded.")
    ordered = sorted(seconds.items(), key=lambda item: PHASES.index(item[0]) if item[0] in PHASES else len(PHASES))
    bars = [
        tag("i", class_=f"phase-{place % 4}", style=f"flex:{value / total:.4f}")
        for place, (_, value) in enumerate(ordered)
    ]
    names = [
        tag(
            "li",
            tag("i", class_=f"swatch phase-{place % 4}"),
            f"{name} {value * 1000:.1f} ms ({value / total:.0%})",
        )
        for place, (name, value) in enumerate(ordered)
    ]
    return tag(
        "figure",
        tag("figcaption", f"One step takes {total * 1000:.1f} ms"),
        tag("div", *bars, class_="bar"),
        tag("ul", *names, class_="legend"),
    )
