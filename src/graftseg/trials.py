"""One run from its recipe to its scores; each step is made once, and one that was stopped goes on."""

from dataclasses import dataclass
from pathlib import Path

from graftseg import api
from graftseg.data.store import Store
from graftseg.errors import UserError
from graftseg.evaluation import Evaluation, description_of, read_csv
from graftseg.files import read_json
from graftseg.manifest import read_manifest
from graftseg.metrics import Protocol
from graftseg.prediction import Checkpoint, weights_of
from graftseg.recipe import Recipe, differences, load_recipe
from graftseg.references import stored_references
from graftseg.runs import RunFolder

PROTOCOL: Protocol = "standard"


@dataclass(frozen=True)
class Tested:
    """Scores on the test cases: of the reported network, and of the best one where that is kept besides."""

    reported: Evaluation
    best: Evaluation | None


def trained_run(recipe: Recipe, store: Store, run: RunFolder, device: str) -> None:
    """Train, or go on where the training was stopped; a run that has ended stays if it is what would be trained."""
    if run.exists and run.manifest().get("status") == "finished":
        _check_finished(recipe, store, run)
        return
    api.train(recipe, store.path, run.path, resume=run.exists, device=device)


def tested_run(run: RunFolder, store: Store, device: str) -> Tested:
    """The scores of a run that has ended, made where they are not there yet."""
    reported, facts = _scores(run, store, device, "shipped"), run.manifest()
    if not facts.get("best") or facts["best"]["sha256"] == facts.get("weights"):
        return Tested(reported, None)
    return Tested(reported, _scores(run, store, device, "best"))


def _check_finished(recipe: Recipe, store: Store, run: RunFolder) -> None:
    """A run that has ended counts only if it is what would be trained now."""
    if other := differences(recipe, load_recipe(run.recipe_file)):
        finding = f"the run was trained with other settings ({', '.join(other)})"
        raise UserError(run.recipe_file, finding, "use the same recipe or name another --out")
    if run.begun()["store"]["identity"] != store.identity:
        raise UserError(run.path, f"the run was not trained on {store.path}", "give the same --data or another --out")


def _scores(run: RunFolder, store: Store, device: str, checkpoint: Checkpoint) -> Evaluation:
    """The scores of a network on the test cases, made where they are not there yet."""
    folder = run.predictions if checkpoint == "shipped" else run.predictions_best
    known = _known_scores(folder, weights_of(run, checkpoint).sha256, store)
    if known is not None:
        return known
    predicted = api.predict(run.path, store.path, folder, checkpoint=checkpoint, device=device)
    if predicted.failures:
        raise predicted.failures[0]
    return api.evaluate(folder, store.path, protocol=PROTOCOL)


def _known_scores(folder: Path, weights: str | None, store: Store) -> Evaluation | None:
    """Scores that are there, of this network and whole: a row for every class of every labeled test case."""
    table = folder / "metrics.csv"
    if not table.is_file() or not description_of(table).is_file():
        return None
    manifest, about = read_manifest(folder, "remove the folder"), read_json(description_of(table))
    if manifest is None or not manifest.is_whole or manifest.weights != weights:
        return None
    if (about.get("references"), about.get("protocol")) != (str(store.path.resolve()), PROTOCOL):
        return None
    try:
        evaluation = read_csv(table)
    except UserError:
        return None
    expected = {(case, label) for case in stored_references(store) for label in range(1, len(store.classes))}
    found = [(row.case, row.label) for row in evaluation.rows]
    return evaluation if sorted(found) == sorted(expected) else None
