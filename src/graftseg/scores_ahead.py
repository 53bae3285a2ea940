"""What is known of the scores on a store's test cases before a network is trained: cases, classes, references."""

import math
from collections.abc import Iterator

import numpy as np

from graftseg.data.store import Store
from graftseg.evaluation import METRICS, Evaluation, Row
from graftseg.metrics import Protocol
from graftseg.references import StoredLabel, stored_references


def scores_ahead(store: Store, protocol: Protocol) -> Evaluation:
    """The rows that a test on a store will have, with the volumes of the references and no figure yet."""
    rows = (row for label in stored_references(store).values() for row in _rows(label))
    return Evaluation(tuple(rows), protocol)


def _rows(reference: StoredLabel) -> Iterator[Row]:
    """A row for each class of a case."""
    scan, classes = reference.read(), reference.store.classes
    counts = np.bincount(scan.array.ravel(order="K"), minlength=len(classes))
    voxel_ml = scan.geometry.voxel_volume / 1000 if len(scan.geometry.shape) == 3 else math.nan
    unknown = dict.fromkeys((*METRICS, "volume_prediction_ml"), math.nan)
    for label, name in list(enumerate(classes))[1:]:
        yield Row(reference.case.name, label, name, **unknown, volume_reference_ml=int(counts[label]) * voxel_ml)
