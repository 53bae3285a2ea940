"""The verbs, as functions: the only place where the parts are wired together."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from graftseg.bench.measure import Measurement, Plan, measure
from graftseg.comparison import Beside, compare_runs, write_comparison
from graftseg.data import check as checking
from graftseg.data import prepare as preparing
from graftseg.data.benchmarks import BENCHMARKS, read_benchmark
from graftseg.data.layouts import Dataset, read_layout
from graftseg.data.store import Store, is_store, open_store
from graftseg.engine import Outcome
from graftseg.environment import choose_device, describe_machine
from graftseg.errors import StoppedError, UserError
from graftseg.evaluation import Evaluation, description_of, evaluate_folder
from graftseg.files import read_json, write_json, write_text
from graftseg.metrics import Protocol
from graftseg.paper import ALL
from graftseg.planning import choose_overrides, choose_recipe, plan_text
from graftseg.prediction import Checkpoint, Predicted, predict_scans
from graftseg.recipe import Recipe, changed, load_recipe, shipped_recipes
from graftseg.records import record_run
from graftseg.reporting import render_report
from graftseg.reporting.differences import picture
from graftseg.runs import RunFolder
from graftseg.tables import table as paper_table
from graftseg.tables import tables_page
from graftseg.training import train_run
from graftseg.types import SPLITS

Folder = str | Path


def check(data: Folder) -> list[checking.Finding]:
    """Look at a folder of scans and say what is wrong with it and how to mend it."""
    return checking.check(read_layout(Path(data)))


def plan(data: Folder, out: Folder) -> Path:
    """Write the recipe to begin with for a folder of scans."""
    target = Path(out)
    if target.exists():
        raise UserError(target, "the file exists", "name another --out or remove it")
    write_text(target, plan_text(read_layout(Path(data))))
    load_recipe(target)
    return target


def prepare(
    data: Folder,
    out: Folder,
    *,
    recipe: str | Path | None = None,
    benchmark: str | None = None,
    overrides: Iterable[str] = (),
) -> Store:
    """Bring scans to a recipe's orientation, spacing and intensities, into a store that is fast to read.

    A published benchmark is recognised, or named, and without a recipe kept as its files are.
    """
    dataset = read_layout(Path(data)) if benchmark is None else read_benchmark(benchmark, Path(data))
    if recipe is None and dataset.layout in BENCHMARKS:
        if list(overrides):
            raise UserError("--set", f"the benchmark {dataset.layout} is kept as it is", "name a --recipe to change")
        return preparing.prepare(dataset, Path(out), preparing.as_read(BENCHMARKS[dataset.layout].dimensions))
    if recipe is None:
        recipe, overrides = choose_recipe(dataset)[0], [*choose_overrides(dataset), *overrides]
    chosen = load_recipe(recipe, overrides)
    return preparing.prepare(dataset, Path(out), chosen.data)


def train(
    recipe: str | Path | Recipe,
    data: Folder,
    out: Folder,
    *,
    overrides: Iterable[str] = (),
    resume: bool = False,
    device: str = "auto",
) -> Outcome:
    """Train on a prepared store, or on a folder of scans, which is first prepared into ``out/store``.

    Ctrl-C saves and raises a ``StoppedError``; ``resume=True`` goes on.
    """
    loaded = changed(recipe, overrides) if isinstance(recipe, Recipe) else load_recipe(recipe, overrides)
    outcome = train_run(loaded, Path(data), RunFolder(Path(out)), choose_device(device), resume=resume)
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
) -> Predicted:
    """Write label maps of scans, a file, a folder or the test cases of a store, in the scans' own geometry.

    ``overrides`` change how the network is used, such as ``inference.overlap=0.75``. ``checkpoint="best"`` takes the
    best network of those that the run scored on the way, in place of the one that it ships.
    """
    folder = RunFolder(Path(run))
    target = Path(out or (folder.predictions if checkpoint == "shipped" else folder.predictions_best))
    chosen = choose_device(device)
    return predict_scans(folder, Path(scans), target, chosen, overrides=overrides, checkpoint=checkpoint)


def evaluate(
    predictions: Folder,
    reference: Folder,
    out: Folder | None = None,
    *,
    protocol: Protocol = "standard",
    allow_missing: bool = False,
) -> Evaluation:
    """Compare label maps with references, a folder or the test labels of a store, case by case and class by class."""
    folder = Path(predictions)
    target = Path(out or folder / "metrics.csv")
    described = description_of(target)
    evaluation = evaluate_folder(
        folder,
        Path(reference),
        classes=_classes_of_both(folder, Path(reference)),
        protocol=protocol,
        allow_missing=allow_missing,
    )
    evaluation.write_csv(target)
    rows = len(evaluation.rows)
    write_json(described, {"references": str(Path(reference).resolve()), "protocol": protocol, "rows": rows})
    return evaluation


def report(run: Folder, out: Folder | None = None, *, baseline: Folder | None = None) -> Path:
    """Write one self-contained page about a run, beside a baseline if one is named."""
    if out and Path(out).suffix.lower() not in (".html", ".htm"):
        raise UserError(out, "a report is a page", "name a file that ends in .html as --out")
    return render_report(Path(run), Path(out) if out else None, baseline=Path(baseline) if baseline else None)


def compare(*runs: Folder, out: Folder | None = None) -> list[Beside]:
    """Set tested runs, or records of them, beside the first: paired differences, how sure they are, cases won and lost.

    ``out`` names a folder for ``comparison.csv``, ``comparison.json`` and ``comparison.svg``.
    """
    comparison = compare_runs([Path(run) for run in runs])
    if out is not None:
        write_comparison(comparison, Path(out))
        write_text(Path(out) / "comparison.svg", picture(comparison))
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


def table(name: str, results: Folder = "results") -> str:
    """A table of the paper, or ``all`` of them, as Markdown: recorded runs beside the published figures."""
    if not Path(results).is_dir():
        raise UserError(results, "not a folder", "name the folder of the records as --results")
    return tables_page(Path(results)) if name == ALL else paper_table(name, Path(results))


def info(what: Folder) -> dict[str, Any]:
    """Describe a run, a store, a folder of scans or a recipe."""
    path = Path(what)
    if is_store(path):
        return _describe(open_store(path))
    if RunFolder(path).exists:
        return {"kind": "run", **RunFolder(path).manifest()}
    if path.is_dir():
        return _describe_scans(read_layout(path))
    return {"kind": "recipe", **load_recipe(what).model_dump(mode="json")}


def doctor() -> dict[str, Any]:
    """Versions, devices, free disk, shipped recipes."""
    return describe_machine(Path.cwd()) | {"recipes": shipped_recipes()}


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


def _classes_of_both(predictions: Path, reference: Path) -> dict[int, str] | None:
    """The classes that label maps or their references name; a store of other classes is refused."""
    named, stored = _classes_of(predictions), _stored_classes(reference)
    if named and stored and named != stored:
        finding = f"its classes are {', '.join(stored.values())} where the label maps have {', '.join(named.values())}"
        raise UserError(reference, finding, "give the store that the run was trained for")
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
    return dict(enumerate(classes))
