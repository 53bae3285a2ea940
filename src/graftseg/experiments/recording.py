"""The record of a tested run, written only if it can be averaged with the records of other seeds."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import check_writable, read_object
from graftseg.core.predictions import read_manifest
from graftseg.core.run_folder import LOCK, RunFolder, complete_log
from graftseg.evaluation import comparison
from graftseg.evaluation.scores import description_file, read_csv
from graftseg.evaluation.statistics import match_case_names
from graftseg.experiments import records
from graftseg.experiments.records import Record, Scored
from graftseg.recipes.recipe import Recipe, changes_of, load_recipe, metric_differences

MAX_VARIANT_LENGTH = 100
TEST_IT = "test the run with graftseg test RUN STORE"
TEST_BEST = "predict again with --checkpoint best and evaluate predictions-best, or remove this folder"
OTHER_FOLDER = "pass another folder as --results or --out"
OTHER_VARIANT = "pass another --variant"


def record_run(run: RunFolder, out: Path | None = None, *, variant: str = "", results: Path = Path("results")) -> Path:
    """Write the record of a finished and tested run into ``out``, by default ``results/RECIPE/seed-N[-VARIANT]``.

    A run whose settings differ from the shipped recipe needs a variant, so that tables list it in a separate row.
    """
    facts = run.training_manifest()
    if facts.get("status") != "finished":
        raise UserError(Code.RUN_UNFINISHED, run.path, "the run is not finished", "finish it with train --resume")
    recipe = load_recipe(run.recipe_file)
    folder = out or results / records.record_path(recipe, variant)
    variant = _variant_of(folder, recipe, variant)
    check_target(folder, run.path)
    reported = _scores_in(run.predictions, facts.get("weights"), TEST_IT)
    changes = changes_of(recipe, reported.about["inference"])
    check_variant(run.recipe_file, recipe, changes, variant)
    _check_replaced(folder, facts.get("weights"))
    best = None
    if (run.predictions_best / "metrics.csv").is_file():
        best = _scores_in(run.predictions_best, (facts.get("best") or {}).get("sha256"), TEST_BEST)
    log = records.thinned(complete_log(run.log_file, facts.get("steps")))
    store = {key: value for key, value in facts["store"].items() if key != "path"}
    recorded = records.without_paths({**facts, "store": store}) | {"variant": variant, "changes": changes}
    record = Record(folder, recorded, reported, best, log)
    for other in siblings(folder, variant):
        check_same_settings(other, recipe, folder)
        check_same_store(other, record.identity, folder)
        check_same_cases(other, replace(record, folder=run.path))
    records.write_record(record, recipe.to_yaml())
    return folder


def check_target(folder: Path, run: Path) -> None:
    """Raise if a record cannot be written into a folder, or if it would overwrite a run."""
    check_writable(folder)
    if folder.resolve().is_relative_to(run.resolve()):
        raise UserError(Code.UNSAFE_TARGET, folder, f"the record would be inside its run {run}", OTHER_FOLDER)
    existing = RunFolder(folder)
    if any(path.exists() for path in (folder / LOCK, existing.weights_file, existing.checkpoints)):
        raise UserError(Code.UNSAFE_TARGET, folder, "the record would overwrite a run", OTHER_FOLDER)


def check_variant(where: str | Path, recipe: Recipe, changes: list[str], variant: str) -> None:
    """Raise if a variant is too long, or missing although settings differ from the shipped recipe."""
    if len(variant) > MAX_VARIANT_LENGTH:
        finding = f"longer than {MAX_VARIANT_LENGTH} characters"
        raise UserError(Code.OPTION_INVALID, f"--variant {variant[:20]}...", finding, "choose a shorter name")
    if changes and not variant:
        finding = f"the run differs from the shipped recipe {recipe.name} ({', '.join(changes)})"
        raise UserError(Code.VARIANT_NEEDED, where, finding, "name the difference with --variant")


def siblings(folder: Path, variant: str) -> Iterable[Record]:
    """Yield the records of other seeds of the same recipe and variant. Skip damaged records."""
    for other in sorted(folder.parent.glob("seed-*")):
        name = records.RECORD_NAME.fullmatch(other.name)
        if other == folder or name is None or (name.group(2) or "") != variant or not records.is_record(other):
            continue
        try:
            yield records.read_record(other)
        except UserError:
            continue


def check_same_settings(record: Record, recipe: Recipe, where: str | Path) -> None:
    """Raise if the recipe of a new run differs from the recipe of a record, because the two cannot be averaged."""
    if names := metric_differences(record.settings, recipe):
        finding = f"{record.name} has the same variant and different settings ({', '.join(names)})"
        raise UserError(Code.VARIANT_NEEDED, where, finding, OTHER_VARIANT)


def check_same_store(record: Record, identity: str | None, where: str | Path) -> None:
    """Raise if a record was trained on another store. Accept older records, which do not name their store."""
    if None not in (record.identity, identity) and record.identity != identity:
        finding = f"{record.name} has the same variant and was trained on a different store"
        raise UserError(Code.VARIANT_NEEDED, where, finding, OTHER_VARIANT)


def check_same_cases(first: Record, second: Record) -> None:
    """Raise if two records differ in test cases, classes, references or protocol."""
    matched = match_case_names(first.evaluation, second.evaluation)
    runs = first.scored_run, replace(second.scored_run, evaluation=matched)
    remedy = f"move the record {first.name} elsewhere, or record {second.name} with another --variant"
    try:
        comparison.check_comparable(*runs)
        comparison.check_same_cases(*runs)
    except UserError as error:
        raise UserError(error.code, error.where, error.finding, remedy) from None
    tested = first.reported.tested_on, second.reported.tested_on
    if None not in tested and tested[0] != tested[1]:
        finding = f"not tested on the same scans and labels as {first.name}"
        raise UserError(Code.NOT_COMPARABLE, second.name, finding, remedy)


def _variant_of(folder: Path, recipe: Recipe, variant: str) -> str:
    """Return ``variant`` or the variant in the name of the folder. Raise if tables would not find a record there."""
    name = records.RECORD_NAME.fullmatch(folder.name)
    variant = variant or (name and name.group(2)) or ""
    expected = records.record_path(recipe, variant)
    if PurePosixPath(folder.as_posix()).parts[-len(expected.parts) :] != expected.parts:
        finding = f"a record of this run must be in a folder named {expected}"
        raise UserError(Code.OPTION_INVALID, folder, finding, f"pass --out RESULTS/{expected}, or omit --out")
    return variant


def _check_replaced(folder: Path, weights_sha256: str | None) -> None:
    """Raise if a folder contains the record of another run. A damaged record may be replaced."""
    try:
        before = records.read_record(folder).facts.get("weights") if records.is_record(folder) else None
    except UserError:
        return
    if before not in (None, weights_sha256):
        remedy = "remove this record or pass another --variant"
        raise UserError(Code.TARGET_EXISTS, folder, "contains the record of another run", remedy)


def _scores_in(folder: Path, weights_sha256: str | None, remedy: str) -> Scored:
    """Read the scores in a folder of label maps. Raise if the label maps were predicted with other weights."""
    table = folder / "metrics.csv"
    manifest = read_manifest(folder, "remove the folder and predict again")
    if manifest is None or not table.is_file():
        raise UserError(Code.NOT_TESTED, folder, "the label maps have not been evaluated", remedy)
    if manifest.weights != weights_sha256:
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, "the label maps were predicted with other weights", remedy)
    if not manifest.is_complete:
        raise UserError(Code.PREDICTIONS_MISMATCH, folder, "label maps of some cases are missing", remedy)
    evaluation, described = read_csv(table), description_file(table)
    description: dict[str, Any] = read_object(described) if described.is_file() else {}
    left_out = ("references", *records.DERIVED_KEYS)
    about = records.without_paths({key: value for key, value in description.items() if key not in left_out})
    about |= {"protocol": evaluation.protocol, "checkpoint": manifest.checkpoint, "selected_on": manifest.selected_on}
    about |= {"cases": len({row.case for row in evaluation.rows}), "inference": manifest.inference}
    return Scored(evaluation, about | {"weights": manifest.weights, "device": manifest.device})
