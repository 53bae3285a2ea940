"""Score a folder of label maps and write its table of metrics."""

from collections.abc import Collection
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.data.dataset import name_problem
from graftseg.data.store import is_store, open_store
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import describe_references
from graftseg.evaluation.scores import Evaluation, description_of, evaluate_folder


def score_folder(
    predictions: Path,
    reference: Path,
    out: Path | None = None,
    *,
    protocol: Protocol = "standard",
    allow_missing: bool = False,
    only: Collection[str] | None = None,
) -> Evaluation:
    """Compare label maps with references case by case, and write ``metrics.csv`` and its description.

    ``only`` names the cases to score, if not all label maps of the folder are meant.
    """
    target = out or predictions / "metrics.csv"
    description_of(target)
    evaluation = evaluate_folder(
        predictions,
        reference,
        classes=_classes_of_both(predictions, reference),
        protocol=protocol,
        allow_missing=allow_missing,
        only=only,
    )
    evaluation.keep(target, describe_references(reference))
    return evaluation


def _classes_of_both(predictions: Path, reference: Path) -> dict[int, str] | None:
    """The classes that label maps or their references name; a store of other classes is refused."""
    named, stored = _classes_of(predictions), _stored_classes(reference)
    if named and stored and named != stored:
        finding = f"its classes are {', '.join(stored.values())} where the label maps have {', '.join(named.values())}"
        raise UserError(Code.NOT_COMPARABLE, reference, finding, "give the store that the run was trained for")
    return named or stored


def _stored_classes(reference: Path) -> dict[int, str] | None:
    return dict(enumerate(open_store(reference).classes)) if is_store(reference) else None


def _classes_of(predictions: Path) -> dict[int, str] | None:
    """Names of the classes, where the folder was written by ``predict``; a manifest of something else names none."""
    manifest = predictions / "manifest.json"
    content = read_json(manifest) if manifest.is_file() else None
    classes = content.get("classes") if isinstance(content, dict) else None
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        return None
    if problem := name_problem(classes):
        raise UserError(
            Code.NOT_COMPARABLE, manifest, problem, "predict again with a run whose classes have plain names"
        )
    return dict(enumerate(classes))
