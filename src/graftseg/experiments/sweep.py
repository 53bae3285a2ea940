"""Train, test and record the missing rows of a table. Finished work is reused."""

import gc
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path

import torch

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import make_folder
from graftseg.core.run_folder import RunFolder
from graftseg.core.tasks import Executor, Work, open_executor
from graftseg.data.batches import training_cases
from graftseg.data.benchmarks import classes_of
from graftseg.data.store import Store, is_store, open_store
from graftseg.evaluation.references import stored_references
from graftseg.evaluation.table_metrics import METRIC_NAMES, format_value, mean_metrics
from graftseg.experiments import recording
from graftseg.experiments.paper import ALL, TABLES, benchmark_of
from graftseg.experiments.records import is_record, read_record, record_path
from graftseg.experiments.tables import rows_of
from graftseg.experiments.train_and_test import check_seeds, ensure_trained, run_scores
from graftseg.recipes.reading import suggest
from graftseg.recipes.recipe import Recipe, changed, changes_of, metric_differences
from graftseg.recipes.shortening import check_shorter, requested_recipe
from graftseg.training.folds import Report
from graftseg.training.run import check_settings, is_finished

FIXED_SETTINGS = ("name", "published")  # settings that identify the row of a recipe and cannot be overridden
LISTED_ROWS = 12  # if a table has at most this number of rows, an error message lists all of them
Stores = str | Path | Mapping[str, str | Path] | None  # a store, or a mapping from data sets to stores
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Swept:
    """The result of a sweep, as names of trials. A trial is one seed of one row."""

    before: tuple[str, ...]  # recorded before this sweep
    recorded: tuple[str, ...]  # recorded by this sweep
    failures: dict[str, str]  # with the reason for each failure
    other_settings: tuple[str, ...] = ()  # recorded with other settings, and not trained again


@dataclass(frozen=True)
class Trial:
    """One seed of one row, with its recipe (including the seed), its run and the folder of its record."""

    recipe: Recipe
    run: RunFolder
    record: Path
    variant: str

    @property
    def name(self) -> str:
        """The recipe, the seed and the variant as text."""
        return f"{self.recipe.name}, seed {self.recipe.seed}" + (f", {self.variant}" if self.variant else "")

    @property
    def benchmark(self) -> str:
        """The name of the data set."""
        return benchmark_of(self.recipe.name)

    @cached_property
    def is_recorded(self) -> bool:
        """Whether a record exists when the sweep begins."""
        return is_record(self.record)

    @cached_property
    def changes(self) -> list[str]:
        """The settings in which an existing record differs from the recipe."""
        return metric_differences(read_record(self.record).settings, self.recipe) if self.is_recorded else []

    @property
    def state(self) -> str:
        """The progress of the trial, as a phrase."""
        if self.is_recorded:
            return "recorded" + (f" with other settings ({', '.join(self.changes)})" if self.changes else "")
        if not self.run.exists:
            return "to be trained"
        return "trained, to be tested and recorded" if is_finished(self.run) else "started, to be resumed"

    def check(self, store: Store | None) -> None:
        """Raise if the trial cannot be trained or tested on a store, or averaged with records of other seeds."""
        for other in recording.siblings(self.record, self.variant):
            recording.check_same_settings(other, self.recipe, self.record)
            recording.check_same_store(other, store.identity if store else None, self.record)
        if store is None:
            return
        expected = classes_of(self.benchmark)[1:]
        if expected and store.classes[1:] != expected:
            finding = f"has the classes {', '.join(store.classes[1:])}, unlike {self.benchmark} ({', '.join(expected)})"
            raise UserError(Code.STORE_MISMATCH, store.path, finding, _prepare_remedy(self.benchmark))
        check_settings(store, self.recipe)
        training_cases(store, self.recipe.batches)
        stored_references(store)


def sweep(
    name: str,
    data: Stores = None,
    out: str | Path = "runs",
    *,
    results: str | Path = "results",
    seeds: int = 1,
    only: Iterable[str] = (),
    overrides: Iterable[str] = (),
    shorter: int = 1,
    variant: str = "",
    device: str = "auto",
    dry_run: bool = False,
    on: str | None = None,
    tell: Report = logger.info,
) -> Swept:
    """Train, test and record the missing rows of a table, or of ``all`` tables, with ``seeds`` seeds per row.

    ``data`` is a prepared store, or a mapping from data sets to stores. Runs are written below ``out`` and records
    below ``results``. ``only`` selects recipes by name or pattern, including recipes that are not in the paper.
    ``shorter`` divides the lengths in every recipe, see ``recipes.shortening``. If a row fails, the error is reported
    and the sweep continues. A ``StoppedError`` ends the sweep, and the same call resumes it. With ``on``, each run is a
    task on the Ray cluster ``ray`` or ``ray://HOST:PORT``.
    """
    if on is None:
        choose_device(device)
    check_shorter(shorter)
    check_seeds(seeds)
    bases, failures = _load_recipes(chosen_recipes(name, only), list(overrides), shorter, variant)
    trials = list(_trials(bases, Path(out), Path(results), seeds, variant))
    missing = [trial for trial in trials if not trial.is_recorded]
    for trial in missing:
        recording.check_target(trial.record, trial.run.path)
    for recipe, reason in failures.items():
        tell(f"{recipe}: failed: {reason}")
    # a dry run can list the missing rows without a store
    stores = {} if dry_run and data is None else open_stores(data, {trial.benchmark for trial in missing})
    problems = _problems(missing, stores)
    if problems and len(problems) == len(missing) and not dry_run:
        raise next(iter(problems.values()))
    failures |= {trial: str(error) for trial, error in problems.items()}
    ready = [trial for trial in missing if trial.name not in problems]
    before = tuple(trial.name for trial in trials if trial.is_recorded and not trial.changes)
    different = [trial for trial in trials if trial.changes]
    recorded: list[str] = []
    if dry_run:
        for trial in trials:
            problem = problems.get(trial.name)
            tell(f"{trial.name}: {trial.state}" + (f", but would fail: {problem}" if problem else ""))
    else:
        for trial in different:
            tell(f"{trial.name}: {trial.state}; pass another --variant, or remove {trial.record}")
        for trial_name, error in problems.items():
            tell(f"{trial_name}: failed: {error}")
        for folder in (Path(out), Path(results)) if ready else ():
            make_folder(folder)
        with open_executor(on if ready else None) as executor:
            failures |= _run(ready, stores, (Path(out), Path(results)), executor, device, tell)
        recorded = [trial.name for trial in ready if trial.name not in failures]
    swept = Swept(before, tuple(recorded), failures, tuple(trial.name for trial in different))
    tell(_summary(swept, to_do=len(ready) if dry_run else 0))
    return swept


def chosen_recipes(name: str, only: Iterable[str]) -> list[str]:
    """Return the recipes of a table: the rows of the paper or, with ``only``, all rows that match a pattern."""
    names = list(TABLES) if name.lower() == ALL else [name.lower()]
    recipes = list(dict.fromkeys(row.recipe for table in names for row in rows_of(table)))
    patterns = list(only)
    for pattern in patterns:
        if not any(fnmatchcase(recipe, pattern) for recipe in recipes):
            finding = f"matches no row of table {name}"
            raise UserError(Code.UNKNOWN_NAME, f"--only {pattern}", finding, _suggestion(name, pattern, recipes))
    if patterns:
        return [recipe for recipe in recipes if any(fnmatchcase(recipe, pattern) for pattern in patterns)]
    return list(dict.fromkeys(row.recipe for table in names for row in TABLES[table].rows))


def _suggestion(name: str, pattern: str, recipes: list[str]) -> str:
    """Suggest the pattern for a folder, the rows of a short table, or the most similar row of a long table."""
    folder = pattern.rstrip("/")
    if any(recipe.startswith(f"{folder}/") for recipe in recipes):
        return f"write --only '{folder}/*' for all recipes in {folder}"
    if len(recipes) <= LISTED_ROWS:
        return f"choose from {', '.join(recipes)}"
    similar = suggest(pattern, recipes)
    return f"list the rows with graftseg sweep {name} --dry-run" + (f" ({similar})" if similar else "")


def _load_recipes(
    names: Iterable[str], overrides: list[str], shorter: int, variant: str
) -> tuple[list[Recipe], dict[str, str]]:
    """Return the recipes with overrides applied, and errors by recipe. Raise if overrides fit none of the recipes."""
    for override in overrides:
        setting = override.partition("=")[0].partition(".")[0].strip()
        if setting in FIXED_SETTINGS:
            finding, remedy = f"{setting} identifies the row and cannot be changed", "choose other rows with --only"
            raise UserError(Code.OPTION_INVALID, f"--set {override}", finding, remedy)
    recipes: list[Recipe] = []
    errors: dict[str, UserError] = {}
    for name in names:
        try:
            recipes.append(requested_recipe(name, overrides, shorter))
        except UserError as error:
            errors[name] = error
            continue
        recording.check_variant(f"recipe {name}", recipes[-1], changes_of(recipes[-1]), variant)
    if errors and not recipes and (overrides or shorter > 1):
        raise next(iter(errors.values()))
    return recipes, {name: f"{error.finding} ({error.where})" for name, error in errors.items()}


def _trials(bases: Iterable[Recipe], out: Path, results: Path, seeds: int, variant: str) -> Iterator[Trial]:
    for base in bases:
        for seed in range(base.seed, base.seed + seeds):
            recipe = changed(base, [f"seed={seed}"])
            path = record_path(recipe, variant)
            yield Trial(recipe, RunFolder(out / path), results / path, variant)


def open_stores(data: Stores, needed: set[str]) -> dict[str, Store]:
    """Open the store of each needed data set. ``data`` may be a single path if only one data set is needed."""
    if isinstance(data, Mapping):
        paths = {name: Path(path) for name, path in data.items()}
    else:
        paths = dict.fromkeys(needed, Path(data)) if data is not None and len(needed) == 1 else {}
    if missing := sorted(needed - paths.keys()):
        wanted = " ".join(f"--data {name}=STORE" for name in sorted(needed))
        raise UserError(Code.STORE_MISSING, "--data", f"no store given for {' and '.join(missing)}", f"pass {wanted}")
    for name in sorted(needed):
        if not is_store(paths[name]):
            raise UserError(Code.STORE_MISSING, paths[name], "not a prepared store", _prepare_remedy(name))
    return {name: open_store(paths[name]) for name in needed}


def _prepare_remedy(benchmark: str) -> str:
    return f"pass a store made with graftseg prepare --benchmark {benchmark}"


def _problems(missing: Iterable[Trial], stores: Mapping[str, Store]) -> dict[str, UserError]:
    problems: dict[str, UserError] = {}
    for trial in missing:
        try:
            trial.check(stores.get(trial.benchmark))
        except UserError as error:
            problems[trial.name] = error
    return problems


def _run(
    trials: Sequence[Trial],
    stores: Mapping[str, Store],
    folders: tuple[Path, Path],
    executor: Executor,
    device: str,
    tell: Report,
) -> dict[str, str]:
    """Train, test and record trials in the folders of runs and of records; return the reason for each failure."""
    failures: dict[str, str] = {}
    states = [trial.state for trial in trials]
    chosen, (out, results) = executor.choose_device(device), folders
    work = Work("Training runs", tuple(store.path for store in stores.values()), (out,), chosen)
    with executor.running(partial(_train_and_test, stores, str(chosen)), trials, work) as finished:
        for number, (trial, state, wait) in enumerate(zip(trials, states, finished, strict=True), start=1):
            tell(f"{trial.name} ({number} of {len(trials)}): {state}")
            try:
                outcome = wait()
                if not isinstance(outcome, str):
                    recording.record_run(trial.run, None, variant=trial.variant, results=results)
            except Exception as error:
                outcome = _reason(error)
            if isinstance(outcome, str):
                failures[trial.name] = outcome
                tell(f"{trial.name}: failed: {outcome}")
            else:
                scores = (f"{METRIC_NAMES[key]} {format_value(outcome[key])}" for key in METRIC_NAMES)
                tell(f"{trial.name}: {', '.join(scores)}")
    return failures


def _train_and_test(stores: Mapping[str, Store], device: str, trial: Trial) -> dict[str, float] | str:
    """Train or finish a run, and save its label maps and scores. Return its metrics, or the reason for a failure."""
    store = stores[trial.benchmark]
    try:
        ensure_trained(trial.recipe, store, trial.run, device)
        return mean_metrics(run_scores(trial.run, store, device)[0])
    except Exception as error:
        return _reason(error)
    finally:
        if choose_device(device).type == "cuda":
            # free the compiled code and the cached memory of this trial
            torch.compiler.reset()
            gc.collect()
            torch.cuda.empty_cache()


def _reason(error: Exception) -> str:
    """Return the text of an error, as the reason for a failure. Re-raise a ``StoppedError``."""
    if isinstance(error, StoppedError):
        raise error
    if isinstance(error, UserError):
        return str(error)
    logger.exception("a row failed")
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _summary(swept: Swept, to_do: int) -> str:
    counts = {"recorded before": len(swept.before), "recorded now": len(swept.recorded)}
    counts |= {"to do": to_do, "failed": len(swept.failures)}
    if swept.other_settings:
        counts["recorded with other settings"] = len(swept.other_settings)
    return ", ".join(f"{count} {words}" for words, count in counts.items())
