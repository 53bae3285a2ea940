"""The recipes of the paper's benchmarks: the exact published settings, and headers that say the same as the values."""

from typing import Any

import pytest
import torch
from tiny import recipe_tree, tiny_recipe

from graftseg.data.prepare import identity_settings
from graftseg.data.store import Store
from graftseg.inference.model import build_method
from graftseg.networks import parameter_count
from graftseg.recipes.reading import SHIPPED, shipped_recipes
from graftseg.recipes.recipe import Recipe, load_recipe
from graftseg.training.selection import scored_cases
from loops import for_each

SGD = {"name": "sgd", "learning_rate": 0.01, "weight_decay": 1e-4, "momentum": 0.9, "clip_gradient": None}
ADAM = {"name": "adam", "learning_rate": 0.001, "weight_decay": 0.0, "betas": [0.9, 0.999], "clip_gradient": None}
CONSTANT, STEP, POLY = (
    {"name": "constant"},
    {"name": "step", "every": 2500, "gamma": 0.1},
    {"name": "poly", "power": 0.9},
)
PUBLISHED = {
    "la-4/supervised": ("LA", "V-Net, 4 labels", 52.55, 39.60, 47.05, 9.87, "unknown"),
    "la-4/bcp": ("LA", "BCP, 4 labels", 88.02, 78.72, 7.90, 2.15, "test list"),
    "la-8/supervised": ("LA", "V-Net, 8 labels", 82.74, 71.72, 13.35, 3.26, "unknown"),
    "la-8/bcp": ("LA", "BCP, 8 labels", 89.62, 81.31, 6.81, 1.76, "test list"),
    "la-80/supervised": ("LA", "V-Net, 80 labels", 91.47, 84.36, 5.48, 1.51, "unknown"),
    "acdc-3/supervised": ("ACDC", "U-Net, 3 patients", 47.83, 37.01, 31.16, 12.62, "unknown"),
    "acdc-3/bcp": ("ACDC", "BCP, 3 patients", 87.59, 78.67, 1.90, 0.67, "validation list"),
    "acdc-7/supervised": ("ACDC", "U-Net, 7 patients", 79.41, 68.11, 9.35, 2.70, "unknown"),
    "acdc-7/bcp": ("ACDC", "BCP, 7 patients", 88.84, 80.62, 3.98, 1.17, "validation list"),
    "acdc-70/supervised": ("ACDC", "U-Net, 70 patients", 91.44, 84.59, 4.30, 0.99, "unknown"),
    "pancreas-12/supervised": ("Pancreas", "V-Net, 12 labels", 69.96, 55.55, 14.27, 1.64, "unknown"),
    "pancreas-12/bcp": ("Pancreas", "BCP, 12 labels", 82.91, 70.97, 6.43, 2.25, "test list"),
}
LABELED_CASES = {"la-4": 4, "la-8": 8, "la-80": 80, "acdc-3": 6, "acdc-7": 14, "acdc-70": 140, "pancreas-12": 12}
PARAMETERS = {"la": 9_448_866, "acdc": 1_813_764, "pancreas": 9_443_266}
CLASSES = {"la": 2, "acdc": 4, "pancreas": 2}

each = for_each("name", PUBLISHED)


def set_of(name: str) -> str:
    """The data set of a recipe."""
    return name.split("-")[0]


def plain(recipe: Recipe) -> dict[str, Any]:
    tree: dict[str, Any] = recipe.model_dump(mode="json")
    return tree


def header_of(name: str) -> list[str]:
    """The comment on top of a recipe, line by line."""
    lines = (SHIPPED / f"{name}.yaml").read_text().splitlines()
    first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
    return [line.removeprefix("# ") for line in lines[:first]]


def test_the_benchmarks_are_shipped_and_shared_parts_are_not() -> None:
    assert PUBLISHED.keys() <= set(shipped_recipes())
    parts = {path.relative_to(SHIPPED).as_posix() for path in SHIPPED.glob("*/_*.yaml")}
    assert {"la/_base.yaml", "la/_bcp.yaml", "la/_supervised.yaml", "acdc/_base.yaml", "pancreas/_base.yaml"} <= parts
    assert not any(name.split("/")[1].startswith("_") for name in shipped_recipes())


@each
def test_the_published_row_and_the_paper(name: str) -> None:
    theirs = load_recipe(name).published
    assert theirs is not None
    figures = (theirs.dice, theirs.jaccard, theirs.hd95, theirs.asd)
    assert (theirs.table, theirs.row, *figures, theirs.selection) == PUBLISHED[name]
    assert header_of(name)[0].endswith('Copy-Paste for Semi-Supervised Medical Image Segmentation" (CVPR 2023).')


@each
def test_the_header_names_settings_that_exist(name: str) -> None:
    """A line ``- part, part: ...`` begins with names of methods and of settings, or of parts of the recipe."""
    tree = plain(load_recipe(name))
    known = set(tree) | {"labeled", "unlabeled", "schedule"}
    for part in (tree["batches"], tree["inference"], tree["selection"], *tree["stages"]):
        known |= set(part) | {part.get("method")} | set(part.get("settings", {}))
    notes = [line[2:] for line in header_of(name) if line.startswith("- ")]
    assert notes
    for note in notes:
        assert set(note.split(":")[0].split(", ")) <= known, note


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("la-4/bcp", "la-8/bcp"),
        ("la-4/supervised", "la-8/supervised"),
        ("acdc-3/bcp", "acdc-7/bcp"),
        ("acdc-3/supervised", "acdc-7/supervised"),
    ],
)
def test_only_labels_and_figures_differ_within_a_data_set(first: str, second: str) -> None:
    assert header_of(first)[1:] == header_of(second)[1:]
    one, two = plain(load_recipe(first)), plain(load_recipe(second))
    for tree in (one, two):
        for key in ("name", "about", "published"):
            del tree[key]
        del tree["batches"]["labeled_cases"]
    assert one == two


@pytest.mark.parametrize(("bound", "like"), [("la-80", "la-8"), ("acdc-70", "acdc-7")])
def test_an_upper_bound_differs_only_in_the_number_of_labels(bound: str, like: str) -> None:
    one, two = (load_recipe(f"{name}/supervised") for name in (bound, like))
    assert one.stages == two.stages and one.inference == two.inference and one.selection == two.selection
    count = one.batches.labeled_cases
    assert one.batches == two.batches.model_copy(update={"labeled_cases": count})


@each
def test_networks_and_methods_build(name: str) -> None:
    recipe, data, meta = load_recipe(name), set_of(name), torch.device("meta")
    for stage in recipe.stages:
        with meta:
            method = build_method(recipe, stage, 1, CLASSES[data], meta)
        assert parameter_count(method.student) == PARAMETERS[data]


@each
def test_the_data_is_taken_as_the_readers_give_it(name: str) -> None:
    assert load_recipe(name).data == identity_settings(2 if set_of(name) == "acdc" else 3)


@each
def test_batches(name: str) -> None:
    supervised = name.endswith("/supervised")
    labeled = {"la": 4, "acdc": 24 if supervised else 12, "pancreas": 4}[set_of(name)]
    usual = {"unlabeled_crop": "random", "order": "shuffled", "validation_cases": 0, "fit": "crop"}
    usual |= {"held_out": [], "foreground": 0.0, "warp": None, "intensity": None}
    expected = {
        "la": {"patch": [112, 112, 80], "augment": {"rotate_flip": 1.0, "rotate": 0.0, "degrees": 20, "margin": 3}},
        "acdc": {
            "patch": [256, 256],
            "fit": "stretch",
            "augment": {"rotate_flip": 0.5, "rotate": 0.5, "degrees": 20, "margin": 3},
        },
        "pancreas": {
            "patch": [96, 96, 96],
            "augment": {"rotate_flip": 0.0, "rotate": 0.0, "degrees": 20, "margin": 1},
            **({} if supervised else {"unlabeled_crop": "centre", "order": "mirrored"}),
        },
    }[set_of(name)]
    counts = {"labeled": labeled, "unlabeled": 0 if supervised else labeled}
    cases = {"labeled_cases": LABELED_CASES[name.split("/")[0]]}
    assert plain(load_recipe(name))["batches"] == {**usual, **counts, **cases, **expected}


def stage_of(stage: dict[str, Any]) -> tuple[Any, ...]:
    """Method, steps, settings, optimiser, schedule and whether momenta are carried over."""
    optimizer = dict(stage["optimizer"])
    schedule = optimizer.pop("schedule")
    return stage["method"], stage["steps"], stage["settings"], optimizer, schedule, stage["carry_optimizer"]


PRETRAIN = {
    "beta": 2 / 3,
    "mixing": True,
    "mask": {"name": "box"},
    "loss": "whole",
    "dice": "per-sample",
    "legacy_background_mask": False,
}
BCP = {
    "alpha": 0.5,
    "beta": 2 / 3,
    "direction": "both",
    "mask": {"name": "box"},
    "ema_decay": 0.99,
    "ema_scope": "parameters",
    "decision": "threshold",
    "largest_component": True,
    "connectivity": None,
    "dice": "per-sample",
    "legacy_background_mask": False,
    "labeled_weight": 0.0,
    "joint": False,
}
STAGES: dict[tuple[str, str], list[tuple[Any, ...]]] = {
    ("la", "bcp"): [
        ("bcp-pretrain", 2000, PRETRAIN, SGD, CONSTANT, False),
        ("bcp", 15000, BCP, SGD, STEP, False),
    ],
    ("acdc", "bcp"): [
        ("bcp-pretrain", 10000, PRETRAIN | {"loss": "regions", "dice": "over-batch"}, SGD, CONSTANT, False),
        (
            "bcp",
            30000,
            BCP | {"ema_scope": "state", "decision": "argmax", "dice": "over-batch"},
            SGD,
            CONSTANT,
            True,
        ),
    ],
    ("pancreas", "bcp"): [
        ("bcp-pretrain", 59 * 30, PRETRAIN, ADAM, CONSTANT, False),
        ("bcp", 5000, BCP | {"connectivity": 2}, ADAM, CONSTANT, True),
    ],
    ("la", "supervised"): [("supervised", 15000, {"dice": "foreground"}, SGD, STEP, False)],
    ("acdc", "supervised"): [("supervised", 30000, {"dice": "classes"}, SGD, POLY, False)],
    ("pancreas", "supervised"): [("supervised", 59 * 30 + 5000, {"dice": "per-sample"}, ADAM, CONSTANT, False)],
}


@each
def test_stages(name: str) -> None:
    recipe = load_recipe(name)
    assert [stage_of(stage) for stage in plain(recipe)["stages"]] == STAGES[set_of(name), name.split("/")[1]]
    assert not recipe.fast and recipe.loop.precision == "float32" and recipe.seed == 0
    network = {"la": "vnet-bn", "acdc": "unet-2d", "pancreas": "vnet-in"}[set_of(name)]
    assert (recipe.network.name, recipe.network.width, recipe.network.levels) == (network, 16, 5)
    assert recipe.network.dropout


@each
def test_inference(name: str) -> None:
    chosen = load_recipe(name).inference
    windows, decisions = {
        "la": (("uniform", (18, 18, 4)), ("threshold", True)),
        "acdc": (("gaussian", None), ("argmax", False)),
        "pancreas": (("uniform", (16, 16, 4)), ("argmax", False)),
    }[set_of(name)]
    assert (chosen.window, chosen.stride) == windows
    assert (chosen.decision, chosen.largest_component) == decisions


@for_each("name", [name for name in shipped_recipes() if set_of(name) == "la"])
def test_from_which_step_on_students_are_scored_on_the_left_atrium(name: str) -> None:
    """As in SS-Net's code and MC-Net's; in that of copy-paste, whose stages the others have, from the beginning."""
    method = name.split("/")[1]
    from_the_start = method.startswith("bcp") or method in ("coranet", "mixup", "fg-cutmix", "graft")
    first = 0 if from_the_start else 800 if method == "mc-net" else 2000
    chosen = load_recipe(name).selection
    assert (chosen.cases, chosen.every, chosen.first) == ("test", 200, first)


@each
def test_by_default_the_last_checkpoint_is_reported_and_no_label_opened(name: str) -> None:
    chosen = load_recipe(name).selection
    assert chosen.protocol == "last" and chosen.selected_on is None
    assert not (chosen.oracle or chosen.reads_test_labels or chosen.needs_validation)


@each
def test_settings_of_the_paper_protocol(name: str) -> None:
    chosen = load_recipe(name, ["selection.protocol=paper"]).selection
    on, every, stride = {
        "la": ("test", 200, None),
        "acdc": ("validation", 200, None),
        "pancreas": ("test", 500, (18, 18, 4)),
    }[set_of(name)]
    first = 2000 if set_of(name) == "la" and name.endswith("supervised") else 0
    assert (chosen.selected_on, chosen.every, chosen.first, chosen.stride) == (on, every, first, stride)


@pytest.mark.parametrize(
    ("held_out", "protocol", "scored"),
    [(0, "last", []), (1, "last", ["validation"]), (0, "paper", ["test"]), (1, "val", ["validation"])],
)
def test_what_a_recipe_for_selection_on_test_scores(
    store: Store, held_out: int, protocol: str, scored: list[str]
) -> None:
    batches = recipe_tree()["batches"] | {"validation_cases": held_out}
    recipe = tiny_recipe(batches=batches, selection={"cases": "test", "every": 2, "protocol": protocol})
    assert list(scored_cases(recipe, store)) == scored


@each
def test_fast_changes_only_precision_and_joint(name: str) -> None:
    usual, fast = plain(load_recipe(name)), plain(load_recipe(name, ["fast=true"]))
    assert fast["fast"] and fast["loop"].pop("precision") == "bf16"
    del fast["fast"], usual["fast"], usual["loop"]["precision"]
    for one, two in zip(usual["stages"], fast["stages"], strict=True):
        assert (one["settings"].pop("joint", None), two["settings"].pop("joint", None)) in ((False, True), (None, None))
    assert fast == usual
