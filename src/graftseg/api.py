"""The verbs, as functions: the only place where the parts are wired together."""

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from graftseg.core.devices import choose_device, describe_machine
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import read_object, write_text
from graftseg.core.run_folder import RunFolder, ensemble_members, fold_states, store_owner
from graftseg.core.types import SPLITS
from graftseg.data import check as checking
from graftseg.data import prepare as preparing
from graftseg.data.benchmarks import BENCHMARKS, read_benchmark
from graftseg.data.fix import check_fix_target, write_fixed_copy
from graftseg.data.layouts import Dataset, read_layout
from graftseg.data.sources import Sources, as_data
from graftseg.data.store import Store, is_store, open_store
from graftseg.evaluation.comparison import Comparison, compare_runs, write_comparison
from graftseg.evaluation.evaluate import score_folder
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.scores import Evaluation
from graftseg.experiments import method_pages
from graftseg.experiments.paper import ALL
from graftseg.experiments.records import record_run
from graftseg.experiments.speed.measure import Measurement, Plan, measure
from graftseg.experiments.sweep import sweep
from graftseg.experiments.tables import table_page, tables_page
from graftseg.experiments.test_run import Examined, examine
from graftseg.inference.export import Request, export_run
from graftseg.inference.predict import Checkpoint, ExtraMaps, Predicted, predict_scans
from graftseg.inference.ranking.rank import Ranking, rank_run
from graftseg.planning import make_plan
from graftseg.recipes.baseline import baseline_of, fitting, own_baseline
from graftseg.recipes.recipe import Recipe, changed, load_recipe, shipped_recipes
from graftseg.recipes.shortening import asked_for
from graftseg.reporting import render_report
from graftseg.reporting.differences import picture
from graftseg.reporting.scans_page import render_check
from graftseg.training.cross_validation import CrossValidation
from graftseg.training.folds import Count, Report
from graftseg.training.folds import train_folds as _train_folds
from graftseg.training.loop import Outcome
from graftseg.training.recorder import BASELINE, BEFORE_BASELINE, ONLY_RUN
from graftseg.training.run import complete, train_run, unlabeled_cases

Folder = str | Path
Scans = str | Path | Sources
__all__ = ["Sources", "sweep"]
logger = logging.getLogger(__name__)


def check(data: Scans, *, out: Folder | None = None, fix: Folder | None = None) -> checking.Examination:
    """Look at a folder of scans and say what is wrong with it and how to mend it.

    ``out`` names a page to write about it, and ``fix`` a new folder for a copy in which geometry that differs by
    rounding and label values with gaps are mended; the folder itself stays as it is.
    """
    if out and Path(out).suffix.lower() not in (".html", ".htm"):
        raise UserError(
            Code.OPTION_INVALID, out, "what a check writes is a page", "name a file that ends in .html as --out"
        )
    dataset = read_layout(as_data(data))
    if fix is not None:
        check_fix_target(dataset, Path(fix))
    examination = checking.examine(dataset, pictures=out is not None)
    if fix is not None:
        examination = replace(examination, mended=write_fixed_copy(dataset, examination.fingerprint, Path(fix)))
    if out is not None:
        render_check(examination, Path(out))
    return examination


def plan(data: Scans, out: Folder, *, device: str = "auto", minutes: float | None = None) -> Path:
    """Write a recipe that is fitted to scans and to a device, with the reason for every value.

    ``minutes`` is what everything that the recipe trains may take. A GPU can be planned for on a machine without one.
    """
    target = Path(out)
    if target.exists():
        raise UserError(Code.TARGET_EXISTS, target, "the file exists", "name another --out or remove it")
    write_text(target, make_plan(read_layout(as_data(data)), device=device, minutes=minutes).text)
    load_recipe(target)
    return target


def prepare(
    data: Scans,
    out: Folder,
    *,
    recipe: str | Path | None = None,
    benchmark: str | None = None,
    overrides: Iterable[str] = (),
) -> Store:
    """Bring scans to a recipe's orientation, spacing and intensities, into a store that is fast to read.

    A published benchmark is recognised, or named, and without a recipe kept as its files are.
    """
    dataset = read_layout(as_data(data)) if benchmark is None else read_benchmark(benchmark, _folder(data))
    if recipe is None and dataset.layout in BENCHMARKS:
        if list(overrides):
            raise UserError(
                Code.OPTION_INVALID,
                "--set",
                f"the benchmark {dataset.layout} is kept as it is",
                "name a --recipe to change",
            )
        settings = preparing.as_read(BENCHMARKS[dataset.layout].dimensions)
    elif recipe is None:
        settings = changed(make_plan(dataset, device="cpu", timed=False).recipe, overrides).data
    else:
        settings = load_recipe(recipe, overrides).data
    if (owner := store_owner(Path(out))) and (change := preparing.first_change(dataset, Path(out), settings)):
        finding = f"what was trained in {owner} needs this store as it is, and it would be another ({change})"
        raise UserError(Code.OPTION_INVALID, out, finding, "name another folder")
    return preparing.prepare(dataset, Path(out), settings)


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
    """Train on a prepared store, or on a folder of scans, which is first prepared into ``out/store``.

    ``baseline``, by default what the recipe says, trains a supervised run of as many steps into ``out/baseline`` too.
    One network sees all labeled cases, whatever the recipe says of folds; ``train_folds`` divides them. Ctrl-C saves
    and raises a ``StoppedError``; ``resume=True`` goes on, with whichever of the two runs was cut. ``shorter`` divides
    the recipe's lengths, see ``graftseg.recipes.shortening``.
    """
    loaded = asked_for(recipe, overrides, shorter)
    run, chosen, source = RunFolder(Path(out)), choose_device(device), as_data(data)
    beside = loaded.baseline if baseline is None else baseline
    if beside or loaded.baseline:
        unlabeled = unlabeled_cases(loaded, source, run)
        loaded, beside = fitting(loaded, unlabeled=unlabeled, baseline=beside)
    label = BEFORE_BASELINE if beside else ONLY_RUN
    outcome = _ended(train_run(loaded, source, run, chosen, resume=resume, label=label))
    if beside:
        store = open_store(source if is_store(source) else run.store)
        complete(baseline_of(loaded), store, run.baseline, chosen, BASELINE)
    return outcome


def train_folds(
    recipe: str | Path | Recipe,
    data: Scans,
    out: Folder,
    *,
    folds: Count | None = None,
    overrides: Iterable[str] = (),
    shorter: int = 1,
    resume: bool = False,
    device: str = "auto",
    baseline: bool | None = None,
    tell: Report = logger.info,
) -> CrossValidation:
    """Divide the labeled cases into folds and train a network for each on the others, into ``out/fold-N``.

    ``folds`` is how many, ``"loo"`` to leave out one case at a time, by default what the recipe says. Every labeled
    case is scored once, by the network that never saw it. ``baseline`` does the same with supervised runs, in
    ``out/baseline``. ``shorter`` divides the recipe's lengths.
    """
    loaded = asked_for(recipe, overrides, shorter)
    count = loaded.folds if folds is None else folds
    if count is None:
        raise UserError(Code.OPTION_INVALID, f"recipe {loaded.name}", "it says nothing of folds", "give their number")
    run, chosen, beside = RunFolder(Path(out)), choose_device(device), loaded.baseline if baseline is None else baseline
    return _train_folds(loaded, as_data(data), run, chosen, count=count, baseline=beside, resume=resume, report=tell)


def _ended(outcome: Outcome) -> Outcome:
    if outcome.stopped_by is not None:
        raise StoppedError(outcome.stopped_by, outcome.steps)
    return outcome


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
) -> Predicted:
    """Write label maps of scans, a file, a folder or the test cases of a store, in the scans' own geometry.

    ``overrides`` change how the network is used, such as ``inference.overlap=0.75``. ``checkpoint="best"`` takes the
    best network of those that the run scored on the way, in place of the one that it ships. A run that holds folds
    predicts with the mean of all of them, or with one ``fold``. ``probabilities`` and ``uncertainty`` write these too,
    and ``pictures`` the label maps of 2-D scans as PNG.
    """
    folder = RunFolder(Path(run))
    owner = folder if fold is None else ensemble_members(folder, fold)[0]
    return predict_scans(
        folder,
        Path(scans),
        Path(out or (owner.predictions if checkpoint == "shipped" else owner.predictions_best)),
        choose_device(device),
        overrides=overrides,
        checkpoint=checkpoint,
        fold=fold,
        wanted=ExtraMaps(probabilities, uncertainty, pictures),
    )


def evaluate(
    predictions: Folder,
    reference: Folder,
    out: Folder | None = None,
    *,
    protocol: Protocol = "standard",
    allow_missing: bool = False,
    only: Collection[str] | None = None,
) -> Evaluation:
    """Compare label maps with references, a folder or the test labels of a store, case by case and class by class.

    ``only`` names the cases to look at, if not all label maps of the folder are meant.
    """
    return score_folder(
        Path(predictions),
        Path(reference),
        Path(out) if out else None,
        protocol=protocol,
        allow_missing=allow_missing,
        only=only,
    )


def test(
    run: Folder,
    data: Folder | None = None,
    *,
    images: Folder | None = None,
    labels: Folder | None = None,
    device: str = "auto",
    allow_missing: bool = False,
) -> Examined:
    """Predict test scans with a run and its baseline, score both and write the report of the run.

    ``data`` is a folder with ``imagesTs`` and ``labelsTs`` or a prepared store, by default what the run was trained
    from; ``images`` and ``labels`` name folders one by one.
    """
    return examine(
        RunFolder(Path(run)),
        data,
        report,
        images=images,
        labels=labels,
        device=choose_device(device),
        allow_missing=allow_missing,
    )


def report(run: Folder, out: Folder | None = None, *, baseline: Folder | None = None) -> Path:
    """Write one self-contained page about a run, beside a baseline: the one that is named, or its own if evaluated."""
    if out and Path(out).suffix.lower() not in (".html", ".htm"):
        raise UserError(Code.OPTION_INVALID, out, "a report is a page", "name a file that ends in .html as --out")
    beside = Path(baseline) if baseline else own_baseline(RunFolder(Path(run)))
    return render_report(Path(run), Path(out) if out else None, baseline=beside)


def compare(*runs: Folder, out: Folder | None = None) -> list[Comparison]:
    """Set tested runs, or records of them, beside the first: paired differences, how sure they are, cases won and lost.

    ``out`` names a folder for ``comparison.csv``, ``comparison.json`` and ``comparison.svg``.
    """
    comparison = compare_runs([Path(run) for run in runs])
    if out is not None:
        write_comparison(comparison, Path(out), picture(comparison))
    return comparison


def bench(
    recipe: str | Path,
    data: Folder | None = None,
    *,
    overrides: Iterable[str] = (),
    device: str = "auto",
    plan: Plan | None = None,
) -> Measurement:
    """Time a recipe's self-training step on this machine, beside the usual way of running it.

    Without a prepared store as ``data``, phantoms of the recipe's kind are made and thrown away.
    """
    return measure(load_recipe(recipe, overrides), Path(data) if data else None, choose_device(device), plan or Plan())


def record(run: Folder, out: Folder | None = None, *, variant: str = "", results: Folder = "results") -> Path:
    """Keep what a tested run leaves for others, without data and weights: by default below ``results``."""
    return record_run(RunFolder(Path(run)), Path(out) if out else None, variant=variant, results=Path(results))


def rank(run: Folder, data: Folder | None = None, *, out: Folder | None = None, device: str = "auto") -> Ranking:
    """Put the unlabeled scans in the order in which they are worth annotating, with reasons.

    ``data`` is a prepared store or a folder of scans, by default what the run was trained on; ``out`` a csv to write.
    """
    target = Path(out) if out is not None else None
    return rank_run(RunFolder(Path(run)), Path(data) if data else None, target, choose_device(device))


def export(
    kind: str,
    run: Folder,
    out: Folder,
    *,
    check: Folder | None = None,
    data: Folder | None = None,
    predictions: Folder | None = None,
) -> list[str]:
    """Write a run as ``onnx``, ``weights``, ``monai``, ``nnunet`` or ``dicomseg``; returns lines that tell of it.

    ``check`` is a scan to compare an ONNX network on. ``data`` names the scans and ``predictions`` the label maps that
    an nnU-Net data set or DICOM segmentations are made of.
    """
    scan, scans, labels = (Path(one) if one is not None else None for one in (check, data, predictions))
    return export_run(kind, Request(RunFolder(Path(run)), Path(out), scan, scans, labels))


def table(name: str, results: Folder | None = None) -> str:
    """A table of the paper, or ``all`` of them, as Markdown: recorded runs beside the published figures.

    Records are looked for in ``results``, by default in a folder of that name, which need not be there.
    """
    folder = Path("results" if results is None else results)
    if not folder.is_dir() and (results is not None or folder.exists()):
        raise UserError(Code.NOT_A_FOLDER, folder, "not a folder", "name the folder of the records as --results")
    return tables_page(folder) if name.lower() == ALL else table_page(name.lower(), folder)


def fill_pages(folder: Folder, results: Folder = "results") -> list[Path]:
    """Write our figures into the methods' pages of a folder; returns the pages."""
    if not Path(folder).is_dir():
        raise UserError(Code.NOT_A_FOLDER, folder, "not a folder", "name the folder of the methods' pages as --pages")
    return method_pages.fill_pages(Path(folder), Path(results))


def info(what: Scans) -> dict[str, Any]:
    """Describe a run, a store, a folder of scans or a recipe."""
    if isinstance(what, Sources):
        return _describe_scans(read_layout(what))
    path = Path(what)
    if is_store(path):
        return _describe(open_store(path))
    run = RunFolder(path)
    if run.folds_file.is_file():
        return {"kind": "folds", **read_object(run.folds_file), "state": fold_states(run)}
    if run.exists:
        return {"kind": "run", **run.manifest()}
    if path.is_dir():
        return _describe_scans(read_layout(path))
    return {"kind": "recipe", **load_recipe(what).model_dump(mode="json")}


def doctor() -> dict[str, Any]:
    """Versions, devices, free disk, shipped recipes."""
    return describe_machine(Path.cwd()) | {"recipes": shipped_recipes()}


def _folder(data: Scans) -> Path:
    if isinstance(data, Sources):
        raise UserError(
            Code.OPTION_INVALID, "--benchmark", "a published data set is one folder", "name it in place of several"
        )
    return Path(data)


def _describe_scans(dataset: Dataset) -> dict[str, Any]:
    return {
        "kind": "scans",
        "layout": dataset.layout,
        "cases": {split: len(dataset.of(split)) for split in SPLITS},
        "classes": dataset.classes,
    }


def _describe(store: Store) -> dict[str, Any]:
    return {
        "kind": "store",
        "path": str(store.path),
        "identity": store.identity,
        "settings": store.settings,
        "classes": list(store.classes),
        "channels": store.channels,
        "cases": {split: len(store.of(split)) for split in SPLITS},
        "voxels": sum(int(store.image(case).size) for case in store.cases),
    }
