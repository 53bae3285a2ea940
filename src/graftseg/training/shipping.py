"""The choice of the network that a run ships.

With held-out labels, the better of run and supervised baseline is shipped. Without held-out labels, the baseline is
shipped if self-training was skipped or stopped, or if the baseline makes clearly fewer implausible predictions.
Otherwise the network of the run is shipped, or its average with the baseline if the recipe asks for an average.
"""

import torch

from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.data.store import Store
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.table_metrics import mean_metrics
from graftseg.recipes.recipe import Recipe
from graftseg.training.average import average_with_baseline
from graftseg.training.final_check import check_networks

ABANDONED = {
    "skip": "too few predictions of the unlabeled scans were plausible for self-training",
    "stop": "self-training was stopped, because a class drifted",
}
"""Reasons to ship the baseline, by the last decision of the teacher check."""
NO_PREFERENCE = (
    "so both networks are supervised, and no labels were held out during training that could show which is better"
)
BENEFIT_UNKNOWN = (
    "no labels were held out during training, so at its end it was unknown whether the unlabeled scans helped"
)


def shipped_after_folds(run: Evaluation, baseline: Evaluation, *, both_supervised: bool = False) -> Shipped:
    """Return the network with the higher mean Dice on the held-out cases of all folds."""
    own, other = (mean_metrics(scores)["dice"] for scores in (run, baseline))
    reason = f"{own:.2f} % mean Dice on held-out labels with the unlabeled scans, {other:.2f} % without"
    if both_supervised:
        reason = f"{own:.2f} % mean Dice of the run on held-out labels, {other:.2f} % of its baseline"
    return Shipped("baseline" if other > own else "run", reason, both_supervised)


def shipped_without_folds(recipe: Recipe, store: Store, run: RunFolder, device: torch.device) -> Shipped:
    """Choose between a run and its baseline without held-out labels. Average them first if the recipe asks for it."""
    if (last := run.teacher_checks().abandoned) is not None:
        reason = ABANDONED[last.decision]
        if run.is_supervised_only:
            return Shipped("baseline", f"{reason}, {NO_PREFERENCE}", both_supervised=True)
        return Shipped("baseline", reason)
    if recipe.average_with_baseline:
        average_with_baseline(run)
    final = check_networks(recipe, store, run, run.baseline, device)
    if final is not None and final.prefers_other:
        return Shipped("baseline", f"with the unlabeled scans, {final.sentence('the baseline')}")
    return Shipped("average" if recipe.average_with_baseline else "run", BENEFIT_UNKNOWN)
