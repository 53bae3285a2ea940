"""Train and test one run. Finished work is reused, and a stopped run is resumed."""

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.store import Store
from graftseg.evaluation.evaluate import find_cached_scores, score_folders
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.references import stored_references
from graftseg.evaluation.scores import Evaluation
from graftseg.experiments.paper import MAX_SEEDS
from graftseg.inference.ensemble import EXACT, Checkpoint, select_weights
from graftseg.inference.predict import predict_scans
from graftseg.inference.prediction_settings import PredictionSettings
from graftseg.recipes.recipe import Recipe
from graftseg.training.run import complete, is_complete

PROTOCOL: Protocol = "standard"  # rule for empty masks


def ensure_trained(recipe: Recipe, store: Store, run: RunFolder, device: str) -> None:
    """Train or resume a run, without a baseline. Keep a finished run with the same settings and store."""
    if not is_complete(recipe, store, run):
        complete(recipe.model_copy(update={"baseline": False}), store, run, choose_device(device))


def run_scores(run: RunFolder, store: Store, device: str) -> tuple[Evaluation, Evaluation | None]:
    """Return the scores, new or cached, of the reported checkpoint, and of the best checkpoint if it is another."""
    facts = run.manifest()
    has_best = bool(facts.get("best")) and facts["best"]["sha256"] != facts.get("weights")
    reported = _scores(run, store, device, "shipped")
    return reported, _scores(run, store, device, "best") if has_best else None


def _scores(run: RunFolder, store: Store, device: str, checkpoint: Checkpoint) -> Evaluation:
    """Return the scores of a checkpoint on the test cases, from the cache or from a new prediction."""
    folder = run.predictions if checkpoint == "shipped" else run.predictions_best
    weights_sha256, cases = select_weights(run, checkpoint).sha256, stored_references(store)
    cached = find_cached_scores(folder, weights_sha256, store.path, PROTOCOL, cases, len(store.classes), store)
    if cached is not None:
        return cached
    remedy = f"move {folder} elsewhere and run the same command again"
    settings = PredictionSettings([EXACT], checkpoint, remedy=remedy)
    predicted = predict_scans(run, store.path, folder, choose_device(device), settings)
    if predicted.failures:
        raise predicted.failures[0]
    return score_folders({folder: folder / "metrics.csv"}, store.path, protocol=PROTOCOL)[0]


def check_seeds(count: int) -> None:
    """Raise a UserError if there are too many seeds."""
    if count > MAX_SEEDS:
        raise UserError(Code.OPTION_INVALID, f"--seeds {count}", f"more than {MAX_SEEDS} seeds", "pass fewer")
