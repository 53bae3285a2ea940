"""Label maps beside their references -> a row of metrics for each class of each case, kept as a csv file."""

import csv
import io
import logging
import math
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError
from graftseg.core.files import json_text, read_json, write_group, write_text
from graftseg.core.names import by_nfc, nfc, same_names
from graftseg.core.progress import in_parallel
from graftseg.core.types import Geometry
from graftseg.data.labels import is_mask, mask_remedy
from graftseg.data.scans import grid_difference, read_label, scan_stem
from graftseg.evaluation.figures import extent_of, scores_text
from graftseg.evaluation.metrics import PROTOCOLS, Protocol, score
from graftseg.evaluation.plausibility import implausible, miscounted, told_beside
from graftseg.evaluation.references import Reference, label_maps, references_in

LabelMap = npt.NDArray[np.unsignedinteger[Any]]
MOST_WORKERS = 16
logger = logging.getLogger(__name__)
METRICS = (
    "dice",
    "jaccard",
    "hd95",
    "hd95_max",
    "asd",
    "assd",
    "hd95_mm",
    "hd95_max_mm",
    "asd_mm",
    "assd_mm",
)
VOLUME_ERRORS = ("volume_error_ml", "volume_error_percent")
VOLUMES = ("volume_prediction_ml", "volume_reference_ml", *VOLUME_ERRORS)


@dataclass(frozen=True)
class Row:
    """How one class of one case was segmented.

    Distances are in voxels, those that end in ``_mm`` in millimetres; NaN where the protocol gives none.
    A volume in millilitres is NaN for a 2-D image.
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

    @property
    def volume_error_ml(self) -> float:
        """How much larger the prediction is than the reference; below 0 if it is smaller."""
        return self.volume_prediction_ml - self.volume_reference_ml

    @property
    def volume_error_percent(self) -> float:
        """The same as a share of the reference; NaN where that is empty."""
        if not self.volume_reference_ml:
            return math.nan
        return 100 * (self.volume_error_ml / self.volume_reference_ml)


@dataclass(frozen=True)
class Statistic:
    """Mean and standard deviation (divided by one less than ``count``, NaN of a single value) of ``count`` values."""

    mean: float
    std: float
    count: int


@dataclass(frozen=True)
class ClassSummary:
    """One class over all cases, a statistic for each of ``METRICS`` and ``VOLUMES``; NaN is left out, not counted."""

    label: int
    name: str
    metrics: dict[str, Statistic]


@dataclass(frozen=True)
class Summary:
    """Each class, and overall the mean over classes of the mean over cases, for each of ``METRICS``."""

    classes: tuple[ClassSummary, ...]
    overall: dict[str, float]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """All rows, by case and then by class, and the protocol that scored the empty masks among them."""

    rows: tuple[Row, ...]
    protocol: Protocol

    def __str__(self) -> str:
        return scores_text(self)

    def __repr__(self) -> str:
        return f"<Evaluation of {extent_of(self)}>"

    @property
    def has_spacing(self) -> bool:
        """Whether millimetres say other than voxels; not so where files tell nothing of the size of a voxel."""
        pairs = ((getattr(row, name), getattr(row, f"{name}_mm")) for row in self.rows for name in _VOXEL_FIELDS)
        return any(voxels != millimetres for voxels, millimetres in pairs if not math.isnan(voxels + millimetres))

    @property
    def has_volumes(self) -> bool:
        """Whether any case is a volume; a 2-D image has none."""
        return any(not math.isnan(row.volume_error_ml) for row in self.rows)

    def summary(self) -> Summary:
        """Statistics of each class over the cases, then their means over the classes."""
        names = {row.label: row.name for row in self.rows}
        classes = tuple(
            ClassSummary(label, names[label], _statistics(row for row in self.rows if row.label == label))
            for label in sorted(names)
        )
        overall = {metric: _statistic(one.metrics[metric].mean for one in classes).mean for metric in METRICS}
        return Summary(classes, overall)

    def description(self) -> dict[str, Any]:
        """Protocol, number of rows, and the summary of each class and over all of them, for a program to read."""
        summary = self.summary()
        classes = [
            {
                "label": one.label,
                "name": one.name,
                **{
                    metric: {key: _known(value) for key, value in asdict(of).items()}
                    for metric, of in one.metrics.items()
                },
            }
            for one in summary.classes
        ]
        overall = {metric: _known(value) for metric, value in summary.overall.items()}
        return {"protocol": self.protocol, "rows": len(self.rows), "classes": classes, "overall": overall}

    def write_csv(self, path: str | Path) -> None:
        """Write a line for each row, units in the header; NaN is empty, all else reads back as it was."""
        write_text(Path(path), self._csv())

    def keep(self, table: Path, about: Mapping[str, Any]) -> None:
        """Write the table and, beside it, its description with what else is to be told ``about`` it; or neither."""
        words = json_text({**about, **self.description()})
        write_group({table: self._csv(), description_of(table): words})

    def _csv(self) -> str:
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["protocol", *_COLUMNS.values(), *VOLUME_ERRORS])
        for row in self.rows:
            writer.writerow([self.protocol, *(_cell(getattr(row, name)) for name in (*_COLUMNS, *VOLUME_ERRORS))])
        return stream.getvalue()


_VOXEL_FIELDS = {"hd95", "hd95_max", "asd", "assd"}
_COLUMNS = {f.name: f"{f.name}_voxel" if f.name in _VOXEL_FIELDS else f.name for f in fields(Row)}


def evaluate_pair(
    case: str,
    prediction: LabelMap,
    reference: LabelMap,
    geometry: Geometry,
    classes: Mapping[int, str],
    protocol: Protocol = "standard",
    *,
    where: tuple[str | Path, str | Path] | None = None,
) -> list[Row]:
    """Score every class but background of one case, both label maps ``(*space)`` on the grid of ``geometry``.

    ``where`` names prediction and reference in errors; without it the case does.
    """
    places = where or (case, f"reference of {case}")
    for place, labels in zip(places, (prediction, reference), strict=True):
        check_label_values(place, labels, classes)
    voxel_ml = geometry.voxel_volume / 1000 if len(geometry.shape) == 3 else math.nan
    rows = []
    for label in sorted(set(classes) - {0}):
        P, G = prediction == label, reference == label
        voxels = asdict(score(P, G, protocol=protocol))
        # distances are most of the work, and many benchmarks have voxels of 1 mm
        same = all(step == 1 for step in geometry.spacing)
        millimetres = voxels if same else asdict(score(P, G, spacing=geometry.spacing, protocol=protocol))
        row = Row(
            case=case,
            label=label,
            name=classes[label],
            **voxels,
            **{f"{name}_mm": millimetres[name] for name in _VOXEL_FIELDS},
            volume_prediction_ml=np.count_nonzero(P) * voxel_ml,
            volume_reference_ml=np.count_nonzero(G) * voxel_ml,
        )
        rows.append(row)
    return rows


def evaluate_folder(
    predictions: Path,
    references: Path,
    *,
    classes: Mapping[int, str] | None = None,
    protocol: Protocol = "standard",
    workers: int | None = None,
    allow_missing: bool = False,
    only: Collection[str] | None = None,
) -> Evaluation:
    """Score each label map in a folder against the reference of the same name, in a folder or in a store.

    ``only`` names the cases whose label maps are looked at, if not all are. Without ``classes`` every value but 0 in
    the references is a class. A file without its partner is an error unless ``allow_missing``. Threads share the work:
    decompression and distances let each other run.
    """
    protocol = _as_protocol("protocol", protocol)
    pairs = _paired(predictions, references, allow_missing=allow_missing, only=only)
    workers = workers or min(MOST_WORKERS, os.cpu_count() or 1)
    if classes is None:
        found = in_parallel(_values_of, [pair[2] for pair in pairs], "Reading references", workers)
        classes = {value: f"class {value}" for value in sorted(set().union(*found))}
    if not set(classes) - {0}:
        raise UserError(
            Code.NOT_COMPARABLE, references, "no class but background to score", "give label maps that hold a class"
        )
    evaluate_case = partial(_evaluate_case, classes=classes, protocol=protocol)
    evaluated = in_parallel(evaluate_case, pairs, "Evaluating", workers)
    absent = set(classes) - {0} - set().union(*(values for _, values in evaluated))
    for label in sorted(absent):
        logger.warning("%s is in none of the %d references and is not scored", classes[label], len(pairs))
    unscored: dict[str, Any] = dict.fromkeys(METRICS, math.nan)
    scored = (row for rows, _ in evaluated for row in rows)
    return Evaluation(tuple(replace(row, **unscored) if row.label in absent else row for row in scored), protocol)


def description_of(table: Path) -> Path:
    """The file beside a table of metrics that says what it was made from; nothing else may be overwritten by it."""
    if table.suffix != ".csv":
        raise UserError(
            Code.OPTION_INVALID, table, "the table of metrics is a .csv file", "name a file that ends in .csv as --out"
        )
    described = table.with_suffix(".json")
    if described.exists():
        content = read_json(described)
        if not isinstance(content, dict) or "protocol" not in content:
            finding = f"{described.name} beside it would be overwritten"
            raise UserError(Code.OPTION_INVALID, table, finding, "remove that one or name another file as --out")
    return described


def read_csv(path: Path) -> Evaluation:
    """Read what ``Evaluation.write_csv`` wrote; further columns, and those that follow from others, are passed over.

    Where the file beside it tells how many rows and values there were, all of them have to be there.
    """
    remedy = "make it anew with graftseg evaluate"
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = list(csv.DictReader(stream, strict=True))
    except OSError as error:
        raise UserError(Code.READ_FAILED, path, f"it cannot be read ({error.strerror})", remedy) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(Code.DAMAGED_FILE, path, f"not a csv file ({error})", remedy) from None
    if not lines:
        raise UserError(Code.DAMAGED_FILE, path, "no line of metrics in it", remedy)
    about = told_beside(path)
    if isinstance(count := about.get("rows"), int) and count != len(lines):
        raise UserError(Code.DAMAGED_FILE, path, f"{len(lines)} rows where {count} were written", remedy)
    if missing := [column for column in ("protocol", *_COLUMNS.values()) if column not in lines[0]]:
        raise UserError(Code.DAMAGED_FILE, path, f"column {missing[0]} is missing ({len(missing)} in all)", remedy)
    try:
        rows = tuple(_row_from(line) for line in lines)
    except ValueError as error:
        raise UserError(Code.DAMAGED_FILE, path, f"a cell cannot be read ({error})", remedy) from None
    protocols = sorted({line["protocol"] for line in lines})
    if len(protocols) > 1:
        raise UserError(
            Code.DAMAGED_FILE, path, f"rows of different protocols ({', '.join(protocols)})", "keep one protocol a file"
        )
    protocol = _as_protocol(path, protocols[0])
    if finding := implausible(rows, protocol) or miscounted(rows, about):
        raise UserError(Code.DAMAGED_FILE, path, finding, remedy)
    return Evaluation(rows, protocol)


def _evaluate_case(
    pair: tuple[str, Path, Reference], *, classes: Mapping[int, str], protocol: Protocol
) -> tuple[list[Row], set[int]]:
    """The scores of a case, and the values that its reference shows."""
    case, prediction, reference = pair
    predicted, expected = read_label(prediction), reference.read()
    if difference := grid_difference(predicted.geometry, expected.geometry):
        finding = f"not on the grid of its reference {reference.path.name}: {difference}"
        raise UserError(Code.NOT_COMPARABLE, prediction, finding, "bring both label maps to one grid")
    where = (prediction, reference.path)
    rows = evaluate_pair(case, predicted.array, expected.array, expected.geometry, classes, protocol, where=where)
    return rows, set(np.unique(expected.array).tolist())


def _paired(
    predictions: Path, references: Path, *, allow_missing: bool, only: Collection[str] | None
) -> list[tuple[str, Path, Reference]]:
    found, expected = label_maps(predictions), by_nfc(references_in(references))
    wanted = found.keys() if only is None else same_names(found, only)
    predicted = {nfc(case): path for case, path in found.items() if case in wanted}
    if not allow_missing:
        paths = {case: reference.path for case, reference in expected.items()}
        _refuse_single("reference", paths, "prediction", predicted)
        _refuse_single("prediction", predicted, "reference", paths)
    both = sorted(predicted.keys() & expected.keys())
    pairs = [(scan_stem(predicted[case]), predicted[case], expected[case]) for case in both]
    if not pairs:
        finding = f"none of its {len(predicted)} label maps has a reference of the same name in {references}"
        raise UserError(Code.NOT_COMPARABLE, predictions, finding, "give the two files of a case the same name")
    return pairs


def _refuse_single(kind: str, files: Mapping[str, Path], partner: str, partners: Mapping[str, Path]) -> None:
    if single := sorted(files.keys() - partners.keys()):
        finding = f"a {kind} without a {partner} of the same name ({len(single)} of {len(files)} are)"
        raise UserError(
            Code.NOT_COMPARABLE,
            files[single[0]],
            finding,
            f"add the {partner} or allow missing files (--allow-missing)",
        )


def _values_of(reference: Reference) -> set[int]:
    return set(np.unique(reference.read().array).tolist()) - {0}


def check_label_values(where: str | Path, labels: LabelMap, classes: Mapping[int, str]) -> None:
    """Refuse a label map with a value that is none of the classes."""
    values, counts = np.unique(labels, return_counts=True)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value != 0 and value not in classes:
            finding = f"value {value} in {count} voxels is none of the classes {sorted(set(classes) - {0})}"
            remedy = "name that class or correct the label map"
            if is_mask(values.tolist()) and set(classes) - {0} == {1}:
                finding = "a mask of 0 and 255 where the class is 1"
                remedy = mask_remedy(where)
            raise UserError(Code.DAMAGED_FILE, where, finding, remedy)


def _statistics(rows: Iterable[Row]) -> dict[str, Statistic]:
    chosen = list(rows)
    return {metric: _statistic(getattr(row, metric) for row in chosen) for metric in (*METRICS, *VOLUMES)}


def _statistic(values: Iterable[float]) -> Statistic:
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Statistic(math.nan, math.nan, 0)
    deviation = float(np.std(known, ddof=1)) if len(known) > 1 else math.nan
    return Statistic(float(np.mean(known)), deviation, len(known))


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _cell(value: str | float) -> str | float:
    return "" if isinstance(value, float) and math.isnan(value) else value


def _row_from(line: Mapping[Any, Any]) -> Row:
    if None in line or None in line.values():
        raise ValueError("a line has more or fewer cells than the header")
    cells = {field: line[column] for field, column in _COLUMNS.items()}
    case, label, name = cells.pop("case"), int(cells.pop("label")), cells.pop("name")
    numbers: dict[str, Any] = {field: float(cell or "nan") for field, cell in cells.items()}
    return Row(case=case, label=label, name=name, **numbers)


def _as_protocol(where: str | Path, name: str) -> Protocol:
    for protocol in PROTOCOLS:
        if protocol == name:
            return protocol
    raise UserError(Code.OPTION_INVALID, where, f"{name!r} is unknown", f"use {' or '.join(PROTOCOLS)}")
