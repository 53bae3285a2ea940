"""The four metrics of published tables (Dice, Jaccard, 95HD, ASD), their means, and their format in tables."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graftseg.core.phrases import counted
from graftseg.core.text_tables import format_table

if TYPE_CHECKING:
    from graftseg.evaluation.scores import Evaluation

METRIC_NAMES = {"dice": "Dice", "jaccard": "Jaccard", "hd95": "95HD", "asd": "ASD"}
"""The four metrics and their names in published tables."""
OVERLAPS = ("dice", "jaccard")
"""The metrics of published tables that are printed in percent. The other two are distances."""
SHARES = (*OVERLAPS, "surface_dice")  # scores from 0 to 1, which are printed in percent
VOLUME_COLUMNS = {"volume error ml": "volume_error_ml", "volume error %": "volume_error_percent"}
NO_VALUE = "-"
TEXT_WIDTH = 120  # characters per line of a printed score table
DEVIATION = "sample standard deviation over cases"


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation (NaN for a single value) and number of values."""

    mean: float
    std: float
    count: int

    def __str__(self) -> str:
        return format_value(self.mean, self.std)


def mean_metrics(evaluation: "Evaluation") -> dict[str, float]:
    """Return the four metrics of a run, averaged over cases and then over classes. Overlaps are in percent."""
    overall = evaluation.summary().overall
    return {name: overall[name] * (100 if name in OVERLAPS else 1) for name in METRIC_NAMES}


def spread(values: Sequence[float]) -> Spread:
    """Return mean and standard deviation; NaN if there are no values or any value is NaN."""
    if not values or any(math.isnan(value) for value in values):
        return Spread(math.nan, math.nan, len(values))
    deviation = statistics.stdev(values) if len(values) > 1 else math.nan
    return Spread(statistics.fmean(values), deviation, len(values))


def spreads(runs: Sequence[Mapping[str, float]]) -> dict[str, Spread]:
    """Return the spread of each metric over several runs."""
    return {name: spread([run[name] for run in runs]) for name in METRIC_NAMES}


def format_value(value: float, deviation: float = math.nan) -> str:
    """Format a value with two decimals and, unless it is NaN, its deviation. A value that is NaN becomes a dash."""
    if math.isnan(value):
        return NO_VALUE
    return f"{value:.2f}" if math.isnan(deviation) else f"{value:.2f} ± {deviation:.2f}"


def format_difference(value: float) -> str:
    """Format a difference with its sign and two decimals; a dash for NaN."""
    return NO_VALUE if math.isnan(value) else f"{value:+.2f}"


def format_interval(low: float, high: float) -> str:
    """Format a confidence interval; a dash for NaN."""
    return NO_VALUE if math.isnan(low) else f"{low:+.2f} to {high:+.2f}"


def null_if_nan(value: Any) -> Any:
    """Return None for NaN, which JSON does not have, and any other value unchanged."""
    return None if isinstance(value, float) and math.isnan(value) else value


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with None instead of NaN."""
    return {name: null_if_nan(value) for name, value in values.items()}


def scores_table(evaluation: "Evaluation") -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of a score table: classes, then their mean. Distances in mm are omitted if equal."""
    units = {"voxel": "", "mm": "_mm"} if evaluation.has_spacing else {"voxel": ""}
    distances = {
        f"{METRIC_NAMES[name]} {unit}": name + suffix for unit, suffix in units.items() for name in ("hd95", "asd")
    }
    volumes = VOLUME_COLUMNS if evaluation.has_volumes else {}
    surface = {} if evaluation.tolerance is None else {"surface Dice %": "surface_dice"}
    columns = {f"{METRIC_NAMES[name]} %": name for name in OVERLAPS} | distances | surface | volumes
    summary = evaluation.summary()
    rows = [
        (each.name, *(_cell(metric, each.metrics[metric].mean) for metric in columns.values()))
        for each in summary.classes
    ]
    overall = ("mean", *(_cell(metric, summary.overall.get(metric, math.nan)) for metric in columns.values()))
    return ("class", *columns), [*rows, overall]


def scores_text(evaluation: "Evaluation") -> str:
    """Return the score table as text, below a line from ``extent_of``."""
    table = format_table(*scores_table(evaluation), TEXT_WIDTH)
    return "\n".join([extent_of(evaluation), *table.head, *table.body])


def extent_of(evaluation: "Evaluation") -> str:
    """Describe the numbers of cases and classes and the protocol."""
    cases, classes = {row.case for row in evaluation.rows}, {row.label for row in evaluation.rows}
    counts = f"{counted(len(cases), 'case')}, {counted(len(classes), 'class', 'classes')}"
    return f"{counts}, {evaluation.protocol} protocol"


def _cell(metric: str, value: float) -> str:
    return format_value(value * (100 if metric in SHARES else 1))
