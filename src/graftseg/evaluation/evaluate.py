"""Scoring of label maps against references, for one case or for folders, and reuse of unchanged scores."""

import logging
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.names import by_nfc, same_names
from graftseg.core.phrases import class_name
from graftseg.core.predictions import MANIFEST, find_manifest, read_manifest
from graftseg.core.progress import in_parallel
from graftseg.core.types import Geometry
from graftseg.data.dataset import name_problem
from graftseg.data.labels import check_label_values
from graftseg.data.scans import grid_difference, read_label
from graftseg.data.store import Store, is_store, open_store
from graftseg.evaluation.metrics import TOLERANCE, Protocol, as_protocol, score
from graftseg.evaluation.references import (
    TESTED_ON,
    Reference,
    describe_references,
    label_map_files,
    predicted_images,
    references_in,
)
from graftseg.evaluation.scores import (
    METRICS,
    VOXEL_FIELDS,
    Evaluation,
    Row,
    check_table_path,
    description_file,
    read_csv,
)

LabelMap = npt.NDArray[np.unsignedinteger[Any]]
MAX_WORKERS = 16
NOT_SCORED: dict[str, Any] = dict.fromkeys(METRICS, math.nan)
logger = logging.getLogger(__name__)


def score_folders(targets: Mapping[Path, Path], references: Path, **rules: Any) -> list[Evaluation]:
    """Score folders of label maps, and write the table of each folder, with its description next to it.

    ``targets`` maps each folder to its table. The classes are those in the manifest of the first folder or, without a
    manifest, those in the references. ``rules`` are parameters of ``evaluate_folders``.
    """
    for table in targets.values():
        check_table_path(table)
    classes = _class_names(next(iter(targets)), references)
    evaluations = evaluate_folders(list(targets), references, classes=classes, **rules)
    for table, evaluation in zip(targets.values(), evaluations, strict=True):
        evaluation.save(table, describe_references(references))
    return evaluations


def evaluate_folders(
    folders: Sequence[Path],
    references: Path,
    *,
    classes: Mapping[int, str] | None = None,
    protocol: Protocol = "standard",
    tolerance: float = TOLERANCE,
    allow_missing: bool = False,
    only: Collection[str] | None = None,
) -> list[Evaluation]:
    """Score the label maps in each folder against references of the same names. Cases are scored in parallel threads.

    references: folder of label maps, or a store
    classes: class names by label value; without them, every nonzero value in the references is a class
    tolerance: tolerance of the surface Dice in millimeters
    allow_missing: skip cases without a label map or reference instead of raising an error
    only: names of the cases to score, by default all
    """
    protocol = as_protocol("protocol", protocol)
    if not 0 <= tolerance < math.inf:
        finding = f"{tolerance} is not a distance in millimeters"
        raise UserError(Code.OPTION_INVALID, "--tolerance", finding, "give a number of at least 0")
    pairs = _pair_files(folders, references, classes, allow_missing=allow_missing, only=only)
    workers = min(MAX_WORKERS, os.cpu_count() or 1)
    if classes is None:
        values = in_parallel(lambda pair: set(np.unique(pair[2].read().array)), pairs, "Reading references", workers)
        classes = {value: class_name(value) for value in map(int, sorted(set().union(*values) - {0}))}
    if not set(classes) - {0}:
        finding = "the references contain only background"
        raise UserError(Code.LABELS_EMPTY, references, finding, "give label maps that contain a class")
    score_case = partial(_score_case, classes=classes, protocol=protocol, tolerance=tolerance)
    scored = in_parallel(score_case, pairs, "Evaluating", workers)
    absent = set(classes) - {0} - set().union(*(present for _, present in scored))
    for label in sorted(absent):
        logger.warning("%s is in none of the %d references and is not scored", classes[label], len(pairs))
    evaluations = []
    for index in range(len(folders)):
        rows = (row for rows_of_case, _ in scored for row in rows_of_case[index])
        rows = (replace(row, **NOT_SCORED) if row.label in absent else row for row in rows)
        evaluations.append(Evaluation(tuple(rows), protocol))
    return evaluations


def evaluate_pair(
    case: str,
    prediction: LabelMap,
    reference: LabelMap,
    geometry: Geometry,
    classes: Mapping[int, str],
    protocol: Protocol = "standard",
    *,
    tolerance: float = TOLERANCE,
    where: tuple[str | Path, str | Path] | None = None,
) -> list[Row]:
    """Score each foreground class of two label maps ``(*space)`` on one grid. ``where`` locates them in errors."""
    names = where or (case, f"reference of {case}")
    for name, labels in zip(names, (prediction, reference), strict=True):
        check_label_values(name, labels, classes)
    voxel_ml = geometry.voxel_volume / 1000 if len(geometry.shape) == 3 else math.nan
    # Distances take most of the time. With voxels of 1 mm, as in many benchmarks, they are computed only once.
    has_unit_spacing = all(step == 1 for step in geometry.spacing)
    scores_of = partial(score, protocol=protocol, tolerance=tolerance)
    rows = []
    for label in sorted(set(classes) - {0}):
        P, G = prediction == label, reference == label
        in_voxels = asdict(scores_of(P, G))
        in_mm = in_voxels if has_unit_spacing else asdict(scores_of(P, G, spacing=geometry.spacing))
        row = Row(
            case=case,
            label=label,
            name=classes[label],
            **(in_voxels | {"surface_dice": in_mm["surface_dice"]}),
            **{f"{name}_mm": in_mm[name] for name in VOXEL_FIELDS},
            tolerance_mm=tolerance,
            volume_prediction_ml=np.count_nonzero(P) * voxel_ml,
            volume_reference_ml=np.count_nonzero(G) * voxel_ml,
        )
        rows.append(row)
    return rows


def _score_case(
    pair: tuple[str, list[Path], Reference], *, classes: Mapping[int, str], protocol: Protocol, tolerance: float
) -> tuple[list[list[Row]], set[int]]:
    """Return the rows of a case for each of its label maps, and the label values in its reference."""
    case, predictions, reference = pair
    expected, rows_by_map = reference.read(), []
    for path in predictions:
        predicted = read_label(path)
        if difference := grid_difference(predicted.geometry, expected.geometry):
            finding = f"not on the grid of its reference {reference.path.name}: {difference}"
            raise UserError(Code.GEOMETRY_MISMATCH, path, finding, "resample both label maps to one grid")
        maps, where = (predicted.array, expected.array), (path, reference.path)
        rows = evaluate_pair(case, *maps, expected.geometry, classes, protocol, tolerance=tolerance, where=where)
        rows_by_map.append(rows)
    return rows_by_map, set(np.unique(expected.array).tolist())


def _pair_files(
    folders: Sequence[Path],
    references: Path,
    classes: Mapping[int, str] | None,
    *,
    allow_missing: bool,
    only: Collection[str] | None,
) -> list[tuple[str, list[Path], Reference]]:
    """Return the name, the label map in each folder and the reference of every case that has all of these files."""
    images = predicted_images(folders[0])
    expected = by_nfc(references_in(references, label_map_files(folders[0]), images, classes))
    expected_files = {case: reference.path for case, reference in expected.items()}
    predicted_by_folder = []
    for folder in folders:
        files = label_map_files(folder)
        chosen = files.keys() if only is None else same_names(files, only)
        predicted = {case: path for case, path in files.items() if case in chosen}
        if not allow_missing:
            _check_partners("reference", expected_files, "prediction", predicted)
            _check_partners("prediction", predicted, "reference", expected_files)
        if not predicted.keys() & expected.keys():
            finding = f"none of its {len(predicted)} label maps has a reference of the same name in {references}"
            raise UserError(Code.NOT_COMPARABLE, folder, finding, "give the two files of a case the same name")
        predicted_by_folder.append(predicted)
    cases = sorted(set(expected).intersection(*predicted_by_folder))
    return [(case, [predicted[case] for predicted in predicted_by_folder], expected[case]) for case in cases]


def _check_partners(role: str, files: Mapping[str, Path], partner: str, partners: Mapping[str, Path]) -> None:
    if unpaired := sorted(files.keys() - partners.keys()):
        finding = f"a {role} without a {partner} of the same name ({len(unpaired)} of {len(files)})"
        raise UserError(Code.FILE_MISSING, files[unpaired[0]], finding, f"add the {partner} or pass --allow-missing")


def _class_names(predictions: Path, reference: Path) -> dict[int, str] | None:
    """Return the class names of the predictions or of a reference store, if known. Raise an error if they differ."""
    manifest = find_manifest(predictions)
    predicted = manifest.classes if manifest else ()
    if problem := name_problem(predicted):
        raise UserError(Code.DAMAGED_FILE, predictions / MANIFEST, problem, "predict the scans again")
    stored = open_store(reference).classes if is_store(reference) else ()
    if predicted and stored and predicted != stored:
        finding = f"its classes are {', '.join(stored)}, but the label maps have {', '.join(predicted)}"
        raise UserError(Code.NOT_COMPARABLE, reference, finding, "give the store that the run was trained on")
    names = predicted or stored
    return dict(enumerate(names)) if names else None


def find_cached_scores(
    folder: Path,
    weights_hash: str | None,
    references: Path,
    protocol: Protocol,
    cases: Collection[str],
    classes: int,
    test_store: Store | None = None,
) -> Evaluation | None:
    """Return the scores stored in a folder of label maps, or None if they must be computed again.

    The stored scores must come from float32 predictions of the network with this hash, be computed with the same
    protocol from the same path of references, and have one row for every foreground class of every case. ``classes``
    counts the background. With ``test_store``, its test scans and labels must also be unchanged.
    """
    table = folder / "metrics.csv"
    description_path = description_file(table)
    if not table.is_file() or not description_path.is_file():
        return None
    manifest, description = read_manifest(folder, "remove the folder"), read_json(description_path)
    if manifest is None or not manifest.is_complete or manifest.weights != weights_hash:
        return None
    if any(case.precision != "float32" for case in manifest.cases):
        return None
    if (description.get("references"), description.get("protocol")) != (str(references.resolve()), protocol):
        return None
    if test_store is not None:
        predicted = {case.case: case.sha256 for case in manifest.cases}
        same_scans = all(predicted.get(case.name) == case.sha256[case.image] for case in test_store.of("test"))
        if not same_scans or description.get(TESTED_ON) != test_store.test_identity:
            return None
    try:
        evaluation = read_csv(table)
    except UserError:
        return None
    expected = [(case, label) for case in cases for label in range(1, classes)]
    scored = [(row.case, row.label) for row in evaluation.rows]
    return evaluation if sorted(scored) == sorted(expected) else None
