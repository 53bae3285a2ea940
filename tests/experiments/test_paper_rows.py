"""Shipped recipes of the benchmarks: published figures, file headers, selection settings and networks."""

import pytest
import torch

from graftseg.experiments.paper import TABLES
from graftseg.inference.model import build_method
from graftseg.networks import parameter_count
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import load_recipe
from loops import for_each

CLASSES = {"la": 2, "acdc": 4, "pancreas": 2}
RECIPES = [name for name in shipped_recipes() if name.split("-")[0] in CLASSES]
FIGURES = {
    "la-4/ua-mt": (82.26, 70.98, 13.71, 3.82),
    "la-4/sassnet": (81.60, 69.63, 16.16, 3.58),
    "la-4/dtc": (81.25, 69.33, 14.90, 3.99),
    "la-4/urpc": (82.48, 71.35, 14.65, 3.65),
    "la-4/mc-net": (83.59, 72.36, 14.07, 2.70),
    "la-4/ss-net": (86.33, 76.15, 9.97, 2.31),
    "la-8/ua-mt": (87.79, 78.39, 8.68, 2.12),
    "la-8/sassnet": (87.54, 78.05, 9.84, 2.59),
    "la-8/dtc": (87.51, 78.17, 8.23, 2.36),
    "la-8/urpc": (86.92, 77.03, 11.13, 2.28),
    "la-8/mc-net": (87.62, 78.25, 10.03, 1.82),
    "la-8/ss-net": (88.55, 79.62, 7.49, 1.90),
    "acdc-3/ua-mt": (46.04, 35.97, 20.08, 7.75),
    "acdc-3/sassnet": (57.77, 46.14, 20.05, 6.06),
    "acdc-3/dtc": (56.90, 45.67, 23.36, 7.39),
    "acdc-3/urpc": (55.87, 44.64, 13.60, 3.74),
    "acdc-3/mc-net": (62.85, 52.29, 7.62, 2.33),
    "acdc-3/ss-net": (65.83, 55.38, 6.67, 2.28),
    "acdc-7/ua-mt": (81.65, 70.64, 6.88, 2.02),
    "acdc-7/sassnet": (84.50, 74.34, 5.42, 1.86),
    "acdc-7/dtc": (84.29, 73.92, 12.81, 4.01),
    "acdc-7/urpc": (83.10, 72.41, 4.84, 1.53),
    "acdc-7/mc-net": (86.44, 77.04, 5.50, 1.84),
    "acdc-7/ss-net": (86.78, 77.67, 6.07, 1.40),
    "pancreas-12/dan": (76.74, 63.29, 11.13, 2.97),
    "pancreas-12/advent": (75.31, 61.73, 11.72, 3.88),
    "pancreas-12/ua-mt": (77.26, 63.82, 11.90, 3.06),
    "pancreas-12/sassnet": (77.66, 64.08, 10.93, 3.05),
    "pancreas-12/dtc": (78.27, 64.75, 8.36, 2.25),
    "pancreas-12/coranet": (79.67, 66.69, 7.59, 1.89),
}
PARAMETERS = {
    "la-4/sassnet": 9_448_866,
    "la-4/dtc": 9_448_866,
    "la-4/urpc": 5_884_504,
    "la-4/mc-net": 12_347_716,
    "la-4/ss-net": 9_457_318,
    "acdc-3/sassnet": 1_814_344,
    "acdc-3/dtc": 1_814_344,
    "acdc-3/urpc": 1_831_060,
    "acdc-3/mc-net": 2_577_624,
    "acdc-3/ss-net": 1_826_828,
    "pancreas-12/coranet": 9_457_190,
}


def test_every_row_has_a_recipe_and_other_recipes_are_named_after_their_method() -> None:
    rows = {row.recipe for table in TABLES.values() for row in table.rows}
    assert rows <= set(RECIPES)
    assert all(name.split("/")[1] == load_recipe(name).method for name in set(RECIPES) - rows)
    assert {name for name in RECIPES if load_recipe(name).published} == rows


@for_each("name", FIGURES)
def test_published_figures(name: str) -> None:
    theirs = load_recipe(name).published
    assert theirs is not None
    assert (theirs.dice, theirs.jaccard, theirs.hd95, theirs.asd) == FIGURES[name]


@for_each("name", RECIPES)
def test_recipes_have_names_and_descriptions(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.about


@for_each("name", RECIPES)
def test_the_paper_protocol_scores_every_stage_with_a_stride_of_at_least_the_test(name: str) -> None:
    recipe = load_recipe(name, ["selection.protocol=paper"])
    chosen, end = recipe.selection, 0
    assert chosen.every is not None
    for stage in recipe.stages:
        begin, end = end, end + stage.steps
        last = end // chosen.every * chosen.every
        assert last > begin and last >= chosen.first, stage.method
    tested = recipe.inference.stride
    assert chosen.stride is None or (tested is not None and all(map(int.__ge__, chosen.stride, tested)))


@for_each("name", RECIPES)
@pytest.mark.slow
def test_methods_and_networks_build(name: str) -> None:
    recipe, meta = load_recipe(name), torch.device("meta")
    with meta:
        built = [build_method(recipe, stage, 1, CLASSES[name.split("-")[0]], meta) for stage in recipe.stages]
    assert all(method.trained_modules for method in built)
    assert parameter_count(built[-1].student) == PARAMETERS.get(name, parameter_count(built[-1].student))
