"""Scores of label maps, one row per class and case, and the CSV table that stores them."""

import csv
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from graftseg.core.csv_tables import csv_text, read_csv_rows
from graftseg.core.errors import Code, UserError
from graftseg.core.files import json_text, read_json, write_group, write_text
from graftseg.evaluation.metrics import Protocol, as_protocol
from graftseg.evaluation.table_metrics import Spread, extent_of, null_if_nan, plain_values, scores_text, spread

VOXEL_FIELDS = ("hd95", "hd95_max", "asd", "assd")  # distances in voxels
METRICS = ("dice", "jaccard", *VOXEL_FIELDS, *(f"{name}_mm" for name in VOXEL_FIELDS), "surface_dice")
VOLUME_ERRORS = ("volume_error_ml", "volume_error_percent")
RECREATE = "run graftseg evaluate to recreate it"
LATER_COLUMNS = ("surface_dice", "tolerance_mm")  # columns that tables of older versions do not have
VOLUMES = ("volume_prediction_ml", "volume_reference_ml", *VOLUME_ERRORS)


@dataclass(frozen=True)
class Row:
    """Scores of one class of one case. All scores of a class that is in no reference are NaN.

    Overlaps are from 0 to 1. Distances are in voxels, or in millimeters with ``_mm``, and NaN if the protocol defines
    none. Volumes are NaN for 2-D images.
    """

    case: str
    label: int
    name: str
    dice: float
    jaccard: float
    hd95: float
    hd95_max: float
    asd: float
    assd: float
    hd95_mm: float
    hd95_max_mm: float
    asd_mm: float
    assd_mm: float
    volume_prediction_ml: float
    volume_reference_ml: float
    surface_dice: float = math.nan
    tolerance_mm: float = math.nan  # tolerance of ``surface_dice``; both are NaN in tables of older versions

    @property
    def volume_error_ml(self) -> float:
        """Return predicted volume minus reference volume."""
        return self.volume_prediction_ml - self.volume_reference_ml

    @property
    def volume_error_percent(self) -> float:
        """Return the volume error as a percentage of the reference volume; NaN for an empty reference."""
        if not self.volume_reference_ml:
            return math.nan
        return 100 * (self.volume_error_ml / self.volume_reference_ml)


@dataclass(frozen=True)
class ClassSummary:
    """Statistics of one class over all cases, for each of ``METRICS`` and ``VOLUMES``. NaN values are ignored."""

    label: int
    name: str
    metrics: dict[str, Spread]


@dataclass(frozen=True)
class Summary:
    """Statistics of each class, and the mean of each metric over cases and then over classes in ``overall``."""

    classes: tuple[ClassSummary, ...]
    overall: dict[str, float]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Rows sorted by case and class, and the protocol for empty masks."""

    rows: tuple[Row, ...]
    protocol: Protocol

    def __str__(self) -> str:
        return scores_text(self)

    def __repr__(self) -> str:
        return f"<Evaluation of {extent_of(self)}>"

    @property
    def has_spacing(self) -> bool:
        """Return whether any distance in millimeters differs from that in voxels."""
        pairs = ((getattr(row, name), getattr(row, f"{name}_mm")) for row in self.rows for name in VOXEL_FIELDS)
        return any(in_voxels != in_mm for in_voxels, in_mm in pairs if not math.isnan(in_voxels + in_mm))

    @property
    def has_volumes(self) -> bool:
        """Return whether any case has a volume. 2-D images have none."""
        return any(not math.isnan(row.volume_error_ml) for row in self.rows)

    @property
    def tolerance(self) -> float | None:
        """Return the tolerance of the surface Dice in millimeters, or None in tables of older versions."""
        return next((row.tolerance_mm for row in self.rows if not math.isnan(row.tolerance_mm)), None)

    def summary(self) -> Summary:
        """Compute the statistics of each class and the means over the classes."""
        names = {row.label: row.name for row in self.rows}
        classes = []
        for label in sorted(names):
            rows = [row for row in self.rows if row.label == label]
            columns = {metric: [getattr(row, metric) for row in rows] for metric in (*METRICS, *VOLUMES)}
            statistics = {metric: _spread_without_nan(values) for metric, values in columns.items()}
            classes.append(ClassSummary(label, names[label], statistics))
        overall = {
            metric: _spread_without_nan(summary.metrics[metric].mean for summary in classes).mean for metric in METRICS
        }
        return Summary(tuple(classes), overall)

    def description(self) -> dict[str, Any]:
        """Return protocol, number of rows and summary as JSON values."""
        summary = self.summary()
        classes = [
            {"label": each.label, "name": each.name}
            | {metric: plain_values(asdict(statistic)) for metric, statistic in each.metrics.items()}
            for each in summary.classes
        ]
        overall = plain_values(summary.overall)
        return {"protocol": self.protocol, "rows": len(self.rows), "classes": classes, "overall": overall}

    def write_csv(self, path: str | Path) -> None:
        """Write the table. Its header contains the units, and cells of NaN are empty."""
        write_text(Path(path), self._csv())

    def save(self, table: Path, about: Mapping[str, Any]) -> None:
        """Write the table and its description, which also contains ``about``. Both files are written, or neither."""
        description = json_text({**about, **self.description()})
        write_group({table: self._csv(), description_file(table): description})

    def _csv(self) -> str:
        last_columns = (*VOLUME_ERRORS, *LATER_COLUMNS)
        names = (*_COLUMNS, *last_columns)
        lines = [[self.protocol, *(null_if_nan(getattr(row, name)) for name in names)] for row in self.rows]
        return csv_text([["protocol", *_COLUMNS.values(), *last_columns], *lines])


_FIELDS = [field.name for field in fields(Row) if field.name not in LATER_COLUMNS]
_COLUMNS = {name: f"{name}_voxel" if name in VOXEL_FIELDS else name for name in _FIELDS}
"""The column of each field of a row."""


def description_file(table: Path) -> Path:
    """Return the path of the JSON file with the references and the summary of a table."""
    return table.with_suffix(".json")


def check_table_path(table: Path) -> None:
    """Raise an error if the table is not a CSV file, or if writing it would overwrite an unrelated JSON file."""
    if table.suffix != ".csv":
        raise UserError(Code.OPTION_INVALID, table, "the metrics table must be a .csv file", "end --out in .csv")
    description = description_file(table)
    content = read_json(description) if description.exists() else {"protocol": None}
    if not isinstance(content, dict) or "protocol" not in content:
        finding = f"{description.name} in the same folder would be overwritten"
        raise UserError(Code.UNSAFE_TARGET, table, finding, "remove that file or choose another --out")


def read_csv(path: Path) -> Evaluation:
    """Read a table that ``Evaluation.write_csv`` wrote. Columns that are not needed are ignored."""
    try:
        lines = read_csv_rows(path)
        rows = tuple(_row_from(line) for line in lines)
        protocols = {line["protocol"] for line in lines}
        if len(protocols) != 1:
            raise ValueError(f"{len(protocols)} protocols in {len(lines)} rows")
    except OSError as error:
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({error.strerror})", RECREATE) from None
    except (csv.Error, ValueError, KeyError) as error:
        raise UserError(Code.DAMAGED_FILE, path, f"damaged or edited ({error})", RECREATE) from None
    return Evaluation(rows, as_protocol(path, protocols.pop()))


def _row_from(line: Mapping[Any, Any]) -> Row:
    if None in line or None in line.values():
        raise ValueError("a line has more or fewer cells than the header")
    cells = {field: line[column] for field, column in _COLUMNS.items()}
    cells |= {column: line[column] for column in LATER_COLUMNS if column in line}
    case, label, name = cells.pop("case"), int(cells.pop("label")), cells.pop("name")
    numbers: dict[str, Any] = {field: float(cell) if cell else math.nan for field, cell in cells.items()}
    if not 0 <= label < 2**16 or math.inf in map(abs, numbers.values()):
        raise ValueError("a number is out of range")
    return Row(case=case, label=label, name=name, **numbers)


def _spread_without_nan(values: Iterable[float]) -> Spread:
    return spread([value for value in values if not math.isnan(value)])
