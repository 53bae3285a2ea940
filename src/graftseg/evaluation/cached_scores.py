"""Reuse of stored scores if the network and the references are unchanged."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from graftseg.core.errors import UserError
from graftseg.core.files import read_json
from graftseg.core.predictions import Manifest, read_manifest
from graftseg.data.store import Store
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import TESTED_ON
from graftseg.evaluation.scores import Evaluation, description_file, read_csv


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
    if test_store is not None and not _is_unchanged(test_store, manifest, description):
        return None
    try:
        evaluation = read_csv(table)
    except UserError:
        return None
    expected = [(case, label) for case in cases for label in range(1, classes)]
    scored = [(row.case, row.label) for row in evaluation.rows]
    return evaluation if sorted(scored) == sorted(expected) else None


def _is_unchanged(store: Store, manifest: Manifest, description: Mapping[str, Any]) -> bool:
    """Return whether the test scans and labels in the store are those that were predicted and scored."""
    predicted = {case.case: case.sha256 for case in manifest.cases}
    same_scans = all(predicted.get(case.name) == case.sha256[case.image] for case in store.of("test"))
    return same_scans and description.get(TESTED_ON) == store.test_identity
