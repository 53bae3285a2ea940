"""Train and test one run; finished steps are reused and a stopped training is resumed."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.evaluation.cached_scores import find_cached_scores
from graftseg.evaluation.evaluate import score_folders
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import stored_references
from graftseg.evaluation.scores import Evaluation
from graftseg.inference.ensemble import Checkpoint, select_weights
from graftseg.inference.predict import PredictionSettings, predict_scans
from graftseg.recipes.recipe import Recipe
from graftseg.training.run import complete, is_complete

PROTOCOL: Protocol = "standard"


@dataclass(frozen=True)
class Tested:
    """Scores on the test cases: of the reported checkpoint, and of the best one if that was kept separately."""

    reported: Evaluation
    best: Evaluation | None


def trained_run(recipe: Recipe, store: Store, run: RunFolder, device: str) -> None:
    """Train or resume a run, without a baseline; a finished run of the same settings and store is kept."""
    if not is_complete(recipe, store, run):
        alone = recipe.model_copy(update={"baseline": False})
        complete(alone, store, run, choose_device(device))


def tested_run(run: RunFolder, store: Store, device: str) -> Tested:
    """Return the scores of a finished run; label maps and scores are made only if they are missing or outdated."""
    facts = run.manifest()
    has_best = bool(facts.get("best")) and facts["best"]["sha256"] != facts.get("weights")
    reported = _scores(run, store, device, "shipped")
    return Tested(reported, _scores(run, store, device, "best") if has_best else None)


def _scores(run: RunFolder, store: Store, device: str, checkpoint: Checkpoint) -> Evaluation:
    """Return the scores of a checkpoint on the test cases, from the cache or from a new prediction."""
    folder = run.predictions if checkpoint == "shipped" else run.predictions_best
    weights, cases = select_weights(run, checkpoint).sha256, stored_references(store)
    with _advise_to_move(folder):
        known = find_cached_scores(folder, weights, store.path, PROTOCOL, cases, len(store.classes), store)
        if known is not None:
            return known
        predicted = predict_scans(
            run, store.path, folder, choose_device(device), PredictionSettings(checkpoint=checkpoint)
        )
        if predicted.failures:
            raise predicted.failures[0]
        return score_folders({folder: folder / "metrics.csv"}, store.path, protocol=PROTOCOL)[0]


@contextmanager
def _advise_to_move(folder: Path) -> Iterator[None]:
    """Replace the remedy of errors about a folder of label maps, which no option of the command can change."""
    try:
        yield
    except UserError as error:
        if error.code in (Code.WRITE_FAILED, Code.PERMISSION_DENIED) or not Path(error.where).is_relative_to(folder):
            raise
        remedy = f"move {folder} elsewhere and run the same command again"
        raise UserError(error.code, error.where, error.finding, remedy) from None
