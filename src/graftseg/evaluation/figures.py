"""The four figures of this field's tables, Dice, Jaccard, 95HD and ASD, of one run and over several."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graftseg.core.text_tables import format_table

if TYPE_CHECKING:
    from graftseg.evaluation.scores import Evaluation

FIGURES = {"dice": "Dice", "jaccard": "Jaccard", "hd95": "95HD", "asd": "ASD"}
SHARES = ("dice", "jaccard")
VOLUME_COLUMNS = {"volume error ml": "volume_error_ml", "volume error %": "volume_error_percent"}
NO_VALUE = "-"
PRINTED = 120
"""Characters in a line of scores that are printed as text."""
DEVIATION = "standard deviation over cases, divided by one less than their number"
Figures = dict[str, float]
"""By the keys of ``FIGURES``: overlaps in percent, distances in voxels; NaN where there is none."""


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (divided by one less than the count, NaN of a single value)."""

    mean: float
    std: float


def figures_of(evaluation: "Evaluation") -> Figures:
    """The figures of a run: means over the classes of the means over the cases."""
    overall = evaluation.summary().overall
    return {name: overall[name] * (100 if name in SHARES else 1) for name in FIGURES}


def spread(values: Sequence[float]) -> Spread:
    """Mean and deviation over runs; one run without a value leaves none over all."""
    if not values or any(math.isnan(value) for value in values):
        return Spread(math.nan, math.nan)
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan)


def spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    """The spread of each figure over several runs."""
    return {name: spread([run[name] for run in runs]) for name in FIGURES}


def format_value(value: float, deviation: float = math.nan) -> str:
    """Two decimals, with the deviation where there is one; a dash where there is no value."""
    if math.isnan(value):
        return NO_VALUE
    return f"{value:.2f}" if math.isnan(deviation) else f"{value:.2f} ± {deviation:.2f}"


def scores_table(evaluation: "Evaluation") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and rows of a run's scores, class by class; in millimetres too where those say other than voxels."""
    units = {"voxel": "", "mm": "_mm"} if evaluation.has_spacing else {"voxel": ""}
    distances = {f"{FIGURES[name]} {unit}": name + end for unit, end in units.items() for name in ("hd95", "asd")}
    volumes = VOLUME_COLUMNS if evaluation.has_volumes else {}
    columns = {f"{FIGURES[name]} %": name for name in SHARES} | distances | volumes
    summary = evaluation.summary()
    means = {one.name: {metric: one.metrics[metric].mean for metric in columns.values()} for one in summary.classes}
    rows = [(name, *(_cell(values, metric) for metric in columns.values())) for name, values in means.items()]
    rows.append(
        (
            "mean",
            *(_cell(summary.overall, metric) if metric in summary.overall else NO_VALUE for metric in columns.values()),
        )
    )
    return ("class", *columns), rows


def scores_text(evaluation: "Evaluation") -> str:
    """The same as lines of text, under what it is of."""
    laid = format_table(*scores_table(evaluation), PRINTED)
    return "\n".join([extent_of(evaluation), *laid.head, *laid.body])


def extent_of(evaluation: "Evaluation") -> str:
    """How many cases and classes were scored, and by which protocol."""
    cases, classes = ({getattr(row, of) for row in evaluation.rows} for of in ("case", "label"))
    counts = f"{len(cases)} case{'s' * (len(cases) != 1)}, {len(classes)} class{'es' * (len(classes) != 1)}"
    return f"{counts}, {evaluation.protocol} protocol"


def _cell(values: Figures, metric: str) -> str:
    return format_value(values[metric] * (100 if metric in SHARES else 1))
