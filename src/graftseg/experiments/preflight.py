"""What would keep trials from being trained or recorded, found before anything is trained."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import LOG_REMEDY, complete_log
from graftseg.data.batches import training_cases
from graftseg.data.benchmarks import classes_of
from graftseg.data.store import Store
from graftseg.evaluation.scores import Evaluation
from graftseg.experiments.records import Record, Scored, check_siblings, refuse_other_data, refuse_place, refuse_run
from graftseg.experiments.scores_ahead import scores_ahead
from graftseg.experiments.stores import Stores, stores_of
from graftseg.experiments.train_and_test import PROTOCOL, known_run
from graftseg.experiments.trials import Trial
from graftseg.inference.model import check_weights
from graftseg.recipes.recipe import differences, first_few, load_recipe

Tell = Callable[[str], None]


def foreseen(trials: Iterable[Trial], data: Stores, variant: str, tell: Tell) -> dict[str, str]:
    """Tell what there is of each trial; returned is why some would fail."""
    trials = list(trials)
    missing = [trial for trial in trials if not trial.is_recorded]
    needed = {trial.benchmark for trial in missing}
    # without any store, what is recorded and what is missing can still be told
    stores = {} if data is None else stores_of(data, needed)
    ahead, untestable = known_ahead(missing, stores)
    found = {trial.name: _why_not(trial, stores, ahead, variant) for trial in missing} | untestable
    failures = {name: why for name, why in found.items() if why}
    for trial in trials:
        why, state = failures.get(trial.name), trial.state
        tell(f"{trial.name}: {state}" + (f", but would fail: {why}" if why and why not in state else ""))
    return failures


def refuse_misfits(missing: Sequence[Trial], stores: Mapping[str, Store]) -> None:
    """Refuse a store of other classes, or prepared otherwise than every row asks for that is to be trained on it."""
    for name, store in sorted(stores.items()):
        rows = [trial for trial in missing if trial.benchmark == name]
        found = [store.settings_difference(trial.recipe.data.model_dump(mode="json")) for trial in rows]
        remedy = f"name one that was made with graftseg prepare --benchmark {name}"
        if found and (other := _other_classes(name, store)):
            raise UserError(Code.STORE_MISMATCH, store.path, other, remedy)
        if found and all(found):
            finding = f"{_another(name, store)} or was prepared otherwise ({found[0]})"
            raise UserError(Code.STORE_MISMATCH, store.path, finding, remedy)


def _another(wanted: str, store: Store) -> str:
    _, *classes = store.classes
    return f"the rows want the data set {wanted}, and this store of {', '.join(classes)} is another"


def _other_classes(name: str, store: Store) -> str:
    """Why a store is not of a data set by its classes, in words; empty where they are the same."""
    expected = classes_of(name)[1:]
    if not expected or store.classes[1:] == expected:
        return ""
    return _another(f"{name} of {', '.join(expected)}", store)


def unlike_others(missing: Iterable[Trial], stores: Mapping[str, Store], variant: str) -> dict[str, str]:
    """Why what trials would leave could not be tested, or recorded beside other seeds, by their names."""
    missing = list(missing)
    ahead, untestable = known_ahead(missing, stores)
    found = {
        trial.name: _unlike(trial, stores[trial.benchmark], ahead.get(trial.benchmark), variant) for trial in missing
    }
    return {name: why for name, why in (found | untestable).items() if why}


def known_ahead(missing: Sequence[Trial], stores: Mapping[str, Store]) -> tuple[dict[str, Evaluation], dict[str, str]]:
    """What is known of the scores on the stores that something is still to be trained on, by data set.

    Also returned is why trials could not be tested on their store, by their names; it is raised where that is so of
    all of them.
    """
    untrained = [trial for trial in missing if not trial.is_trained and trial.benchmark in stores]
    ahead: dict[str, Evaluation] = {}
    errors: dict[str, UserError] = {}
    for name in sorted({trial.benchmark for trial in untrained}):
        try:
            ahead[name] = scores_ahead(stores[name], PROTOCOL)
        except UserError as error:
            errors[name] = error
    found = {trial.name: errors[trial.benchmark] for trial in untrained if trial.benchmark in errors}
    if errors and len(found) == len(missing):
        raise next(iter(errors.values()))
    return ahead, {name: f"{error.where}: {error.finding}; {error.remedy}" for name, error in found.items()}


def _why_not(trial: Trial, stores: Mapping[str, Store], ahead: Mapping[str, Evaluation], variant: str) -> str:
    """Why a trial would fail, in words; empty where nothing is known that would keep it from its record."""
    if trial.is_lost:
        return f"its run is not in {trial.run.path}"
    if why := _damage(trial, stores.get(trial.benchmark)):
        return why
    if why := _unlike_settings(trial, variant) or _otherwise(trial):
        return why
    if (store := stores.get(trial.benchmark)) is None:
        return ""
    if why := _mismatch(trial, store):
        return f"{store.path}: {why}"
    return _unlike(trial, store, ahead.get(trial.benchmark), variant)


def refuse_target(trial: Trial, dry_run: bool) -> None:
    """Refuse what would keep a trial from being recorded, before anything is trained."""
    refuse_run(trial.record, trial.run.path)
    if trial.is_recorded:
        return
    refuse_place(trial.record)
    if trial.is_lost and not dry_run:
        finding = f"the record is damaged ({trial.damage}), and its run is not in {trial.run.path}"
        raise UserError(Code.STORE_MISMATCH, trial.record, finding, "restore the record, or remove it to train anew")


def _mismatch(trial: Trial, store: Store) -> str:
    """Why a trial cannot be trained on a store, in words; empty where it can."""
    if other := _other_classes(trial.benchmark, store):
        return other
    if other := store.settings_difference(trial.recipe.data.model_dump(mode="json")):
        return f"the store was prepared otherwise than recipe {trial.recipe.name} asks for ({other})"
    try:
        begun = trial.run.training_manifest()["store"]["identity"] if trial.run.exists else store.identity
    except UserError:
        # the state of the trial says so
        return ""
    if begun != store.identity:
        return "the store is not the one that the run began with"
    try:
        training_cases(store, trial.recipe.batches)
    except UserError as error:
        return error.finding
    return ""


def _damage(trial: Trial, store: Store | None) -> str:
    """What is wrong with the run that a trial has, in words, where that keeps it from its record."""
    run = trial.run
    try:
        facts = run.training_manifest() if run.exists else {}
        if run.exists:
            load_recipe(run.recipe_file)
        if facts.get("status") == "finished":
            complete_log(run.log_file, facts.get("steps"), LOG_REMEDY)
            if store is not None and run.weights_file.is_file() and known_run(run, store) is None:
                check_weights(run.weights_file, facts.get("weights"))
    except UserError as error:
        return f"{error.where}: {error.finding}; {error.remedy}"
    return ""


def _otherwise(trial: Trial) -> str:
    """Why what a trial has begun is not of its settings, in words."""
    try:
        before = load_recipe(trial.run.recipe_file) if trial.run.exists else trial.recipe
    except UserError:
        # the run itself is refused later on, with a sentence that fits
        return ""
    other = differences(before, trial.recipe)
    return f"its run was begun with other settings ({first_few(other)}); name another --variant" if other else ""


def _unlike(trial: Trial, store: Store, ahead: Evaluation | None, variant: str) -> str:
    """Why what a trial would leave cannot stand beside the records of other seeds, in words."""
    if (why := _unlike_settings(trial, variant)) or ahead is None:
        return why
    new = Record(
        trial.recipe.name,
        trial.recipe.seed,
        variant,
        Scored(ahead, "", store.test_identity),
        None,
        None,
        "this store",
        store.identity,
    )
    try:
        refuse_other_data(new, trial.record)
    except UserError as error:
        finding = f"what is trained on it could not be recorded beside other seeds ({error.finding})"
        return f"{store.path}: {finding}; name another --variant, or the store of those seeds"
    return ""


def _unlike_settings(trial: Trial, variant: str) -> str:
    try:
        check_siblings(trial.record, trial.recipe, variant)
    except UserError as error:
        return f"{error.finding}; {error.remedy}"
    return ""
