"""One run from its recipe to its scores; each step is made once, and one that was stopped goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from graftseg.core.devices import choose_device
from graftseg.core.errors import UserError
from graftseg.core.files import DISK
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.evaluation.cached_scores import find_cached_scores
from graftseg.evaluation.evaluate import score_folder
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import stored_references
from graftseg.evaluation.scores import Evaluation
from graftseg.inference.predict import Checkpoint, predict_scans, select_weights
from graftseg.recipes.recipe import Recipe
from graftseg.training.run import complete, is_complete

PROTOCOL: Protocol = "standard"


@dataclass(frozen=True)
class Tested:
    """Scores on the test cases: of the reported network, and of the best one where that is kept besides."""

    reported: Evaluation
    best: Evaluation | None


def trained_run(recipe: Recipe, store: Store, run: RunFolder, device: str) -> None:
    """Train, or go on where the training was stopped; a run that has ended stays if it is what would be trained.

    No baseline is trained beside it, whatever the recipe says.
    """
    if not is_complete(recipe, store, run):
        alone = recipe.model_copy(update={"baseline": False})
        complete(alone, store, run, choose_device(device))


def tested_run(run: RunFolder, store: Store, device: str) -> Tested:
    """The scores of a run that has ended, made where they are not there yet."""
    reported = _scores(run, store, device, "shipped")
    return Tested(reported, _scores(run, store, device, "best") if _has_best(run) else None)


def known_run(run: RunFolder, store: Store) -> Tested | None:
    """The scores of a run that has ended, if they are there; its networks need not be."""
    reported, best = _known(run, store, "shipped"), _known(run, store, "best") if _has_best(run) else None
    return None if reported is None or (best is None and _has_best(run)) else Tested(reported, best)


def _has_best(run: RunFolder) -> bool:
    """Whether a best network is kept that is not the reported one."""
    facts = run.manifest()
    return bool(facts.get("best")) and facts["best"]["sha256"] != facts.get("weights")


def _scores(run: RunFolder, store: Store, device: str, checkpoint: Checkpoint) -> Evaluation:
    """The scores of a network on the test cases, made where they are not there yet."""
    folder = _folder(run, checkpoint)
    with _replaceable(folder):
        if (known := _known(run, store, checkpoint)) is not None:
            return known
        predicted = predict_scans(run, store.path, folder, choose_device(device), checkpoint=checkpoint)
        if predicted.failures:
            raise predicted.failures[0]
        return score_folder(folder, store.path, protocol=PROTOCOL)


@contextmanager
def _replaceable(folder: Path) -> Iterator[None]:
    """Say of what is wrong in a folder of label maps that it can be made anew: nobody chose its place."""
    try:
        yield
    except UserError as error:
        if error.remedy == DISK or not Path(error.where).is_relative_to(folder):
            raise
        remedy = f"move {folder} elsewhere and run the same command again"
        raise UserError(error.code, error.where, error.finding, remedy) from None


def _known(run: RunFolder, store: Store, checkpoint: Checkpoint) -> Evaluation | None:
    weights, cases = select_weights(run, checkpoint).sha256, stored_references(store)
    return find_cached_scores(_folder(run, checkpoint), weights, store.path, PROTOCOL, cases, len(store.classes), store)


def _folder(run: RunFolder, checkpoint: Checkpoint) -> Path:
    return run.predictions if checkpoint == "shipped" else run.predictions_best
