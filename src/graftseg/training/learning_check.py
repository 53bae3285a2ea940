"""Check at the end of training that every class was learned, on the labeled scans, and that the loss fell."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import torch

from graftseg.core.errors import Code, UserError, in_one_line
from graftseg.core.run_folder import RunFolder, ensemble_members, read_log
from graftseg.data.batches import training_cases
from graftseg.data.store import Store, StoredCase
from graftseg.methods import Method
from graftseg.networks.layers import eval_mode
from graftseg.recipes.recipe import Recipe
from graftseg.training.selection import CaseScores
from graftseg.training.step import autocast, effective_precision, uncompiled

MAX_SCANS = 8
"""Maximum number of labeled scans that are scored."""
LOST = 0.05
"""A class with a lower mean Dice on the labeled scans was not learned."""
FLAT = 0.95
"""A loss that ends above this fraction of its start did not fall."""
REMEDY = "train for more steps (graftseg plan --minutes), or check the labels with graftseg check"
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LearningWarning:
    """A warning about the result of training, and what to do. Warnings of older versions have no remedy."""

    finding: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.finding}; {self.remedy}" if self.remedy else self.finding


def warnings_in(facts: Mapping[str, Any]) -> list[LearningWarning]:
    """Return the warnings in the manifest of a run. Older versions wrote sentences."""
    entries = facts.get("warnings") or ()
    return [LearningWarning(**entry) if isinstance(entry, dict) else LearningWarning(entry) for entry in entries]


def warnings_of(run: RunFolder) -> tuple[str, ...]:
    """Return the warnings of a run as sentences."""
    return tuple(map(str, warnings_in(run.manifest())))


@torch.inference_mode()
def class_dice(
    recipe: Recipe,
    store: Store,
    method: Method,
    cases: Sequence[StoredCase],
    device: torch.device,
    *,
    present_only: bool = False,
) -> dict[str, float]:
    """Return the mean Dice of every class on prepared scans, by the name of the class.

    With ``present_only``, each mean is over the scans that contain the class, and a class in no scan is left out.
    """
    precision = effective_precision(recipe.loop.precision, type(method), device)
    with eval_mode(method), uncompiled(), autocast(precision, device):
        scores = CaseScores(recipe, store, cases, device, present_only=present_only)(method)
    del scores["dice"]
    return {name.removeprefix("dice "): value for name, value in scores.items() if not math.isnan(value)}


def labeled_dice(recipe: Recipe, store: Store, method: Method, device: torch.device) -> dict[str, float]:
    """Return the mean Dice of every class on the first labeled scans that contain it, by the name of the class."""
    labeled = training_cases(store, recipe.batches).labeled[:MAX_SCANS]
    return class_dice(recipe, store, method, labeled, device, present_only=True)


def learning_warnings(dice: Mapping[str, float], log: Sequence[Mapping[str, Any]]) -> list[LearningWarning]:
    """Return warnings about classes that were not learned, and about a loss that did not fall in the first stage."""
    found = []
    if lost := [f"{name} ({100 * value:.1f} %)" for name, value in dice.items() if value < LOST]:
        classes = f"{'class' if len(lost) == 1 else 'classes'} {', '.join(lost)}"
        found.append(LearningWarning(f"{classes} not learned, by mean Dice on the labeled scans", REMEDY))
    totals = [line["total"] for line in log if line.get("stage") == 0 and "total" in line]
    tenth = max(1, len(totals) // 10)
    start, end = fmean(totals[:tenth] or [0.0]), fmean(totals[-tenth:] or [0.0])
    if len(totals) > 1 and end > FLAT * start:
        finding = f"the loss did not fall ({start:.3g} at the start, {end:.3g} at the end)"
        found.append(LearningWarning(finding, "use a lower learning rate"))
    return found


def check_learned(
    recipe: Recipe, store: Store, method: Method, run: RunFolder, device: torch.device
) -> tuple[str, ...]:
    """Score a network on the labeled scans. Record scores and warnings in ``run.json``, and log the warnings."""
    dice = labeled_dice(recipe, store, method, device)
    # the loss of a continued network is low from the start
    log = [] if "continued_from" in run.manifest() else read_log(run.log_file)
    warnings = learning_warnings(dice, log)
    run.update_manifest({"labeled_dice": dice, "warnings": [asdict(warning) for warning in warnings]})
    for warning in warnings:
        logger.warning("%s: %s", in_one_line(str(run.path)), warning)
    return tuple(map(str, warnings))


def require_learned(runs: Iterable[RunFolder]) -> None:
    """Raise a UserError for the first warning of finished runs, of their folds, or of their baselines."""
    for run in runs:
        baselines = [run.baseline] if run.baseline.exists or run.baseline.folds_file.is_file() else []
        for member in (one for folder in (run, *baselines) for one in ensemble_members(folder)):
            for warning in warnings_in(member.manifest()):
                raise UserError(Code.CLASS_NOT_LEARNED, member.path, warning.finding, warning.remedy or REMEDY)
