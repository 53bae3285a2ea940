"""What is known of the scores on a store's test cases before a network is trained: cases, classes, references.

Whoever will test what is trained asks for them first: test cases that are damaged are then found before a training.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.data.store import Store
from graftseg.evaluation.evaluate import check_label_values
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import StoredLabel, stored_references
from graftseg.evaluation.scores import METRICS, Evaluation, Row


def scores_ahead(store: Store, protocol: Protocol) -> Evaluation:
    """The rows that a test on a store will have, with the volumes of the references and no figure yet.

    Scans and label maps are read once and held against the manifest; what could not be tested is refused.
    """
    rows = (row for reference in _references(store) for row in _rows(reference))
    return Evaluation(tuple(rows), protocol)


def _references(store: Store) -> Iterable[StoredLabel]:
    """The label maps of all test cases, whose scans are as they were prepared."""
    try:
        references = stored_references(store)
    except UserError as error:
        raise UserError(error.code, error.where, error.finding, "name a store whose test cases can be scored") from None
    cases = store.of("test")
    if without := [case.name for case in cases if case.name not in references]:
        finding = f"test case {without[0]} has no label map ({len(without)} of {len(cases)} have none)"
        raise UserError(
            Code.PREDICTIONS_MISMATCH,
            store.path,
            finding,
            "add the label map or take the scan away, and run prepare again",
        )
    for case in cases:
        store.verify_file(case, case.image)
    return references.values()


def _rows(reference: StoredLabel) -> Iterator[Row]:
    """A row for each class of a case."""
    scan, classes = reference.read(), reference.store.classes
    counts = np.bincount(scan.array.ravel(order="K"), minlength=len(classes))
    if counts[len(classes) :].any():
        check_label_values(reference.path, scan.array, dict(enumerate(classes)))
    voxel_ml = scan.geometry.voxel_volume / 1000 if len(scan.geometry.shape) == 3 else math.nan
    unknown = dict.fromkeys((*METRICS, "volume_prediction_ml"), math.nan)
    for label, name in list(enumerate(classes))[1:]:
        yield Row(reference.case.name, label, name, **unknown, volume_reference_ml=int(counts[label]) * voxel_ml)
