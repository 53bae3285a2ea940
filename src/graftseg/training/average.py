"""The average of the weights of a run and its supervised baseline.

Both networks continue from the same first stage. In a short run their weights stay close to each other, so the average
of the weights is a good network, too. Errors that only one of them has learned are weaker in the average.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.inference.model import build_method, load_network, save_weights
from graftseg.recipes.baseline import baseline_of, shares_first_stage
from graftseg.recipes.recipe import Recipe


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
