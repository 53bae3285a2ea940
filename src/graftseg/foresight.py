"""What would keep trials from being trained or recorded, found before anything is trained."""

from collections.abc import Callable, Iterable

from graftseg.data.store import Store
from graftseg.errors import UserError
from graftseg.paper import benchmark_of
from graftseg.recipe import differences, first_few, load_recipe
from graftseg.record_targets import refuse_place, refuse_run
from graftseg.records import check_siblings
from graftseg.table_stores import Stores, named, stores_of
from graftseg.table_trials import Trial

Tell = Callable[[str], None]


def foreseen(trials: Iterable[Trial], data: Stores, variant: str, tell: Tell) -> dict[str, str]:
    """Tell what there is of each trial; returned is why some would fail."""
    trials = list(trials)
    needed = {benchmark_of(trial.recipe.name) for trial in trials if not trial.is_recorded}
    stores = stores_of(data, needed & named(data, needed).keys())
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


def refuse_target(trial: Trial, dry_run: bool) -> None:
    """Refuse what would keep a trial from being recorded, before anything is trained."""
    refuse_run(trial.record, trial.run.path)
    if trial.is_recorded:
        return
    refuse_place(trial.record)
    if trial.is_lost and not dry_run:
        finding = f"the record is damaged ({trial.damage}), and its run is not in {trial.run.path}"
        raise UserError(trial.record, finding, "restore the record, or remove it to train anew")


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
