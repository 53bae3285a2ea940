"""Comparison of two trained networks by the plausibility of their predictions, without labels.

The network of a run and another network, such as its supervised baseline, predict the same unlabeled scans. If the
network of the run makes clearly more implausible predictions, self-training has probably taught it errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.core.teacher_checks import counted_reasons
from graftseg.data.batches import training_cases
from graftseg.data.store import Store
from graftseg.inference.model import load_network
from graftseg.recipes.recipe import Recipe
from graftseg.training.case_predictions import labeled_summaries, predict_cases
from graftseg.training.out_of_memory import reporting_out_of_memory
from graftseg.training.teacher_check import implausible

MAX_SCANS = 30
"""Maximum number of unlabeled scans that both networks predict."""
MIN_EXCESS = 2
"""Number of additional implausible predictions from which the other network is preferred."""


@dataclass(frozen=True)
class FinalCheck:
    """The implausible predictions of two networks.

    scans: number of scans that each network predicted
    run: why predictions of the run's network are implausible, by the name of the scan
    other: the same for the other network
    """

    scans: int
    run: Mapping[str, str]
    other: Mapping[str, str]

    @property
    def prefers_other(self) -> bool:
        """Whether the other network makes clearly fewer implausible predictions."""
        return len(self.run) >= len(self.other) + MIN_EXCESS

    def sentence(self, other: str) -> str:
        """Return the result in one sentence. ``other`` names the other network."""
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
    labeled, unlabeled = labeled_summaries(store, cases.labeled), cases.unlabeled[:MAX_SCANS]

    def implausible_predictions(folder: RunFolder) -> dict[str, str]:
        try:
            method = load_network(folder, device).method
            return implausible(labeled, predict_cases(recipe, store, method, unlabeled, device).summaries)
        except UserError as error:
            if error.code is not Code.LOSS_NOT_FINITE:
                raise
            return dict.fromkeys((case.name for case in unlabeled), "probabilities that are not finite")

    with reporting_out_of_memory(device):
        return FinalCheck(len(unlabeled), implausible_predictions(run), implausible_predictions(other))
