"""The commands as functions, which connect data, training, inference, evaluation and reporting."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, UserError
from graftseg.core.files import check_page_name, write_text
from graftseg.core.planned_methods import DEFAULT_METHOD
from graftseg.core.run_folder import RunFolder, ensemble_members, store_owner
from graftseg.core.tasks import open_executor
from graftseg.data import check as checking
from graftseg.data import prepare as preparing
from graftseg.data.benchmarks import read_benchmark
from graftseg.data.fix import check_fix_target, find_broken, write_fixed_copy
from graftseg.data.layouts import read_layout
from graftseg.data.sources import Sources, as_data, single_folder
from graftseg.data.store import Store
from graftseg.evaluation.comparison import Comparison, compare_runs, write_comparison
from graftseg.evaluation.evaluate import score_folders
from graftseg.evaluation.metrics import TOLERANCE, Protocol
from graftseg.evaluation.scores import Evaluation
from graftseg.experiments.description import describe as info
from graftseg.experiments.description import doctor
from graftseg.experiments.method_comparison import MethodComparison, train_methods
from graftseg.experiments.paper import ALL
from graftseg.experiments.recording import record_run
from graftseg.experiments.records import as_run_folder, is_record, read_scored
from graftseg.experiments.seeds import train_seeds
from graftseg.experiments.speed.measure import Measurement, Plan, measure
from graftseg.experiments.strangers import NAME as STRANGERS
from graftseg.experiments.strangers import strangers_page
from graftseg.experiments.sweep import sweep
from graftseg.experiments.tables import table_page, tables_page
from graftseg.experiments.test_run import ScoredTest, score_run
from graftseg.inference.array_model import ArrayModel, load_model
from graftseg.inference.ensemble import Checkpoint, folder_of_network
from graftseg.inference.export import Request, export_run
from graftseg.inference.export.segment_codes import FILE as CODES
from graftseg.inference.label_maps import ExtraMaps
from graftseg.inference.predict import Predicted
from graftseg.inference.predict_tasks import predict_in_tasks
from graftseg.inference.prediction_settings import PredictionSettings, Shard
from graftseg.inference.public_weights import import_public_weights
from graftseg.inference.ranking.rank import rank
from graftseg.planning.method_shares import compared_methods, share_on_device
from graftseg.planning.plan_file import check_plan_target
from graftseg.planning.plans import choose_data_settings, make_plan
from graftseg.recipes.baseline import own_baseline
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.recipes.shortening import requested_recipe
from graftseg.reporting.check_page import render_check
from graftseg.reporting.differences import differences_svg
from graftseg.reporting.figures.figure import figure
from graftseg.reporting.folds_page import render_methods
from graftseg.reporting.notebook import view
from graftseg.reporting.run_page import render_report
from graftseg.training.continuation import continue_training
from graftseg.training.cross_validation import CrossValidation
from graftseg.training.folds import FoldCount, Report
from graftseg.training.folds import train_folds as _train_folds
from graftseg.training.loop import Outcome
from graftseg.training.with_baseline import train_with_baseline

Folder = str | Path
Scans = str | Path | Sources
Cluster = str | None
"""``ray`` or ``ray://HOST:PORT``: the Ray cluster that runs the folds or groups of scans. None uses this process."""
__all__ = ["Sources", "continue_training", "doctor", "figure", "info", "rank", "sweep", "train_seeds", "view"]
logger = logging.getLogger(__name__)


def check(
    data: Scans, *, out: Folder | None = None, fix: Folder | None = None, drop: bool = False
) -> checking.Examination:
    """Check a folder of scans. Return its problems and how to fix them.

    ``out`` is an HTML page to write. ``fix`` is a new folder for a copy of the scans, in which rounding differences in
    the geometry, mirrored label maps and gaps in the label values are fixed. ``drop`` leaves broken cases out of the
    copy. The checked folder is not changed.
    """
    if drop and fix is None:
        raise UserError(Code.OPTION_CONFLICT, "--drop", "--fix is missing", "name a folder for the copy after --fix")
    check_page_name(out)
    dataset = read_layout(as_data(data))
    if fix is not None:
        check_fix_target(dataset, Path(fix))
    examination = checking.examine(dataset, pictures=out is not None)
    if fix is not None:
        broken = find_broken(dataset, examination.findings) if drop else {}
        mended = write_fixed_copy(dataset, examination.fingerprint, Path(fix), broken)
        examination = replace(examination, mended=mended)
    if out is not None:
        render_check(examination, Path(out))
    return examination


def plan(
    data: Scans, out: Folder, *, device: str = "auto", minutes: float | None = None, method: str = DEFAULT_METHOD
) -> Path:
    """Write a recipe that fits the scans and the device, with the reason for every value.

    ``minutes`` limits the total training time, including folds and baseline. ``device`` need not be in this machine.
    """
    target = Path(out)
    check_plan_target(target)
    write_text(target, make_plan(read_layout(as_data(data)), device=device, minutes=minutes, method=method).text)
    load_recipe(target)
    return target


def prepare(
    data: Scans,
    out: Folder,
    *,
    recipe: str | Path | None = None,
    benchmark: str | None = None,
    overrides: Iterable[str] = (),
    on: Cluster = None,
) -> Store:
    """Convert scans to the orientation, voxel spacing and intensities of a recipe, and write them to a store.

    A published benchmark is detected from its files unless ``benchmark`` names it. Without ``recipe``, the files of a
    benchmark are stored unchanged, and other scans are prepared with planned settings.
    """
    dataset = read_layout(as_data(data)) if benchmark is None else read_benchmark(benchmark, single_folder(data))
    settings = choose_data_settings(dataset, recipe, overrides)
    if (owner := store_owner(Path(out))) and (change := preparing.first_change(dataset, Path(out), settings)):
        finding = f"the runs in {owner} need this store, which would change ({change})"
        raise UserError(Code.STORE_MISMATCH, out, finding, "choose another folder")
    with open_executor(on) as executor:
        return preparing.prepare(dataset, Path(out), settings, executor=executor)


def train(
    recipe: str | Path | Recipe,
    data: Scans,
    out: Folder,
    *,
    overrides: Iterable[str] = (),
    shorter: int = 1,
    resume: bool = False,
    device: str = "auto",
    baseline: bool | None = None,
) -> Outcome:
    """Train one network on all labeled cases of a prepared store, or of a folder that is prepared into ``out/store``.

    ``baseline`` also trains a supervised run with the same number of steps into ``out/baseline``. None uses the value
    in the recipe. Ctrl-C saves the state and raises a ``StoppedError``. ``resume=True`` continues the run and then its
    baseline. ``shorter`` divides the lengths in the recipe, such as numbers of steps. Folds in the recipe are ignored:
    use ``train_folds``.
    """
    loaded = requested_recipe(recipe, overrides, shorter)
    run, chosen = RunFolder(Path(out)), choose_device(device)
    baseline = loaded.baseline if baseline is None else baseline
    return train_with_baseline(loaded, as_data(data), run, chosen, resume=resume, baseline=baseline)


def train_folds(
    recipe: str | Path | Recipe,
    data: Scans,
    out: Folder,
    *,
    folds: FoldCount | None = None,
    overrides: Iterable[str] = (),
    shorter: int = 1,
    resume: bool = False,
    device: str = "auto",
    baseline: bool | None = None,
    on: Cluster = None,
    tell: Report = logger.info,
) -> CrossValidation:
    """Cross-validate: for each fold of the labeled cases, train a network on the other cases, into ``out/fold-N``.

    ``folds`` is the number of folds or ``"loo"`` for leave-one-out. Each labeled case is scored once, by the network
    that did not see it. ``baseline`` also cross-validates the supervised baseline, in ``out/baseline``. For ``folds``
    and ``baseline``, None uses the value in the recipe. ``shorter`` divides the lengths in the recipe.
    """
    loaded = requested_recipe(recipe, overrides, shorter)
    count = loaded.folds if folds is None else folds
    if count is None:
        raise UserError(Code.OPTION_INVALID, f"recipe {loaded.name}", "does not set folds", "pass the number of folds")
    run, baseline = RunFolder(Path(out)), loaded.baseline if baseline is None else baseline
    with open_executor(on) as executor:
        chosen, scans = executor.choose_device(device), as_data(data)
        return _train_folds(
            loaded, scans, run, chosen, count=count, baseline=baseline, resume=resume, report=tell, executor=executor
        )


def compare_methods(
    recipe: str | Path | Recipe,
    data: Scans,
    out: Folder,
    *,
    methods: Sequence[str] | None = None,
    folds: FoldCount | None = None,
    overrides: Iterable[str] = (),
    shorter: int = 1,
    resume: bool = False,
    device: str = "auto",
    tell: Report = logger.info,
) -> MethodComparison:
    """Cross-validate several methods on the same folds, each with the same share of the training time of a plan.

    ``recipe`` is a plan. ``methods`` are compared with supervised training, by default all methods that can be
    planned. ``folds`` is by default the largest number up to 5 that leaves every method 2,000 steps per fold, but at
    least 2. The folds of a method are in ``out/METHOD``. ``out/compare.json`` and ``out/report.html`` contain the
    results.
    """
    plan, names = requested_recipe(recipe, overrides, shorter), compared_methods(methods)
    run, chosen = RunFolder(Path(out)), choose_device(device)
    recipes_for, number = partial(share_on_device, plan, names, chosen, folds), None if folds == "loo" else folds
    comparison = train_methods(
        plan, names, as_data(data), run, chosen, recipes_for=recipes_for, folds=number, resume=resume, report=tell
    )
    render_methods(run, *comparison.table(), comparison.verdict())
    return comparison


def predict(
    run: Folder,
    scans: Folder,
    out: Folder | None = None,
    *,
    checkpoint: Checkpoint = "shipped",
    overrides: Iterable[str] = (),
    device: str = "auto",
    fold: int | None = None,
    probabilities: bool = False,
    uncertainty: bool = False,
    pictures: bool = False,
    again: bool = False,
    shard: str | None = None,
    on: Cluster = None,
) -> Predicted:
    """Write label maps of a scan, a folder or a list of scans, or the test cases of a store.

    ``overrides`` change inference settings, such as ``inference.overlap=0.75``. ``checkpoint="best"`` uses the
    checkpoint with the best score instead of the checkpoint that the run reports. A cross-validation predicts with the
    mean probabilities of all folds unless one ``fold`` is given. ``probabilities``, ``uncertainty`` and ``pictures``
    (PNG files, only for 2-D scans) write additional files. Scans with a label map of the same networks and settings are
    skipped, unless ``again`` is set. ``shard="3/8"`` predicts the third of eight parts of the scans.
    """
    folder, shipped = folder_of_network(RunFolder(Path(run)), checkpoint, fold)
    owner = folder if fold is None else ensemble_members(folder, fold)[0]
    target = Path(out or (owner.predictions if checkpoint == "shipped" else owner.predictions_best))
    extras = ExtraMaps(probabilities, uncertainty, pictures)
    part = None if shard is None else Shard.parse(shard)
    settings = PredictionSettings(overrides, checkpoint, (), fold, extras, is_resumed=not again, shard=part)
    with open_executor(on) as executor:
        chosen = executor.choose_device(device)
        predicted = predict_in_tasks(folder, Path(scans), target, chosen, settings, executor)
    return predicted if shipped is None else replace(predicted, network=shipped.sentence)


def load(
    run: Folder,
    *,
    checkpoint: Checkpoint = "shipped",
    overrides: Iterable[str] = (),
    device: str = "auto",
    fold: int | None = None,
) -> ArrayModel:
    """Load a run with the options of ``predict``, to predict arrays with ``load(run).predict(array, affine)``."""
    return load_model(RunFolder(Path(run)), choose_device(device), overrides, checkpoint, fold)


def evaluate(
    predictions: Folder,
    reference: Folder,
    out: Folder | None = None,
    *,
    protocol: Protocol = "standard",
    tolerance: float = TOLERANCE,
    allow_missing: bool = False,
    only: Collection[str] | None = None,
) -> Evaluation:
    """Score label maps against references for each case and class.

    ``reference`` is a folder of label maps or a store with labeled test cases. ``protocol`` is the rule for empty
    masks. ``tolerance`` is the tolerance of the surface Dice in millimeters. ``allow_missing`` skips cases without a
    prediction or a reference. ``only`` selects cases by name.
    """
    targets = {Path(predictions): Path(out) if out else Path(predictions) / "metrics.csv"}
    evaluations = score_folders(
        targets, Path(reference), protocol=protocol, tolerance=tolerance, allow_missing=allow_missing, only=only
    )
    return evaluations[0]


def test(
    run: Folder,
    data: Folder | None = None,
    *,
    images: Folder | None = None,
    labels: Folder | None = None,
    device: str = "auto",
    allow_missing: bool = False,
) -> ScoredTest:
    """Predict test scans with a run and its baseline, score the label maps and write the report of the run.

    ``data`` is a prepared store, or a folder with ``imagesTs`` and ``labelsTs``. The default is the training data of
    the run. Instead of ``data``, ``images`` and ``labels`` can be given as separate folders.
    """
    folder, chosen = RunFolder(Path(run)), choose_device(device)
    return score_run(folder, data, report, images=images, labels=labels, device=chosen, allow_missing=allow_missing)


def report(run: Folder, out: Folder | None = None, *, baseline: Folder | None = None) -> Path:
    """Write a self-contained HTML page about a run and a ``baseline``, by default the baseline in the run folder."""
    check_page_name(out)
    baseline_run = Path(baseline) if baseline else own_baseline(RunFolder(Path(run)))
    target = Path(out) if out else Path(run) / "report.html" if is_record(Path(run)) else None
    with as_run_folder(Path(run)) as folder, as_run_folder(baseline_run or folder) as baseline_folder:
        return render_report(folder, target, baseline=baseline_folder if baseline_run else None)


def compare(*runs: Folder, out: Folder | None = None) -> list[Comparison]:
    """Compare the first run with every other run by paired statistics. A run is a tested run folder or a record.

    ``out`` is a folder for ``comparison.csv``, ``comparison.json`` and ``comparison.svg``.
    """
    comparison = compare_runs([Path(run) for run in runs], read_scored)
    if out is not None:
        write_comparison(comparison, Path(out), differences_svg(comparison))
    return comparison


def bench(
    recipe: str | Path,
    data: Folder | None = None,
    *,
    overrides: Iterable[str] = (),
    device: str = "auto",
    plan: Plan | None = None,
) -> Measurement:
    """Time the self-training step of a recipe on this machine: graftseg's step and the step of published scripts.

    ``data`` is a prepared store. Without ``data``, temporary phantoms that fit the recipe are used.
    """
    return measure(load_recipe(recipe, overrides), Path(data) if data else None, choose_device(device), plan or Plan())


def record(run: Folder, out: Folder | None = None, *, variant: str = "", results: Folder = "results") -> Path:
    """Save settings, log, scores and environment of a tested run in ``out``, by default a folder below ``results``."""
    return record_run(RunFolder(Path(run)), Path(out) if out else None, variant=variant, results=Path(results))


def export(
    kind: str,
    run: Folder,
    out: Folder,
    *,
    check: Folder | None = None,
    data: Folder | None = None,
    predictions: Folder | None = None,
    codes: Folder | None = None,
) -> list[str]:
    """Export the network that ``predict`` uses, or its label maps. Return a summary as lines.

    ``kind`` is ``onnx``, ``weights``, ``monai``, ``nnunet`` or ``dicomseg``. ``check`` is a scan on which the ONNX
    network is compared with PyTorch. For an nnU-Net data set or DICOM segmentations, ``data`` and ``predictions`` are
    the folders of the scans and of the label maps. ``codes`` is a JSON file with SNOMED CT codes of the classes for
    DICOM segmentations, by default ``codes.json`` of the run.
    """
    folder, shipped = folder_of_network(RunFolder(Path(run)), "shipped", None)
    if codes is None and kind == "dicomseg" and (Path(run) / CODES).is_file():
        codes = Path(run) / CODES
    paths = (Path(path) if path is not None else None for path in (check, data, predictions, codes))
    lines = export_run(kind, Request(folder, Path(out), *paths))
    # label maps in ``predictions`` may come from another network
    return lines if shipped is None or predictions else [*lines, f"network: {shipped.sentence}"]


def import_weights(
    weights: Folder, out: Folder, *, recipe: str | Path | None = None, overrides: Iterable[str] = ()
) -> RunFolder:
    """Write a run with the weights of a ``.pth`` file of the public BCP or SSL4MIS code (V-Net or 2-D U-Net).

    ``recipe`` gives the settings of the prediction, by default ``la-8/bcp`` for the V-Net and ``acdc-7/bcp`` for the
    U-Net. ``overrides`` change these settings. No code from the file is executed.
    """
    return import_public_weights(Path(weights), Path(out), recipe, overrides)


def table(name: str, results: Folder | None = None) -> str:
    """Return a table of the paper as Markdown, or all tables for ``all``: recorded runs next to published numbers.

    The table ``strangers`` compares planned recipes with and without unlabeled scans. ``results`` is the folder of the
    records. The default folder may be missing.
    """
    folder, pages = Path("results" if results is None else results), {ALL: tables_page, STRANGERS: strangers_page}
    if not folder.is_dir() and (results is not None or folder.exists()):
        raise UserError(Code.NOT_A_FOLDER, folder, "not a folder", "pass the folder of the records as --results")
    return pages.get(name.lower(), partial(table_page, name.lower()))(folder)
