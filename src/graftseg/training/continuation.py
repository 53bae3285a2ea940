"""Continue a finished run after labels were added to its data."""

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.names import nfc
from graftseg.core.run_folder import FOLDS, METHODS, SEEDS, SINGLE_RUN, RunFolder
from graftseg.core.types import Case
from graftseg.data.dataset import Dataset
from graftseg.data.labeled_roles import divide_labeled
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import unchanged
from graftseg.data.sources import Data, Sources, as_data
from graftseg.data.store import Store, StoredCase, find_store, is_store, open_store
from graftseg.evaluation.testset import LABELS as TEST_LABELS
from graftseg.inference.ensemble import folder_of_network
from graftseg.ops.optimizers import Constant, Poly
from graftseg.recipes.baseline import baseline_of, uses_unlabeled
from graftseg.recipes.recipe import Recipe, changed, load_recipe, parse_recipe
from graftseg.recipes.shortening import part_of
from graftseg.training.gain import Gain, cases_to_score, measure_gain
from graftseg.training.loop import Outcome
from graftseg.training.run import train_run
from graftseg.training.shipping import check_networks
from graftseg.training.warm_start import WarmStart

FRACTION = 0.25
"""Default share of the steps of a complete training. ``docs/how-to/continue-training.md`` has the measurements."""
SUFFIX = "-continued"
"""End of the recipe's name, so that records of continued runs are not mistaken for records of the recipe."""
DATA_REMEDY = "pass the data as --data"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Continued:
    """The result of a continued training: its outcome, the cases with new labels, and the gain if it was measured."""

    outcome: Outcome
    new_labels: tuple[str, ...]
    gain: Gain | None


def continue_training(
    run: str | Path,
    out: str | Path,
    *,
    data: str | Path | Sources | None = None,
    fraction: float | None = None,
    overrides: Iterable[str] = (),
    resume: bool = False,
    device: str = "auto",
) -> Continued:
    """Train the network of a finished run further, into a new run, after label maps were added to its data.

    ``data`` is by default the data folder of the run. ``fraction`` is the share of the steps of a complete training, by
    default 0.25. ``overrides`` change the settings of the new run. The gain is measured on test scans with labels, or
    on the held-out scans if the run is a fold. Raise a UserError if no label was added.
    """
    source, target, chosen = _finished(RunFolder(Path(run))), RunFolder(Path(out)), choose_device(device)
    target.check_target(SINGLE_RUN, resume=resume)
    given = None if data is None else as_data(data)
    if target.exists:
        start, recipe, given = _resumed(source, target, fraction, list(overrides), given)
    else:
        given = _recorded_data(source) if given is None else given
        start, recipe = _new(source, given, FRACTION if fraction is None else fraction, list(overrides))
    outcome = train_run(recipe, given, target, chosen, resume=target.exists, start=start)
    if outcome.stopped_by is not None:
        raise StoppedError(outcome.stopped_by, outcome.steps)
    known = target.manifest().get("gain")
    gain = _gain(start, target, recipe, given, chosen) if known is None else Gain(**known)
    if gain is None or gain.after is None:
        _warn_if_implausible(recipe, start, target, chosen)
    return Continued(outcome, start.new_labels, gain)


def _warn_if_implausible(recipe: Recipe, start: WarmStart, target: RunFolder, device: torch.device) -> None:
    """Log a warning if the new network makes clearly more implausible predictions than the earlier network."""
    check = check_networks(recipe, open_store(find_store(target)), target, start.network, device)
    if check is not None and check.prefers_other:
        logger.warning("%s: keep the earlier run, because %s", target.path, check.sentence("the earlier network"))


def _gain(start: WarmStart, target: RunFolder, recipe: Recipe, data: Data, device: torch.device) -> Gain | None:
    """Measure the gain and save it in ``run.json``. Log a warning and return None if a scan cannot be scored."""
    try:
        cases = cases_to_score(_test_dataset(data), open_store(find_store(target)), recipe, start.new_labels)
        gain = measure_gain(start.network, target, *cases, device=device)
    except UserError as error:
        logger.warning("%s: the gain was not measured (%s)", target.path, error)
        return None
    target.update_manifest({"gain": gain.to_json()})
    return gain


def _test_dataset(data: Data) -> Dataset | None:
    """Return the data set of a folder, or of the folder that a store was made from if this folder has test labels."""
    if not is_store(data):
        return read_layout(data)
    root = Path(open_store(data).root)
    return read_layout(root) if (root / TEST_LABELS).is_dir() else None


def _finished(run: RunFolder) -> RunFolder:
    """Return a finished single run. Otherwise raise a UserError that says which run to choose."""
    content = run.content
    if content in (FOLDS, SEEDS, METHODS):
        final = run.path / "final"
        remedy = {
            FOLDS: f"choose one fold, such as {run.fold(0).path}, or train once on all labels with --folds 0",
            SEEDS: f"choose one seed, such as {run.seed(next(iter(run.seeds), 0)).path}",
            METHODS: f"train the best method on all labels and choose this run, such as {final}",
        }[content]
        raise UserError(Code.NOT_A_RUN, run.path, f"the folder contains {content}, not {SINGLE_RUN}", remedy)
    if run.manifest().get("status") != "finished":
        remedy = "finish it with train --resume, or choose a finished run"
        raise UserError(Code.RUN_UNFINISHED, run.path, f"the run to continue is {run.status}", remedy)
    return run


def _recorded_data(run: RunFolder) -> Path:
    """Return the data folder that the store of a run was made from."""
    root = Path(open_store(find_store(run, DATA_REMEDY)).root)
    if not root.is_dir():
        raise UserError(Code.FOLDER_MISSING, root, "the data folder of the run does not exist", DATA_REMEDY)
    try:
        read_layout(root)
    except UserError as error:
        if error.code is not Code.LAYOUT_UNKNOWN:
            raise
        finding = "the run was trained on separate folders, whose names are not recorded"
        remedy = "pass them again as --labeled-images, --labels and --unlabeled"
        raise UserError(Code.LAYOUT_UNKNOWN, root, finding, remedy) from None
    return root


def _resumed(
    source: RunFolder, target: RunFolder, fraction: float | None, overrides: list[str], data: Data | None
) -> tuple[WarmStart, Recipe, Data]:
    """Return start, recipe and data of a stopped continued run. Labels that were added after its start are not used."""
    known = target.manifest().get("continued_from", {})
    start = _start(source, known.get("fraction", 0.0), known.get("new_labels", ()))
    if known.get("weights") != start.weights_sha256 or fraction not in (None, start.fraction):
        finding = "the run was started from another run, or with another --fraction"
        raise UserError(Code.RUN_MISMATCH, target.path, finding, "repeat the first command, or pass another --out")
    given = find_store(target) if data is None else data
    return start, changed(load_recipe(target.recipe_file), overrides), given


def _new(source: RunFolder, data: Data, fraction: float, overrides: list[str]) -> tuple[WarmStart, Recipe]:
    """Return start and recipe of a new continued run."""
    if not 0 < fraction <= 1:
        finding = "must be above 0 and at most 1"
        raise UserError(Code.OPTION_INVALID, f"--fraction {fraction:g}", finding, "pass a number such as 0.25")
    full = load_recipe(source.recipe_file)
    content: Store | Dataset = open_store(data) if is_store(data) else read_layout(data)
    # a run that was itself continued has only a fraction of the steps of a complete training
    before = source.manifest().get("continued_from", {}).get("fraction", 1.0)
    recipe = continued_recipe(full, fraction / before, has_unlabeled=bool(content.of("unlabeled")))
    recipe = changed(recipe, overrides)
    return _start(source, fraction, _new_labels(source, content, recipe)), recipe


def continued_recipe(recipe: Recipe, fraction: float, *, has_unlabeled: bool) -> Recipe:
    """Return the recipe of a continued run: all stages with a ``fraction`` of their steps.

    The learning rate starts again at its first value, and decays in the last stage even if it was constant. Without
    unlabeled scans, the recipe is supervised.
    """
    full = recipe if has_unlabeled or not uses_unlabeled(recipe) else baseline_of(recipe)
    tree = part_of(full, fraction).model_dump(mode="json")
    optimizer = tree["stages"][-1]["optimizer"]
    if optimizer["schedule"]["name"] == Constant().name:
        optimizer["schedule"] = Poly().model_dump(mode="json")
    name = recipe.name.removesuffix(SUFFIX)
    tree |= {"name": f"{name}{SUFFIX}", "about": f"continued training of {name}"}
    tree |= {"baseline": False, "folds": None, "published": None}
    return parse_recipe(tree, f"recipe {recipe.name}")


def _start(run: RunFolder, fraction: float, new_labels: Iterable[str]) -> WarmStart:
    network, _ = folder_of_network(run, "shipped", None)
    return WarmStart(run, network, _store_of(run), fraction, tuple(new_labels))


def _store_of(run: RunFolder) -> Path | None:
    """Return the store of a run, or None if it no longer exists."""
    try:
        return find_store(run)
    except UserError:
        return None


def _new_labels(source: RunFolder, data: Store | Dataset, recipe: Recipe) -> list[str]:
    """Return the training cases whose label is new or was changed since a run. Raise a UserError if there are none."""
    where = data.path if isinstance(data, Store) else data.root
    labeled: tuple[Case | StoredCase, ...] = data.of("labeled")
    roles = divide_labeled(where, labeled, *recipe.batches.role_limits)
    if roles.hidden:
        finding = f"batches.labeled_cases is {recipe.batches.labeled_cases}, so not all labels would be used"
        raise UserError(Code.RECIPE_MISMATCH, where, finding, "add --set batches.labeled_cases=null")
    known = {nfc(name) for name in source.training_manifest()["store"].get("labeled", ())}
    store = _store_of(source)
    stored = {} if store is None else {nfc(case.name): case for case in open_store(store).cases}
    found = [
        case.name
        for case in roles.labeled
        if nfc(case.name) not in known or _has_other_label(data, case, stored.get(nfc(case.name)))
    ]
    if not found:
        finding = f"no label was added or changed since {source.path} was trained with {len(known)} labels"
        raise UserError(Code.TOO_FEW_CASES, where, finding, "label more scans, such as the first ones of graftseg rank")
    return found


def _has_other_label(data: Store | Dataset, case: Case | StoredCase, before: StoredCase | None) -> bool:
    """Return whether the label map of a case differs from the label map in an earlier store."""
    if before is None or before.label is None or case.label is None:
        return False
    if isinstance(case, StoredCase):
        return case.sha256[str(case.label)] != before.sha256[before.label]
    root = data.root if isinstance(data, Dataset) else Path()
    source = before.sources.get(os.path.relpath(case.label, root))
    return source is None or not unchanged(case.label, source)
