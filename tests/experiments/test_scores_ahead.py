"""What is known of scores before a training is what a test will find."""

import math
from dataclasses import replace
from typing import Any

from graftseg.data.store import Store
from graftseg.evaluation.evaluate import evaluate_pair
from graftseg.evaluation.references import stored_references
from graftseg.evaluation.scores import METRICS, Row
from graftseg.experiments.scores_ahead import scores_ahead


def scored(store: Store) -> list[Row]:
    """Rows of references that are their own predictions."""
    rows = []
    for case, reference in stored_references(store).items():
        label = reference.read()
        rows += evaluate_pair(case, label.array, label.array, label.geometry, dict(enumerate(store.classes)))
    return rows


def test_cases_classes_and_volumes_are_those_of_a_test(volumes: Store) -> None:
    unknown: dict[str, Any] = dict.fromkeys((*METRICS, "volume_prediction_ml"), 0.0)
    ahead = scores_ahead(volumes, "standard")
    assert [replace(row, **unknown) for row in ahead.rows] == [replace(row, **unknown) for row in scored(volumes)]
    assert ahead.protocol == "standard" and any(row.volume_reference_ml > 0 for row in ahead.rows)
    assert all(math.isnan(getattr(row, name)) for row in ahead.rows for name in unknown)


def test_images_have_no_volume(store: Store) -> None:
    rows = scores_ahead(store, "paper").rows
    assert [(row.case, row.label, row.name) for row in rows] == [
        (row.case, row.label, row.name) for row in scored(store)
    ]
    assert all(math.isnan(row.volume_reference_ml) for row in rows)
