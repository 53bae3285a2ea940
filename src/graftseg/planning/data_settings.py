"""The settings with which ``graftseg prepare`` converts scans."""

from collections.abc import Iterable
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.data.benchmarks import BENCHMARKS
from graftseg.data.dataset import Dataset
from graftseg.data.prepare import PrepareSettings, identity_settings
from graftseg.planning.plans import make_plan
from graftseg.recipes.recipe import changed, load_recipe


def choose_data_settings(dataset: Dataset, recipe: str | Path | None, overrides: Iterable[str]) -> PrepareSettings:
    """Return the settings of a recipe. Without a recipe, keep benchmark scans unchanged and plan for other scans."""
    if recipe is not None:
        return load_recipe(recipe, overrides).data
    if dataset.layout not in BENCHMARKS:
        return changed(make_plan(dataset, device="cuda", timed=False).recipe, overrides).data
    if list(overrides):
        finding = f"the benchmark {dataset.layout} is stored unchanged"
        raise UserError(Code.OPTION_INVALID, "--set", finding, "pass a --recipe")
    return identity_settings(BENCHMARKS[dataset.layout].dimensions)
