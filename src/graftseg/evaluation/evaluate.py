"""Score label maps against references, one case or a whole folder."""

import logging
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.names import by_nfc, same_names
from graftseg.core.predictions import MANIFEST
from graftseg.core.progress import in_parallel
from graftseg.core.types import Geometry
from graftseg.data.labels import check_label_values
from graftseg.data.scans import grid_difference, read_label
from graftseg.data.store import is_store, open_store
from graftseg.evaluation.metrics import Protocol, as_protocol, score
from graftseg.evaluation.references import Reference, describe_references, label_map_files, references_in
from graftseg.evaluation.scores import METRICS, VOXEL_FIELDS, Evaluation, Row, check_table_path

LabelMap = npt.NDArray[np.unsignedinteger[Any]]
MAX_WORKERS = 16
logger = logging.getLogger(__name__)


def score_folder(
    predictions: Path,
    reference: Path,
    out: Path | None = None,
    *,
    protocol: Protocol = "standard",
    allow_missing: bool = False,
    only: Collection[str] | None = None,
) -> Evaluation:
    """Score label maps like ``evaluate_folder`` and write ``metrics.csv`` and its description."""
    target = out or predictions / "metrics.csv"
    check_table_path(target)
    classes = _class_names(predictions, reference)
    evaluation = evaluate_folder(
        predictions, reference, classes=classes, protocol=protocol, allow_missing=allow_missing, only=only
    )
    evaluation.save(target, describe_references(reference))
    return evaluation


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
    """Score each label map in a folder against the reference of the same name, in a folder or a store.

    ``only`` selects cases by name. Without ``classes``, every nonzero value in the references is a class. A file
    without a partner is an error unless ``allow_missing``. Cases are scored in parallel threads.
    """
    protocol = as_protocol("protocol", protocol)
    pairs = _pair_files(predictions, references, allow_missing=allow_missing, only=only)
    workers = workers or min(MAX_WORKERS, os.cpu_count() or 1)
    if classes is None:
        found = in_parallel(_nonzero_values, [pair[2] for pair in pairs], "Reading references", workers)
        classes = {value: f"class {value}" for value in sorted(set().union(*found))}
    if not set(classes) - {0}:
        finding = "the references contain only background"
        raise UserError(Code.LABELS_EMPTY, references, finding, "give label maps that contain a class")
    score_one = partial(_score_case, classes=classes, protocol=protocol)
    scored = in_parallel(score_one, pairs, "Evaluating", workers)
    absent = set(classes) - {0} - set().union(*(values for _, values in scored))
    for label in sorted(absent):
        logger.warning("%s is in none of the %d references and is not scored", classes[label], len(pairs))
    unscored: dict[str, Any] = dict.fromkeys(METRICS, math.nan)
    rows = (row for case_rows, _ in scored for row in case_rows)
    return Evaluation(tuple(replace(row, **unscored) if row.label in absent else row for row in rows), protocol)


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
    """Score every foreground class of one case. Both label maps ``(*space)`` are on the grid of ``geometry``.

    ``where`` gives the names of prediction and reference for error messages.
    """
    places = where or (case, f"reference of {case}")
    for place, labels in zip(places, (prediction, reference), strict=True):
        check_label_values(place, labels, classes)
    voxel_ml = geometry.voxel_volume / 1000 if len(geometry.shape) == 3 else math.nan
    rows = []
    for label in sorted(set(classes) - {0}):
        P, G = prediction == label, reference == label
        voxels = asdict(score(P, G, protocol=protocol))
        # Distances are most of the work, and many benchmarks have voxels of 1 mm.
        is_unit = all(step == 1 for step in geometry.spacing)
        millimeters = voxels if is_unit else asdict(score(P, G, spacing=geometry.spacing, protocol=protocol))
        row = Row(
            case=case,
            label=label,
            name=classes[label],
            **voxels,
            **{f"{name}_mm": millimeters[name] for name in VOXEL_FIELDS},
            volume_prediction_ml=np.count_nonzero(P) * voxel_ml,
            volume_reference_ml=np.count_nonzero(G) * voxel_ml,
        )
        rows.append(row)
    return rows


def _score_case(
    pair: tuple[str, Path, Reference], *, classes: Mapping[int, str], protocol: Protocol
) -> tuple[list[Row], set[int]]:
    """Return the rows of a case and the label values in its reference."""
    case, prediction, reference = pair
    predicted, expected = read_label(prediction), reference.read()
    if difference := grid_difference(predicted.geometry, expected.geometry):
        finding = f"not on the grid of its reference {reference.path.name}: {difference}"
        raise UserError(Code.GEOMETRY_MISMATCH, prediction, finding, "resample both label maps to one grid")
    where = (prediction, reference.path)
    rows = evaluate_pair(case, predicted.array, expected.array, expected.geometry, classes, protocol, where=where)
    return rows, set(np.unique(expected.array).tolist())


def _pair_files(
    predictions: Path, references: Path, *, allow_missing: bool, only: Collection[str] | None
) -> list[tuple[str, Path, Reference]]:
    """Return case name, label map and reference of every case that has both."""
    found, expected = label_map_files(predictions), by_nfc(references_in(references))
    chosen = found.keys() if only is None else same_names(found, only)
    predicted = {case: path for case, path in found.items() if case in chosen}
    if not allow_missing:
        paths = {case: reference.path for case, reference in expected.items()}
        _check_partners("reference", paths, "prediction", predicted)
        _check_partners("prediction", predicted, "reference", paths)
    both = sorted(predicted.keys() & expected.keys())
    if not both:
        finding = f"none of its {len(predicted)} label maps has a reference of the same name in {references}"
        raise UserError(Code.NOT_COMPARABLE, predictions, finding, "give the two files of a case the same name")
    return [(case, predicted[case], expected[case]) for case in both]


def _check_partners(kind: str, files: Mapping[str, Path], partner: str, partners: Mapping[str, Path]) -> None:
    if single := sorted(files.keys() - partners.keys()):
        finding = f"a {kind} without a {partner} of the same name ({len(single)} of {len(files)})"
        remedy = f"add the {partner} or pass --allow-missing"
        raise UserError(Code.FILE_MISSING, files[single[0]], finding, remedy)


def _nonzero_values(reference: Reference) -> set[int]:
    return set(np.unique(reference.read().array).tolist()) - {0}


def _class_names(predictions: Path, reference: Path) -> dict[int, str] | None:
    """Return the class names that the predictions or the references state. Raise an error if the two differ."""
    manifest = predictions / MANIFEST
    content = read_json(manifest) if manifest.is_file() else None
    predicted = content.get("classes") if isinstance(content, dict) else None
    stored = list(open_store(reference).classes) if is_store(reference) else None
    if predicted and stored and predicted != stored:
        finding = f"its classes are {', '.join(stored)}, but the label maps have {', '.join(predicted)}"
        raise UserError(Code.NOT_COMPARABLE, reference, finding, "give the store that the run was trained for")
    names = predicted or stored
    return dict(enumerate(names)) if names else None
