"""The choice of the network that a run ships.

With folds, the better of run and supervised baseline is shipped. With validation cases, the best of run, baseline and
average is shipped. Without held-out labels, the baseline is shipped if self-training was stopped, or if the baseline
makes clearly fewer implausible predictions. Otherwise the network of the run is shipped, or its average with the
baseline if the recipe asks for an average. If self-training was skipped, the network of the run has more supervised
steps than the baseline.

Run and baseline continue from the same first stage. In a short run, their weights stay close to each other, so the
average of the weights is a good network, too. Errors that only one of them has learned are weaker in the average. If
the network of the run makes clearly more implausible predictions, self-training has probably taught it errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.core.teacher_checks import counted_reasons
from graftseg.data.batches import training_cases
from graftseg.data.store import Store, StoredCase
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.table_metrics import mean_metrics
from graftseg.inference.model import build_method, load_network, load_weights, save_weights
from graftseg.methods import Method
from graftseg.recipes.baseline import baseline_of, shares_first_stage
from graftseg.recipes.recipe import Recipe
from graftseg.training.learning_check import class_dice
from graftseg.training.step import autocast, effective_precision, reporting_out_of_memory
from graftseg.training.teacher_check import (
    MAX_COMPARED,
    Excess,
    ScanSummary,
    find_excess,
    has_occasional_class,
    implausible,
)
from graftseg.training.unlabeled_predictions import labeled_summaries, predict_cases

Network = Literal["run", "average", "baseline"]
ABANDONED = {
    "skip": "too few predictions of the unlabeled scans were plausible for self-training",
    "stop": "self-training was stopped, because a class drifted",
}
"""Reasons to ship the baseline, by the last decision of the teacher check."""
NO_PREFERENCE = (
    "so both networks are supervised, and no labels were held out during training that could show which is better"
)
BENEFIT_UNKNOWN = "whether the unlabeled scans help is unknown; --folds measures it"
MIN_EXCESS = 2
"""Number of additional implausible predictions from which the other network is preferred."""


@dataclass(frozen=True)
class FinalCheck:
    """The implausible predictions of two networks.

    scans: number of scans that each network predicted
    run: why predictions of the run's network are implausible, by the name of the scan
    other: the same for the other network
    excess: how the volume of an occasional class is less usual than that of the other network, as a phrase, or None
    """

    scans: int
    run: Mapping[str, str]
    other: Mapping[str, str]
    excess: str | None = None

    @property
    def prefers_other(self) -> bool:
        """Whether the predictions of the other network are clearly more plausible."""
        return len(self.run) >= len(self.other) + MIN_EXCESS or self.excess is not None

    def sentence(self, other: str) -> str:
        """Return the result in one sentence. ``other`` names the other network."""
        if self.excess is not None:
            return f"{self.excess} for {other}"
        reasons = f" ({counted_reasons(self.run)})" if self.run else ""
        return (
            f"{len(self.run)} of {self.scans} predictions of unlabeled scans are implausible{reasons}, compared with "
            f"{len(self.other)} of {other}"
        )


def check_networks(
    recipe: Recipe, store: Store, run: RunFolder, other: RunFolder, device: torch.device
) -> FinalCheck | None:
    """Compare the networks of two runs. Return None if the recipe does not check its teacher."""
    if not any(stage.check_teacher for stage in recipe.stages):
        return None
    cases = training_cases(store, recipe.batches)
    labeled, unlabeled = labeled_summaries(store, cases.labeled), cases.unlabeled[:MAX_COMPARED]

    def predicted(folder: RunFolder, weights: Path | None = None) -> dict[str, ScanSummary] | None:
        method = load_network(folder, device).method
        if weights is not None:
            load_weights(method, weights)
        try:
            with autocast(effective_precision(recipe.loop.precision, type(method), device), device):
                return predict_cases(recipe, store, method, unlabeled, device).summaries
        except UserError as error:
            if error.code is not Code.LOSS_NOT_FINITE:
                raise
            return None

    def reasons(summaries: dict[str, ScanSummary] | None) -> dict[str, str]:
        if summaries is None:
            return dict.fromkeys((case.name for case in unlabeled), "probabilities that are not finite")
        return implausible(labeled, summaries)

    with reporting_out_of_memory(device):
        own, others = predicted(run), predicted(other)
        excess = None
        if own is not None and others is not None and has_occasional_class(labeled):
            # in an average, an error of self-training is weaker, but may still do harm
            trained = own if run.weights_file == run.trained_file else predicted(run, run.trained_file)
            excess = None if trained is None else find_excess(labeled, trained, others)
    return FinalCheck(len(unlabeled), reasons(own), reasons(others), _excess_phrase(excess, store))


def _excess_phrase(excess: Excess | None, store: Store) -> str | None:
    """Return a phrase that ends before the name of the other network."""
    if excess is None:
        return None
    name, volume, other = store.classes[1 + excess.index], excess.volume, excess.other
    return f"the volume of {name} is {volume:.2g} times that in the labels, compared with {other:.2g} times"


def check_average(recipe: Recipe) -> None:
    """Raise a UserError if the network of a recipe cannot be averaged with the network of its baseline."""
    baseline = baseline_of(recipe)
    ends = [build_method(one, one.stages[-1], 1, 2, torch.device("meta")).student for one in (recipe, baseline)]
    if shares_first_stage(recipe, baseline) and ends[0].state_dict().keys() == ends[1].state_dict().keys():
        return
    finding = "average_with_baseline needs a baseline with the same network and the same first stage"
    raise UserError(Code.RECIPE_MISMATCH, f"recipe {recipe.name}", finding, "set average_with_baseline to false")


def average_with_baseline(run: RunFolder) -> None:
    """Make the average of a run and its baseline the network of the run, unless it is the average already."""
    if run.manifest().get("averaged"):
        return
    trained, baseline = (load_network(folder).method.student.state_dict() for folder in (run, run.baseline))
    save_weights(mean_weights(trained, baseline), run.average_file)
    chosen = f"{run.manifest().get('checkpoint', 'last')}, averaged with the baseline"
    run.update_manifest({"averaged": True, "weights": sha256_of(run.average_file), "checkpoint": chosen})


def mean_weights(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the mean of two networks, including batch statistics. Integer buffers are taken from the first."""
    return {
        name: (tensor + second[name]) / 2 if tensor.is_floating_point() else tensor for name, tensor in first.items()
    }


def shipped_after_folds(run: Evaluation, baseline: Evaluation, *, both_supervised: bool = False) -> Shipped:
    """Return the network with the higher mean Dice on the held-out cases of all folds."""
    own, other = (mean_metrics(scores)["dice"] for scores in (run, baseline))
    reason = f"{own:.2f} % mean Dice on held-out labels with the unlabeled scans, {other:.2f} % without"
    if both_supervised:
        reason = f"{own:.2f} % mean Dice of the run on held-out labels, {other:.2f} % of its baseline"
    return Shipped("baseline" if other > own else "run", reason, both_supervised)


def shipped_after_validation(dice: Mapping[Network, float], cases: int, *, both_supervised: bool = False) -> Shipped:
    """Return the network with the highest mean Dice on validation cases, the first of several equal ones."""
    best = max(dice, key=lambda network: dice[network])
    names = {"average": "average", "run": "with the unlabeled scans", "baseline": "without"}
    if both_supervised:
        names |= {"run": "run", "baseline": "baseline"}
    scores = ", ".join(f"{100 * value:.2f} % {names[network]}" for network, value in dice.items())
    return Shipped(best, f"mean Dice on {counted(cases, 'validation case')}: {scores}", both_supervised)


def _networks(run: RunFolder, device: torch.device, *, average: bool) -> dict[Network, Method]:
    """Load the networks to choose from."""
    trained, baseline = (load_network(folder, device).method for folder in (run, run.baseline))
    load_weights(trained, run.trained_file)  # instead of the average of an earlier attempt
    networks: dict[Network, Method] = {"run": trained, "baseline": baseline}
    if not average:
        return networks
    mean = load_network(run, device).method
    mean.student.load_state_dict(mean_weights(trained.student.state_dict(), baseline.student.state_dict()))
    return {"average": mean, **networks}


def _mean_dice(
    recipe: Recipe, store: Store, method: Method, cases: tuple[StoredCase, ...], device: torch.device
) -> float:
    """Return the mean Dice of a network over classes and cases: 0 if its probabilities are not finite."""
    try:
        return fmean(class_dice(recipe, store, method, cases, device).values())
    except UserError as error:
        if error.code is not Code.LOSS_NOT_FINITE:
            raise
        return 0.0


def shipped_without_folds(recipe: Recipe, store: Store, run: RunFolder, device: torch.device) -> Shipped:
    """Choose between a run, its baseline and, if the recipe asks for it, their average."""
    last = run.teacher_checks().abandoned
    if validation := training_cases(store, recipe.batches).validation:
        networks = _networks(run, device, average=recipe.average_with_baseline and last is None)
        dice = {name: _mean_dice(recipe, store, method, validation, device) for name, method in networks.items()}
        shipped = shipped_after_validation(dice, len(validation), both_supervised=run.is_supervised_only)
        if shipped.network == "average":
            average_with_baseline(run)
        return shipped
    if last is not None:
        reason = ABANDONED[last.decision]
        if run.is_supervised_only and last.added:
            more = f"{reason}, so the run has {counted(last.added, 'supervised step')} more than its baseline"
            return Shipped("run", more, both_supervised=True)
        if run.is_supervised_only:
            return Shipped("baseline", f"{reason}, {NO_PREFERENCE}", both_supervised=True)
        return Shipped("baseline", reason)
    if recipe.average_with_baseline:
        average_with_baseline(run)
    final = check_networks(recipe, store, run, run.baseline, device)
    if final is not None and final.prefers_other:
        return Shipped("baseline", f"with the unlabeled scans, {final.sentence('the baseline')}")
    return Shipped("average" if recipe.average_with_baseline else "run", BENEFIT_UNKNOWN)
