"""Scores that an earlier call left beside its label maps, taken again only if they are still what they seem."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from graftseg.core.errors import UserError
from graftseg.core.files import read_json
from graftseg.core.predictions import Manifest, read_manifest
from graftseg.data.store import Store
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import TESTED_ON
from graftseg.evaluation.scores import Evaluation, description_of, read_csv


def find_cached_scores(
    folder: Path,
    weights: str | None,
    references: Path,
    protocol: Protocol,
    cases: Collection[str],
    classes: int,
    tested: Store | None = None,
) -> Evaluation | None:
    """Scores of these weights against these references, if there is a row for every class of each of these cases.

    Those on the test cases of a store that is ``tested`` must be of its scans and labels as they are now; scores that
    do not tell what they are of are made anew.
    """
    table = folder / "metrics.csv"
    if not table.is_file() or not description_of(table).is_file():
        return None
    manifest, about = read_manifest(folder, "remove the folder"), read_json(description_of(table))
    if manifest is None or not manifest.is_complete or manifest.weights != weights:
        return None
    if (about.get("references"), about.get("protocol")) != (str(references.resolve()), protocol):
        return None
    if tested is not None and not _is_of(tested, manifest, about):
        return None
    try:
        evaluation = read_csv(table)
    except UserError:
        return None
    expected = [(case, label) for case in cases for label in range(1, classes)]
    found = [(row.case, row.label) for row in evaluation.rows]
    return evaluation if sorted(found) == sorted(expected) else None


def _is_of(store: Store, manifest: Manifest, about: Mapping[str, Any]) -> bool:
    """Whether label maps were made from the test scans of a store, and scored against its labels, as they are now."""
    made = {case.case: case.sha256 for case in manifest.cases}
    scans = all(made.get(case.name) == case.sha256[case.image] for case in store.of("test"))
    return scans and about.get(TESTED_ON) == store.test_identity
