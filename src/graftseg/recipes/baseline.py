"""What a recipe would reach without its unlabeled scans: the supervised recipe that stands beside it."""

import logging
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.methods import METHODS
from graftseg.recipes.recipe import Recipe, parse_recipe

SUPERVISED = "supervised"
logger = logging.getLogger(__name__)


def uses_unlabeled(recipe: Recipe) -> bool:
    """Whether any stage learns from unlabeled scans."""
    return any(METHODS[stage.method].uses_unlabeled for stage in recipe.stages)


def require_unlabeled(recipe: Recipe, unlabeled: int, where: Path) -> None:
    """Refuse data without unlabeled scans where a recipe learns from them."""
    if uses_unlabeled(recipe) and not unlabeled:
        finding = f"method {recipe.method} learns from unlabeled scans and there are none"
        raise UserError(
            Code.RECIPE_INVALID, where, finding, "put scans without labels into imagesUn or use a supervised recipe"
        )


def baseline_of(recipe: Recipe) -> Recipe:
    """The same network, batches, seed and number of steps, trained on the labeled scans alone.

    All steps make one stage under the optimiser of the recipe's last one, whose schedule runs over all of them. What
    that stage's method calls by the same name and means alike, as the kind of Dice on labeled images, is kept.
    """
    last = recipe.stages[-1]
    own, theirs = (METHODS[name].Config.model_fields for name in (SUPERVISED, last.method))
    shared = {key for key in own.keys() & theirs.keys() if own[key].annotation == theirs[key].annotation}
    stage = {
        "method": SUPERVISED,
        "steps": sum(stage.steps for stage in recipe.stages),
        "settings": {key: value for key, value in last.settings.items() if key in shared},
        "optimizer": last.optimizer.model_dump(mode="json"),
    }
    tree = recipe.model_dump(mode="json") | {
        "name": f"{recipe.name}-{SUPERVISED}",
        "about": f"the labeled scans alone, as a baseline of {recipe.name}",
        "stages": [stage],
        "baseline": False,
        "folds": None,
        "published": None,
    }
    return parse_recipe(tree, f"baseline of recipe {recipe.name}")


def fitting(recipe: Recipe, *, unlabeled: int, baseline: bool) -> tuple[Recipe, bool]:
    """What to train where there are so many unlabeled scans, and whether a baseline is to stand beside it.

    Without any, a recipe that asks for a baseline becomes that baseline, since nothing else can be trained; this is
    said. A recipe that is supervised anyway needs none beside it.
    """
    if not uses_unlabeled(recipe):
        if baseline:
            logger.warning("recipe %s is supervised and thus its own baseline; none is trained beside it", recipe.name)
        return recipe, False
    if unlabeled or not (baseline or recipe.baseline):
        return recipe, baseline
    finding = "there are no unlabeled scans, so %s cannot learn from them; trained is the supervised baseline alone"
    logger.warning(finding, recipe.method)
    return baseline_of(recipe), False


def kept_baselines(run: RunFolder) -> list[RunFolder]:
    """The supervised run that was begun beside this one, if there is one; a fold's too."""
    folder = RunFolder(run.path.resolve().parent)
    kept = [run.baseline, *([RunFolder(folder.baseline.path / run.path.name)] if folder.folds_file.is_file() else [])]
    return [one for one in kept if one.exists]


def own_baseline(run: RunFolder) -> Path | None:
    """The folder of the evaluated supervised run that was trained beside this one, if there is one; a fold's too."""
    return next((one.path for one in kept_baselines(run) if (one.predictions / "metrics.csv").is_file()), None)
