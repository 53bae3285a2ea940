"""A run and the supervised one beside it on test scans: label maps, scores, how far they are apart, and a report."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.files import check_writable
from graftseg.core.names import same_names
from graftseg.core.run_folder import RunFolder, ensemble_members, fold_states
from graftseg.evaluation.comparison import Comparison, compare_runs
from graftseg.evaluation.evaluate import score_folder
from graftseg.evaluation.scores import Evaluation, check_table_path
from graftseg.evaluation.testset import EvaluationScans, check_test_scans, find_test_scans
from graftseg.evaluation.verdicts import missed_classes, verdict_between
from graftseg.inference.model import check_weights_exist
from graftseg.inference.predict import PlannedPrediction, Predicted, PredictionSettings, plan_prediction
from graftseg.recipes.baseline import baseline_of
from graftseg.recipes.recipe import differences, load_recipe

Folder = str | Path


@dataclass(frozen=True)
class Examined:
    """The scores of a run and, where there is one, of its baseline; ``beside`` sets them side by side.

    ``warnings`` are what a reader of the figures must know.
    """

    scans: EvaluationScans
    scores: dict[Path, Evaluation] = field(repr=False)
    beside: Comparison | None = field(repr=False)
    report: Path
    warnings: tuple[str, ...] = ()

    def verdict(self) -> Iterator[str]:
        """What was found, in sentences; with a baseline, what the unlabeled scans were worth."""
        yield from self.warnings
        yield from (sentence for path, one in self.scores.items() for sentence in missed_classes(str(path), one))
        if self.beside is not None:
            run, baseline = self.scores.values()
            yield verdict_between(baseline, run)


def examine(
    folder: RunFolder,
    data: Folder | None,
    report: Callable[[Path], Path],
    *,
    images: Folder | None = None,
    labels: Folder | None = None,
    device: torch.device,
    allow_missing: bool = False,
) -> Examined:
    """Predict test scans with a run and its baseline, score both, and call ``report`` with the run's folder.

    ``data`` is a folder with ``imagesTs`` and ``labelsTs`` or a prepared store, by default what the run was trained
    from; ``images`` and ``labels`` name folders one by one.
    """
    networks = ensemble_members(folder)
    for network in networks:
        # before anything is said of scans that could not be tested yet
        check_weights_exist(network.weights_file, network.manifest().get("weights"))
    scans, baseline = find_test_scans(networks[0], data, images, labels), folder.baseline
    ready = _has_ended(baseline)
    if ready:
        _check_baseline(folder)
    names = check_test_scans(scans, networks[0], allow_missing=allow_missing)
    both = (folder, *([baseline] if ready else []))
    plans = {one.path: _planned(one, scans, device) for one in both}
    # Earlier scores are removed with the first new label map, so all checks come before.
    predicted = {path: _predicted(plan) for path, plan in plans.items()}
    scores = {path: _scored(found, scans, allow_missing=allow_missing) for path, found in predicted.items()}
    beside = compare_runs([baseline.path, folder.path])[0] if ready else None
    warnings = (*_seen_before(names, networks), *([] if ready else _not_ended(baseline)))
    return Examined(scans, scores, beside, report(folder.path), warnings)


def _has_ended(run: RunFolder) -> bool:
    if not run.folds_file.is_file():
        return run.exists and run.manifest().get("status") == "finished"
    return all(state == "finished" for state in fold_states(run).values())


def _check_baseline(run: RunFolder) -> None:
    """A folder of that name may hold another run, whose difference would be due to something else."""
    expected, found = baseline_of(load_recipe(run.recipe_file)), load_recipe(run.baseline.recipe_file)
    other = differences(expected, found)
    stores = [
        {one.training_manifest()["store"]["identity"] for one in ensemble_members(both)} for both in (run, run.baseline)
    ]
    if other or stores[0] != stores[1]:
        apart = ", ".join(other) or "the scans"
        finding = f"not what the labeled scans alone give in place of the run (differ: {apart})"
        raise UserError(
            Code.STORE_MISMATCH,
            run.baseline.path,
            finding,
            "move it away; graftseg compare sets any two runs side by side",
        )


def _not_ended(baseline: RunFolder) -> Iterator[str]:
    if baseline.path.exists():
        yield f"{baseline.path} has not been trained to its end, so that nothing stands beside the run"


def _seen_before(names: set[str], networks: list[RunFolder]) -> Iterator[str]:
    stores = [network.training_manifest()["store"] for network in networks]
    known = {str(name) for store in stores for key in ("labeled", "unlabeled") for name in store.get(key, ())}
    if both := sorted(same_names(names, known)):
        verb = "has the name of a scan" if len(both) == 1 else "have the names of scans"
        yield (
            f"{len(both)} of {len(names)} test cases {verb} in the training ({both[0]}): if they are the same, "
            "the figures say nothing of new scans"
        )


def _planned(run: RunFolder, scans: EvaluationScans, device: torch.device) -> PlannedPrediction:
    """Load the networks and raise an error if the results could not be written; nothing is written or removed."""
    check_writable(run.path)
    settings = PredictionSettings(remedy=f"move {run.predictions} to another place and test again")
    plan = plan_prediction(run, scans.images, run.predictions, device, settings)
    plan.target.check()
    check_table_path(run.predictions / "metrics.csv")
    return plan


def _predicted(plan: PlannedPrediction) -> Predicted:
    """Predict all scans. Raise the error of the first scan that failed."""
    predicted = plan.predict()
    if predicted.failures:
        raise predicted.failures[0]
    return predicted


def _scored(predicted: Predicted, scans: EvaluationScans, *, allow_missing: bool) -> Evaluation:
    """Scores of these scans alone: the folder may hold label maps of others, even of scans that were trained on."""
    names = {case.case for case in predicted.cases}
    return score_folder(predicted.folder, scans.labels, allow_missing=allow_missing, only=names)
