"""One run from its recipe to its scores; each step is made once, and one that was stopped goes on."""

from dataclasses import dataclass

from graftseg import api
from graftseg.completion import is_complete
from graftseg.data.store import Store
from graftseg.evaluation import Evaluation
from graftseg.known_scores import known_scores
from graftseg.metrics import Protocol
from graftseg.prediction import Checkpoint, weights_of
from graftseg.recipe import Recipe
from graftseg.references import stored_references
from graftseg.runs import RunFolder

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
        api.train(alone, store.path, run.path, resume=run.exists, device=device)


def tested_run(run: RunFolder, store: Store, device: str) -> Tested:
    """The scores of a run that has ended, made where they are not there yet."""
    reported, facts = _scores(run, store, device, "shipped"), run.manifest()
    if not facts.get("best") or facts["best"]["sha256"] == facts.get("weights"):
        return Tested(reported, None)
    return Tested(reported, _scores(run, store, device, "best"))


def _scores(run: RunFolder, store: Store, device: str, checkpoint: Checkpoint) -> Evaluation:
    """The scores of a network on the test cases, made where they are not there yet."""
    folder = run.predictions if checkpoint == "shipped" else run.predictions_best
    weights, cases = weights_of(run, checkpoint).sha256, stored_references(store)
    known = known_scores(folder, weights, store.path, PROTOCOL, cases, len(store.classes))
    if known is not None:
        return known
    predicted = api.predict(run.path, store.path, folder, checkpoint=checkpoint, device=device)
    if predicted.failures:
        raise predicted.failures[0]
    return api.evaluate(folder, store.path, protocol=PROTOCOL)
