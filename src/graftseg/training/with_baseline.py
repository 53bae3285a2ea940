"""Train one network and then its supervised baseline, and choose the network that predicts."""

from dataclasses import replace
from functools import partial

import torch

from graftseg.core import ranks
from graftseg.core.errors import StoppedError
from graftseg.core.run_folder import SINGLE_RUN, RunFolder
from graftseg.data.batches import training_cases
from graftseg.data.sources import Data
from graftseg.data.store import Store, is_store, open_store
from graftseg.inference.model import load_network, load_weights
from graftseg.recipes.baseline import adapt_to_data, baseline_of
from graftseg.recipes.recipe import Recipe
from graftseg.training.clock import baseline_work
from graftseg.training.learning_check import check_learned, warnings_of
from graftseg.training.loop import Outcome
from graftseg.training.recorder import BASELINE, BEFORE_BASELINE, ONLY_RUN
from graftseg.training.run import complete, count_unlabeled, train_run
from graftseg.training.several_ranks import begin_or_detect_restart
from graftseg.training.shipping import check_average, shipped_without_folds
from graftseg.training.unlabeled_predictions import final_work


def train_with_baseline(
    recipe: Recipe, data: Data, run: RunFolder, device: torch.device, *, resume: bool, baseline: bool
) -> Outcome:
    """Train a recipe into ``run`` and, with ``baseline``, its supervised baseline into ``run/baseline``.

    Raise a StoppedError after a signal. ``resume`` continues the run and then its baseline. If torchrun started several
    ranks, they train together.
    """
    with ranks.joined(device):
        resume = resume or begin_or_detect_restart(run)
        if baseline or recipe.baseline:
            unlabeled = ranks.on_main(partial(count_unlabeled, recipe, data, run))
            recipe, baseline = adapt_to_data(recipe, unlabeled=unlabeled, baseline=baseline)
            if baseline and recipe.average_with_baseline:
                check_average(recipe)
        if not resume:
            ranks.on_main(partial(run.check_target, SINGLE_RUN, resume=False, needs_baseline=baseline))
        label = replace(BEFORE_BASELINE, later=tuple(baseline_work(recipe))) if baseline else ONLY_RUN
        outcome = train_run(recipe, data, run, device, resume=resume, label=label, before_baseline=baseline)
        if outcome.stopped_by is not None:
            raise StoppedError(outcome.stopped_by, outcome.steps)
        if baseline:
            store = open_store(data if is_store(data) else run.store)
            check = final_work(recipe, training_cases(store, recipe.batches))
            label = replace(BASELINE, later=(check,))
            complete(baseline_of(recipe), store, run.baseline, device, label, after=run)
            ranks.on_main(partial(_ship, recipe, store, run, device))
            if run.weights_file == run.average_file:
                load_weights(outcome.method, run.average_file, run.manifest()["weights"])
                outcome = replace(outcome, warnings=warnings_of(run))
        return outcome


def _ship(recipe: Recipe, store: Store, run: RunFolder, device: torch.device) -> None:
    """Choose the network that predicts, unless it has been chosen. Score the labeled scans with an average, too."""
    if run.shipped() is None:
        shipped = shipped_without_folds(recipe, store, run, device)
        if run.weights_file == run.average_file:
            check_learned(recipe, store, load_network(run, device).method, run, device)
        run.ship(shipped)
