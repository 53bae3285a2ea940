"""Test a run and its baseline: write label maps, scores, a comparison and a report."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.files import check_writable
from graftseg.core.names import nfc, same_names
from graftseg.core.run_folder import RunFolder, ensemble_members, fold_states
from graftseg.data.store import find_store, image_checksum, open_store
from graftseg.evaluation.comparison import Comparison, compare_runs
from graftseg.evaluation.evaluate import score_folders
from graftseg.evaluation.scores import Evaluation, check_table_path
from graftseg.evaluation.table_metrics import format_value, mean_metrics
from graftseg.evaluation.testset import EvaluationScans, check_test_scans, find_test_scans
from graftseg.evaluation.verdicts import missed_classes, verdict_between
from graftseg.inference.ensemble import EXACT, folder_of_network
from graftseg.inference.inputs import Input, Source
from graftseg.inference.model import check_weights_exist
from graftseg.inference.predict import PlannedPrediction, Predicted, plan_prediction
from graftseg.inference.prediction_settings import PredictionSettings
from graftseg.recipes.baseline import baseline_of
from graftseg.recipes.recipe import load_recipe, training_differences
from graftseg.training.run import is_finished
from graftseg.training.unlabeled_use import unlabeled_use

Folder = str | Path
MAX_NAMED = 5  # largest number of copied scans that a warning names


@dataclass(frozen=True)
class ScoredTest:
    """The result of a test: scores by run folder, comparison with the baseline, path of the report, and warnings."""

    scans: EvaluationScans
    scores: dict[Path, Evaluation] = field(repr=False)
    comparison: Comparison | None = field(repr=False)
    report: Path
    warnings: tuple[str, ...] = ()

    def verdict(self) -> Iterator[str]:
        """Yield warnings, classes that were missed, the shipped network, and whether unlabeled scans helped."""
        yield from self.warnings
        for path, evaluation in self.scores.items():
            yield from missed_classes(str(path), evaluation)
        tested = RunFolder(next(iter(self.scores)))
        shipping, shipped = folder_of_network(tested, "shipped", None)
        if shipped is not None and shipping.path in self.scores:
            dice = format_value(mean_metrics(self.scores[shipping.path])["dice"])
            yield f"predict uses {shipped.sentence}, with a mean Dice of {dice} % in this test"
        if self.comparison is not None:
            run, baseline = self.scores.values()
            yield verdict_between(baseline, run, use=unlabeled_use(tested))


def score_run(
    folder: RunFolder,
    data: Folder | None,
    report: Callable[[Path], Path],
    *,
    images: Folder | None = None,
    labels: Folder | None = None,
    device: torch.device,
    allow_missing: bool = False,
) -> ScoredTest:
    """Predict and score test scans with a run and its baseline, then call ``report`` with the folder of the run.

    ``data`` is a folder with ``imagesTs`` and ``labelsTs`` or a prepared store, by default the training data of the
    run. ``images`` and ``labels`` are separate folders instead of ``data``.
    """
    networks = ensemble_members(folder)
    for network in networks:
        check_weights_exist(network.weights_file, network.manifest().get("weights"))
    scans, baseline = find_test_scans(networks[0], data, images, labels), folder.baseline
    with_baseline = _is_finished(baseline)
    if with_baseline:
        _check_baseline(folder)
    names = check_test_scans(scans, networks[0], allow_missing=allow_missing)
    runs = [folder, baseline] if with_baseline else [folder]
    # all checks come before the first prediction, which deletes previous scores
    plans = {run.path: _plan(run, scans, device) for run in runs}
    plans[folder.path], checksums = _with_checksums(plans[folder.path])
    predicted = {path: _predict(plan) for path, plan in plans.items()}
    scores = _score(predicted, scans, allow_missing=allow_missing)
    comparison = compare_runs([baseline.path, folder.path])[0] if with_baseline else None
    warnings = list(_training_cases_warning(names, networks))
    warnings.extend(_copies_warning(checksums, _training_checksums(networks)))
    if not with_baseline and baseline.path.exists():
        warnings.append(f"{baseline.path} is not finished, so the run is tested without a baseline")
    return ScoredTest(scans, scores, comparison, report(folder.path), tuple(warnings))


def _is_finished(run: RunFolder) -> bool:
    if run.folds_file.is_file():
        return all(state == "finished" for state in fold_states(run).values())
    return is_finished(run)


def _check_baseline(run: RunFolder) -> None:
    """Raise if the run in the baseline folder has other settings or scans than a supervised baseline of this run."""
    expected, actual = baseline_of(load_recipe(run.recipe_file)), load_recipe(run.baseline.recipe_file)
    changed = training_differences(expected, actual)
    stores, baseline_stores = (
        {member.training_manifest()["store"]["identity"] for member in ensemble_members(folder)}
        for folder in (run, run.baseline)
    )
    if changed or stores != baseline_stores:
        finding = f"not the supervised baseline of this run (different: {', '.join(changed) or 'the scans'})"
        remedy = "move it elsewhere, and compare the two runs with graftseg compare"
        raise UserError(Code.RUN_MISMATCH, run.baseline.path, finding, remedy)


def _trained_names(network: RunFolder) -> set[str]:
    store = network.training_manifest()["store"]
    return {str(name) for key in ("labeled", "unlabeled") for name in store.get(key, ())}


def _training_cases_warning(names: set[str], networks: list[RunFolder]) -> Iterator[str]:
    if shared := sorted(same_names(names, set().union(*map(_trained_names, networks)))):
        verb = "has the name of a training scan" if len(shared) == 1 else "have the names of training scans"
        found = f"{len(shared)} of {len(names)} test cases {verb} ({shared[0]})"
        yield f"{found}: if they are the same scans, the scores do not apply to new scans"


def _plan(run: RunFolder, scans: EvaluationScans, device: torch.device) -> PlannedPrediction:
    """Load the networks and check that label maps and scores can be written. Existing files are not changed."""
    check_writable(run.path)
    settings = PredictionSettings([EXACT], remedy=f"move {run.predictions} elsewhere and test again")
    plan = plan_prediction(run, scans.images, run.predictions, device, settings)
    plan.target.check()
    check_table_path(run.predictions / "metrics.csv")
    return plan


def _predict(plan: PlannedPrediction) -> Predicted:
    predicted = plan.predict()
    if predicted.failures:
        raise predicted.failures[0]
    return predicted


def _score(
    predicted: Mapping[Path, Predicted], scans: EvaluationScans, *, allow_missing: bool
) -> dict[Path, Evaluation]:
    """Score only the label maps in ``predicted``. The folders may also contain label maps of other scans."""
    names = {case.case for prediction in predicted.values() for case in prediction.cases}
    folders = [prediction.folder for prediction in predicted.values()]
    targets = {folder: folder / "metrics.csv" for folder in folders}
    scores = score_folders(targets, scans.labels, allow_missing=allow_missing, only=names)
    return dict(zip(predicted, scores, strict=True))


def _with_checksums(plan: PlannedPrediction) -> tuple[PlannedPrediction, dict[str, str]]:
    """Return a plan that also computes the checksums of prepared images, and a dictionary that it fills with them."""
    found: dict[str, str] = {}

    def read(case: Source) -> Input:
        prepared = case.read()
        found[case.name] = case.sha256 or image_checksum(prepared.image.numpy())
        return prepared

    return replace(plan, cases=[replace(case, read=partial(read, case)) for case in plan.cases]), found


def _training_checksums(networks: Iterable[RunFolder]) -> dict[str, str]:
    """Return the names of the training cases by the checksum of their image. Leave out runs without their store."""
    names: dict[str, str] = {}
    for network in networks:
        try:
            store, trained = open_store(find_store(network)), _trained_names(network)
        except (UserError, OSError):
            continue
        names |= {case.sha256[case.image]: case.name for case in store.cases if case.name in trained}
    return names


def _copies_warning(tested: Mapping[str, str], trained: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning if test scans are copies of training scans of other names.

    ``tested`` are checksums by name, and ``trained`` are names by checksum.
    """
    originals = {name: trained[checksum] for name, checksum in sorted(tested.items()) if checksum in trained}
    pairs = [f"{name} = {original}" for name, original in originals.items() if nfc(name) != nfc(original)]
    if pairs:
        listed = ", ".join(pairs[:MAX_NAMED]) + (", ..." if len(pairs) > MAX_NAMED else "")
        are = "is a copy of a training scan" if len(pairs) == 1 else "are copies of training scans"
        yield f"{len(pairs)} of {len(tested)} test scans {are} ({listed}), so the scores do not apply to new scans"
