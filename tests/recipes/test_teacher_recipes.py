"""The recipes of mean teachers and of the two methods of the pancreas table that judge predictions by themselves."""

import pytest

from graftseg.ops.optimizers import Adam, Sgd
from graftseg.recipes.recipe import Recipe, load_recipe
from loops import for_each

TEACHERS = [
    f"{setting}/{method}" for setting in ("la-4", "la-8", "acdc-3", "acdc-7") for method in ("mean-teacher", "ua-mt")
]
JUDGED = [f"{setting}/{method}" for setting in ("la-4", "acdc-3", "pancreas-12") for method in ("dan", "advent")]
ALL = [*TEACHERS, *JUDGED, "pancreas-12/ua-mt"]
PUBLISHED = {
    "la-4/ua-mt": ("LA", "UA-MT, 4 labels", 82.26, 70.98, 13.71, 3.82),
    "la-8/ua-mt": ("LA", "UA-MT, 8 labels", 87.79, 78.39, 8.68, 2.12),
    "acdc-3/ua-mt": ("ACDC", "UA-MT, 3 patients", 46.04, 35.97, 20.08, 7.75),
    "acdc-7/ua-mt": ("ACDC", "UA-MT, 7 patients", 81.65, 70.64, 6.88, 2.02),
    "pancreas-12/ua-mt": ("Pancreas", "UA-MT, 12 labels", 77.26, 63.82, 11.90, 3.06),
    "pancreas-12/dan": ("Pancreas", "DAN, 12 labels", 76.74, 63.29, 11.13, 2.97),
    "pancreas-12/advent": ("Pancreas", "ADVNET, 12 labels", 75.31, 61.73, 11.72, 3.88),
}
STEPS = {"la": 15000, "acdc": 30000, "pancreas": 6000}

each = for_each("name", ALL)


def set_of(name: str) -> str:
    return name.split("-")[0]


@each
def test_published_rows(name: str) -> None:
    theirs = load_recipe(name).published
    assert (theirs is None) is (name not in PUBLISHED)
    if theirs is not None:
        figures = (theirs.dice, theirs.jaccard, theirs.hd95, theirs.asd)
        assert (theirs.table, theirs.row, *figures) == PUBLISHED[name]
        assert theirs.selection == "unknown" and theirs.note


@each
def test_one_stage_of_the_usual_length(name: str) -> None:
    recipe, data = load_recipe(name), set_of(name)
    (stage,) = recipe.stages
    assert (recipe.name, stage.method, stage.steps) == (name, name.split("/")[1], STEPS[data])
    size = 12 if data == "acdc" else 2
    assert (recipe.batches.labeled, recipe.batches.unlabeled) == (size, size)
    assert recipe.batches.labeled_cases == int(name.split("/")[0].split("-")[1]) * (2 if data == "acdc" else 1)
    assert recipe.network.name == ("unet-2d" if data == "acdc" else "vnet-bn")
    assert isinstance(stage.optimizer, Sgd) and stage.optimizer.learning_rate == 0.01
    assert stage.optimizer.schedule.name == ("poly" if data == "acdc" else "step")


def settings_of(recipe: Recipe) -> dict[str, object]:
    return recipe.stages[0].settings


@each
def test_ramps_are_at_their_height_when_the_published_code_has_them_there(name: str) -> None:
    recipe, method = load_recipe(name), name.split("/")[1]
    whole = STEPS[set_of(name)] // 150
    # UA-MT's own ramp ends with its 6000 steps and was not stretched for longer trainings of the left atrium
    expected = 40 if set_of(name) == "la" and method in ("mean-teacher", "ua-mt") else whole
    assert settings_of(recipe)["ramp"] == expected and settings_of(recipe)["weight"] == 0.1
    foreground = method in ("mean-teacher", "ua-mt") and set_of(name) != "acdc"
    assert settings_of(recipe)["dice"] == ("foreground" if foreground else "classes")


@each
def test_a_discriminator_has_an_optimiser_of_its_own(name: str) -> None:
    (stage,) = load_recipe(name).stages
    expected = {"discriminator": Adam(learning_rate=1e-4, betas=(0.9, 0.99))} if stage.method == "dan" else {}
    assert stage.optimizers == expected


@pytest.mark.parametrize(
    ("name", "stride", "largest"),
    [
        ("la-4/ua-mt", (18, 18, 4), False),
        ("la-8/mean-teacher", (18, 18, 4), False),
        ("la-4/dan", (18, 18, 4), True),
        ("acdc-7/ua-mt", None, False),
        ("pancreas-12/advent", (16, 16, 16), False),
    ],
)
def test_inference(name: str, stride: tuple[int, ...] | None, largest: bool) -> None:
    chosen = load_recipe(name).inference
    assert (chosen.stride, chosen.largest_component) == (stride, largest)
