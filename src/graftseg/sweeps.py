"""The rows of a table, one after the other: train, predict, evaluate, record; what is done is passed over."""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from graftseg import api
from graftseg.data.store import Store, is_store, open_store
from graftseg.environment import choose_device
from graftseg.errors import StoppedError, UserError
from graftseg.figures import FIGURES, figures_of, written
from graftseg.files import make_folder
from graftseg.paper import ALL, TABLES, benchmark_of
from graftseg.recipe import Recipe, changed, differences, first_few, load_recipe
from graftseg.record_targets import refuse_place, refuse_run
from graftseg.records import NAME, changes_of, check_siblings, check_variant, differing, place, read_record
from graftseg.runs import RunFolder
from graftseg.shortening import asked_for, check_shorter
from graftseg.tables import rows_of
from graftseg.trials import tested_run, trained_run

logger = logging.getLogger(__name__)
MOST_SEEDS = 100
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Trial:
    """One seed of one row: its recipe, with the seed in it, and where its run and its record lie."""

    recipe: Recipe
    run: RunFolder
    record: Path

    @property
    def name(self) -> str:
        """Recipe, seed and variant, in words."""
        found = NAME.fullmatch(self.record.name)
        variant = found.group(2) if found else None
        return f"{self.recipe.name}, seed {self.recipe.seed}" + (f", {variant}" if variant else "")

    @property
    def is_recorded(self) -> bool:
        """Whether its record is there, whole."""
        return (self.record / "run.json").is_file() and not self.damage

    @cached_property
    def damage(self) -> str:
        """What is wrong with its record, in words; empty where there is none, or only what a recording left."""
        if not (self.record / "run.json").is_file():
            return ""
        try:
            read_record(self.record, self.recipe.name)
            load_recipe(self.record / "recipe.yaml")
        except UserError as error:
            return f"{Path(error.where).name}: {error.finding}"
        return ""

    @property
    def state(self) -> str:
        """What there is of it, in words."""
        if self.is_recorded:
            return "recorded" + (f" with other settings ({', '.join(self.changes)})" if self.changes else "")
        before = f"record damaged ({self.damage}), " if self.damage else ""
        return before + self._progress

    @property
    def _progress(self) -> str:
        """How far its run is, in words."""
        if not self.run.exists:
            return "to be trained"
        try:
            finished = self.run.manifest().get("status") == "finished"
        except UserError as error:
            return str(error)
        return "trained, to be tested and recorded" if finished else "begun, to go on"

    @property
    def changes(self) -> list[str]:
        """Settings in which its record differs from what would be trained now."""
        return differing(load_recipe(self.record / "recipe.yaml"), self.recipe)

    @property
    def is_lost(self) -> bool:
        """Whether its record is damaged and its run is gone: another training would end with other weights."""
        return bool(self.damage) and not self.run.exists


@dataclass(frozen=True)
class Swept:
    """What a sweep did: names of the trials that were recorded before and now, and why each of the others failed.

    ``otherwise`` are those whose record is of other settings, which nothing was done for.
    """

    before: tuple[str, ...]
    recorded: tuple[str, ...]
    failures: dict[str, str]
    otherwise: tuple[str, ...] = ()


def sweep(
    name: str,
    data: str | Path | Mapping[str, str | Path] | None = None,
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
    tell: Tell = logger.info,
) -> Swept:
    """Run what is missing of a table, or of ``all``: each row with its seed and the ``seeds`` - 1 after it.

    ``data`` is a prepared store, or stores by the name of their data set. Runs lie below ``out`` as their records do
    below ``results``. ``only`` takes names of recipes, or patterns of them, also of those that the paper has no row
    for. ``shorter`` divides the lengths of every row, see ``graftseg.shortening``. A row that fails is told and the
    others go on; a ``StoppedError`` ends the sweep, and the same call goes on.
    """
    on_gpu = choose_device(device).type == "cuda"
    failures: dict[str, str] = {}
    check_shorter(shorter)
    if seeds > MOST_SEEDS:
        raise UserError(f"--seeds {seeds}", f"more than {MOST_SEEDS} seeds of each row", "name fewer")
    bases = _bases(_chosen(name, only), list(overrides), shorter, variant, failures)
    trials = list(_trials(bases, Path(out), Path(results), seeds, variant))
    missing = [trial for trial in trials if not trial.is_recorded]
    for trial in trials:
        _refuse_target(trial, dry_run)
    others = [trial for trial in trials if trial.is_recorded and trial.changes]
    before = tuple(trial.name for trial in trials if trial.is_recorded and not trial.changes)
    for one, why in failures.items():
        tell(f"{one}: failed: {why}")
    recorded: list[str] = []
    if dry_run:
        failures |= _foreseen(trials, data, variant, tell)
    else:
        for trial in others:
            tell(f"{trial.name}: {trial.state}; name another --variant, or remove {trial.record}")
        stores = _stores(data, {benchmark_of(trial.recipe.name) for trial in missing})
        for folder in (Path(out), Path(results)) if missing else ():
            make_folder(folder)
        for index, trial in enumerate(missing):
            tell(f"{trial.name} ({index + 1} of {len(missing)}): {trial.state}")
            store = stores[benchmark_of(trial.recipe.name)]
            if _succeeds(trial, store, Path(results), variant, device, tell, failures):
                recorded.append(trial.name)
            if on_gpu:
                _forget()
    swept = Swept(before, tuple(recorded), failures, tuple(trial.name for trial in others))
    tell(_told(swept, left=len([trial for trial in missing if trial.name not in failures]) if dry_run else 0))
    return swept


def _foreseen(
    trials: Iterable[Trial], data: str | Path | Mapping[str, str | Path] | None, variant: str, tell: Tell
) -> dict[str, str]:
    """Tell what there is of each trial; returned is why some would fail."""
    trials = list(trials)
    needed = {benchmark_of(trial.recipe.name) for trial in trials if not trial.is_recorded}
    stores = _stores(data, needed & _named(data, needed).keys())
    failures: dict[str, str] = {}
    for trial in trials:
        store = None if trial.is_recorded else stores.get(benchmark_of(trial.recipe.name))
        if trial.is_lost:
            failures[trial.name] = f"its run is not in {trial.run.path}"
        elif not trial.is_recorded and (why := _otherwise(trial, variant)):
            failures[trial.name] = why
        elif store is not None and (why := _mismatch(trial, store)):
            failures[trial.name] = f"{store.path}: {why}"
        words = f", but would fail: {failures[trial.name]}" if trial.name in failures else ""
        tell(f"{trial.name}: {trial.state}{words}")
    return failures


def _mismatch(trial: Trial, store: Store) -> str:
    """Why a trial cannot be trained on a store, in words; empty where it can."""
    if other := store.other_settings(trial.recipe.data.model_dump(mode="json")):
        return f"the store was prepared otherwise than recipe {trial.recipe.name} asks for ({other})"
    try:
        begun = trial.run.begun()["store"]["identity"] if trial.run.exists else store.identity
    except UserError:
        # the state of the trial says so
        return ""
    return "" if begun == store.identity else "the store is not the one that the run began with"


def _otherwise(trial: Trial, variant: str) -> str:
    """Why what a trial has begun, or what stands beside its record, is not of its settings, in words."""
    try:
        check_siblings(trial.record, trial.recipe, variant)
    except UserError as error:
        return f"{error.finding}; {error.remedy}"
    try:
        before = load_recipe(trial.run.recipe_file) if trial.run.exists else trial.recipe
    except UserError:
        # the run itself is refused later on, with a sentence that fits
        return ""
    other = differences(before, trial.recipe)
    return f"its run was begun with other settings ({first_few(other)}); name another --variant" if other else ""


def _chosen(name: str, only: Iterable[str]) -> list[str]:
    """Recipes of a table, each once: the paper's rows, or those that are asked for."""
    names = list(TABLES) if name == ALL else [name]
    known = list(dict.fromkeys(row.recipe for one in names for row in rows_of(one)))
    patterns = list(only)
    for pattern in patterns:
        if not any(fnmatchcase(recipe, pattern) for recipe in known):
            raise UserError(f"--only {pattern}", f"no row of table {name}", f"choose among {', '.join(known)}")
    if patterns:
        return [recipe for recipe in known if any(fnmatchcase(recipe, pattern) for pattern in patterns)]
    return list(dict.fromkeys(row.recipe for one in names for row in TABLES[one].rows))


def _bases(
    recipes: Iterable[str], overrides: list[str], shorter: int, variant: str, failures: dict[str, str]
) -> list[Recipe]:
    """The recipes with these overrides; one that cannot be had is a failure, and overrides for none are refused."""
    bases: list[Recipe] = []
    errors: list[UserError] = []
    for name in recipes:
        try:
            bases.append(asked_for(name, overrides, shorter))
        except UserError as error:
            errors.append(error)
            failures[name] = f"{error.finding} ({error.where})"
            continue
        check_variant(f"recipe {name}", bases[-1], changes_of(bases[-1]), variant)
    if errors and not bases and errors[0].where.startswith("--shorter"):
        raise errors[0]
    if overrides and not bases and len({error.finding for error in errors}) == 1:
        given = " ".join(f"--set {one}" for one in overrides)
        rows = f", in every one of the {len(errors)} rows" if len(errors) > 1 else ""
        raise UserError(given, errors[0].finding + rows, "correct the setting")
    return bases


def _trials(bases: Iterable[Recipe], out: Path, results: Path, seeds: int, variant: str) -> Iterator[Trial]:
    """All seeds of all recipes."""
    for base in bases:
        for seed in range(base.seed, base.seed + seeds):
            recipe = changed(base, [f"seed={seed}"])
            where = place(recipe, variant)
            yield Trial(recipe, RunFolder(out / where), results / where)


def _refuse_target(trial: Trial, dry_run: bool) -> None:
    """Refuse what would keep a trial from being recorded, before anything is trained."""
    refuse_run(trial.record, trial.run.path)
    if trial.is_recorded:
        return
    refuse_place(trial.record)
    if trial.is_lost and not dry_run:
        finding = f"the record is damaged ({trial.damage}), and its run is not in {trial.run.path}"
        raise UserError(trial.record, finding, "restore the record, or remove it to train anew")


def _stores(data: str | Path | Mapping[str, str | Path] | None, needed: set[str]) -> dict[str, Store]:
    """The store of each data set that is needed."""
    given = _named(data, needed)
    if missing := sorted(needed - given.keys()):
        finding = f"the rows need {len(needed)} data set{'s' if len(needed) > 1 else ''}, and the store of "
        wanted = " ".join(f"--data {name}=STORE" for name in sorted(needed))
        raise UserError("--data", f"{finding}{' and '.join(missing)} is not named", f"name it: {wanted}")
    for name in sorted(needed):
        if not is_store(given[name]):
            raise UserError(given[name], "not a prepared store", f"make it with graftseg prepare --benchmark {name}")
    return {name: open_store(given[name]) for name in needed}


def _named(data: str | Path | Mapping[str, str | Path] | None, needed: set[str]) -> dict[str, Path]:
    """Stores by the name of their data set; one without a name is that of the only data set that is needed."""
    if isinstance(data, Mapping):
        return {name: Path(path) for name, path in data.items()}
    return dict.fromkeys(needed, Path(data)) if data is not None and len(needed) == 1 else {}


def _succeeds(
    trial: Trial, store: Store, results: Path, variant: str, device: str, tell: Tell, failures: dict[str, str]
) -> bool:
    """Take a trial to its record and tell what it reached, or why it did not."""
    try:
        check_siblings(trial.record, trial.recipe, variant)
        trained_run(trial.recipe, store, trial.run, device)
        figures = figures_of(tested_run(trial.run, store, device).reported)
        api.record(trial.run.path, results=results, variant=variant)
    except StoppedError:
        raise
    except Exception as error:
        failures[trial.name] = _reason(error)
        tell(f"{trial.name}: failed: {failures[trial.name]}")
        return False
    tell(f"{trial.name}: " + ", ".join(f"{FIGURES[key]} {written(figures[key])}" for key in FIGURES))
    return True


def _reason(error: Exception) -> str:
    """Why a row failed; what no user can have done is told in full."""
    if isinstance(error, UserError):
        return str(error)
    logger.error("a row failed", exc_info=error)
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _forget() -> None:
    """Give back what a training left on the GPU: compiled code, of which there may only be so much, and memory."""
    import torch

    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


def _told(swept: Swept, left: int) -> str:
    counts = {
        "recorded before": len(swept.before),
        "recorded now": len(swept.recorded),
        "to do": left,
        "failed": len(swept.failures),
    }
    others = {"recorded with other settings": len(swept.otherwise)} if swept.otherwise else {}
    return ", ".join(f"{count} {words}" for words, count in (counts | others).items())
