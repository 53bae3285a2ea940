"""Check of two trained networks: whose predictions of the unlabeled scans look more like the labeled scans?

The network of a run and another network, such as its supervised baseline, predict the same unlabeled scans. If the
network of the run makes clearly more implausible predictions, self-training has probably taught it errors. No label of
these scans is read.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data.batches import training_cases
from graftseg.data.store import Store
from graftseg.inference.model import load_network
from graftseg.recipes.recipe import Recipe
from graftseg.training.case_predictions import labeled_summaries, predict_cases
from graftseg.training.out_of_memory import reporting_out_of_memory
from graftseg.training.plausibility import Usual

MAX_SCANS = 30
"""Maximum number of unlabeled scans that both networks predict."""
MIN_EXCESS = 2
"""Number of additional implausible predictions from which the other network is preferred."""


@dataclass(frozen=True)
class FinalCheck:
    """The result for ``scans`` scans: for each network, why a prediction is implausible, by the name of the scan."""

    scans: int
    run: Mapping[str, str]
    other: Mapping[str, str]

    @property
    def prefers_other(self) -> bool:
        """Whether the other network makes clearly fewer implausible predictions."""
        return len(self.run) >= len(self.other) + MIN_EXCESS

    def sentence(self, other: str) -> str:
        """Return the result in one sentence. ``other`` names the other network."""
        reasons = Counter(self.run.values()).most_common()
        found = f" ({', '.join(f'{count} with {reason}' for reason, count in reasons)})" if reasons else ""
        return (
            f"{len(self.run)} of {self.scans} predictions of unlabeled scans are implausible{found}, compared with "
            f"{len(self.other)} of {other}"
        )


def check_networks(
    recipe: Recipe, store: Store, run: RunFolder, other: RunFolder, device: torch.device
) -> FinalCheck | None:
    """Compare the networks of two runs. Return None if the recipe does not check its teacher."""
    if not any(stage.check_teacher for stage in recipe.stages):
        return None
    cases = training_cases(store, recipe.batches)
    usual, chosen = Usual.of(labeled_summaries(store, cases.labeled)), cases.unlabeled[:MAX_SCANS]

    def objections(folder: RunFolder) -> dict[str, str]:
        try:
            summaries = predict_cases(recipe, store, load_network(folder, device).method, chosen, device).summaries
        except UserError as error:
            if error.code is not Code.LOSS_NOT_FINITE:
                raise
            return dict.fromkeys((case.name for case in chosen), "probabilities that are not finite")
        found = {name: usual.objection(summary) for name, summary in summaries.items()}
        return {name: reason for name, reason in found.items() if reason is not None}

    with reporting_out_of_memory(device):
        return FinalCheck(len(chosen), objections(run), objections(other))
