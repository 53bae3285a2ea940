"""Scores that an earlier call left beside its label maps, taken again only if they are still what they seem."""

from collections.abc import Collection
from pathlib import Path

from graftseg.errors import UserError
from graftseg.evaluation import Evaluation, description_of, read_csv
from graftseg.files import read_json
from graftseg.manifest import read_manifest
from graftseg.metrics import Protocol


def known_scores(
    folder: Path, weights: str | None, references: Path, protocol: Protocol, cases: Collection[str], classes: int
) -> Evaluation | None:
    """Scores of these weights against these references, if there is a row for every class of each of these cases."""
    table = folder / "metrics.csv"
    if not table.is_file() or not description_of(table).is_file():
        return None
    manifest, about = read_manifest(folder, "remove the folder"), read_json(description_of(table))
    if manifest is None or not manifest.is_whole or manifest.weights != weights:
        return None
    if (about.get("references"), about.get("protocol")) != (str(references.resolve()), protocol):
        return None
    try:
        evaluation = read_csv(table)
    except UserError:
        return None
    expected = [(case, label) for case in cases for label in range(1, classes)]
    found = [(row.case, row.label) for row in evaluation.rows]
    return evaluation if sorted(found) == sorted(expected) else None
