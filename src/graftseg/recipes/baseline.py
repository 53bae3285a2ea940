"""The supervised baseline of a recipe: the same training without unlabeled scans."""

import logging
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.methods import METHODS
from graftseg.recipes.recipe import Recipe, parse_recipe
from graftseg.recipes.settings import StageSettings

SUPERVISED = "supervised"
logger = logging.getLogger(__name__)


def uses_unlabeled(recipe: Recipe) -> bool:
    """Return whether any stage learns from unlabeled scans."""
    return any(METHODS[stage.method].uses_unlabeled for stage in recipe.stages)


def require_unlabeled(recipe: Recipe, unlabeled: int, where: Path) -> None:
    """Raise a UserError if a recipe learns from unlabeled scans and there are none."""
    if uses_unlabeled(recipe) and not unlabeled:
        finding = f"method {recipe.method} learns from unlabeled scans, but there are none"
        remedy = "put scans without labels into imagesUn, or use a supervised recipe"
        raise UserError(Code.TOO_FEW_CASES, where, finding, remedy)


def baseline_of(recipe: Recipe) -> Recipe:
    """Return a supervised recipe with the network, batches, seed and number of steps of ``recipe``.

    If the first of several stages is supervised, the baseline keeps this stage and replaces all others by a second
    stage with the same settings. Otherwise the baseline is one supervised stage. Among the settings of the last method,
    this stage uses those that the supervised method also has, such as the Dice loss. In both cases, the new stage uses
    the optimizer of the last stage.
    """
    last = recipe.stages[-1]
    supervised, semi = (METHODS[name].Config.model_fields for name in (SUPERVISED, last.method))
    shared = {key for key in supervised.keys() & semi.keys() if supervised[key].annotation == semi[key].annotation}
    stage = {
        "method": SUPERVISED,
        "steps": sum(stage.steps for stage in recipe.stages),
        "settings": {key: value for key, value in last.settings.items() if key in shared},
        "optimizer": last.optimizer.model_dump(mode="json"),
    }
    stages = [stage]
    if recipe.stages[0].method == SUPERVISED and len(recipe.stages) > 1:
        first = recipe.stages[0].model_dump(mode="json")
        kept = {"optimizer": stage["optimizer"], "carry_optimizer": last.carry_optimizer}
        stages = [first, {**first, "steps": stage["steps"] - first["steps"], **kept}]
    tree = recipe.model_dump(mode="json") | {
        "name": f"{recipe.name}-{SUPERVISED}",
        "about": f"supervised baseline of {recipe.name}",
        "stages": stages,
        "baseline": False,
        "average_with_baseline": False,
        "folds": None,
        "published": None,
    }
    return parse_recipe(tree, f"baseline of recipe {recipe.name}")


def baseline_stages(recipe: Recipe) -> tuple[StageSettings, ...]:
    """Return the stages that the baseline of a recipe trains: without the first stage if both share it."""
    baseline = baseline_of(recipe)
    return baseline.stages[1:] if shares_first_stage(recipe, baseline) else baseline.stages


def adapt_to_data(recipe: Recipe, *, unlabeled: int, baseline: bool) -> tuple[Recipe, bool]:
    """Return the recipe to train and whether to train a baseline too, given the number of unlabeled scans.

    Without unlabeled scans, a requested baseline is trained instead of the recipe. A supervised recipe is trained
    without a baseline.
    """
    if not uses_unlabeled(recipe):
        if baseline:
            logger.warning("recipe %s is supervised, so no separate baseline is trained", recipe.name)
        return recipe, False
    if unlabeled or not (baseline or recipe.baseline):
        return recipe, baseline
    logger.warning("there are no unlabeled scans for %s; training only the supervised baseline", recipe.method)
    return baseline_of(recipe), False


def existing_baselines(run: RunFolder) -> list[RunFolder]:
    """Return the existing baselines of a run. For ``fold-N`` of a cross-validation, ``baseline/fold-N`` is included."""
    folder, candidates = RunFolder(run.path.resolve().parent), [run.baseline]
    if folder.folds_file.is_file():
        candidates.append(RunFolder(folder.baseline.path / run.path.name))
    return [baseline for baseline in candidates if baseline.exists]


def own_baseline(run: RunFolder) -> Path | None:
    """Return the folder of the run's evaluated baseline, or None if there is none."""
    evaluated = (one.path for one in existing_baselines(run) if (one.predictions / "metrics.csv").is_file())
    return next(evaluated, None)


def shares_first_stage(recipe: Recipe, baseline: Recipe) -> bool:
    """Return whether both recipes train the same network up to the end of the first stage."""
    parts = ("data", "batches", "network", "loop", "selection", "seed")
    same = all(getattr(recipe, part) == getattr(baseline, part) for part in parts)
    return same and len(recipe.stages) > 1 and recipe.stages[0] == baseline.stages[0]
