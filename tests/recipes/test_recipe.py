"""Recipes: shipped ones load, invalid ones are refused."""

from pathlib import Path

import pytest
import torch
import yaml
from tiny import recipe_tree, tiny_recipe

from graftseg.core.errors import Code
from graftseg.inference.model import build_method
from graftseg.methods import METHODS
from graftseg.ops.optimizers import Adam, Sgd
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import changed, load_recipe, training_differences
from loops import for_each
from user_errors import user_error

META = torch.device("meta")
"""Builds full-size networks without weights, which would take seconds to draw."""


@pytest.mark.slow
def test_shipped_recipes_load_and_build() -> None:
    failures = []
    for name in shipped_recipes():
        recipe = load_recipe(name)
        if recipe.name != name or not recipe.about:
            failures.append(name)
        for stage in recipe.stages:
            with META:
                method = build_method(recipe, stage, 1, 4, META)
            if sum(parameter.numel() for parameter in method.student.parameters()) <= 1000:
                failures.append(f"{name}, {stage.method}")
    assert not failures


def test_own_settings_have_a_supervised_baseline_of_the_same_length() -> None:
    for setting in ("default-2d", "default-3d", "demo-2d", "demo-3d"):
        baseline, bcp = load_recipe(f"{setting}/supervised"), load_recipe(f"{setting}/bcp")
        assert sum(stage.steps for stage in baseline.stages) == sum(stage.steps for stage in bcp.stages)
        assert baseline.data == bcp.data and baseline.network == bcp.network and baseline.batches == bcp.batches


def test_resolved_recipe_round_trips(tmp_path: Path) -> None:
    recipe = load_recipe("demo-2d/bcp", ["seed=5", "stages.1.settings.alpha=1.5"])
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    assert load_recipe(path) == recipe
    assert recipe.seed == 5 and recipe.stages[1].settings["alpha"] == 1.5


def test_recipe_based_on_another(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: demo-2d/bcp\nname: mine\nbatches: {patch: [32, 32]}\n")
    mine, base = load_recipe(tmp_path / "mine.yaml"), load_recipe("demo-2d/bcp")
    assert mine.batches.patch == (32, 32) and mine.batches.labeled == base.batches.labeled
    assert mine.stages == base.stages
    assert training_differences(mine, base) == ["batches.patch.0", "batches.patch.1"]


def test_list_items_of_the_base_are_changed_by_index(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "base: demo-2d/bcp\nname: mine\nstages:\n  1: {steps: 7, settings: {alpha: 1.5}}\nbatches: {patch: {0: 32}}\n"
    )
    mine, base = load_recipe(tmp_path / "mine.yaml"), load_recipe("demo-2d/bcp")
    assert training_differences(mine, base) == ["batches.patch.0", "stages.1.settings.alpha", "stages.1.steps"]
    assert (mine.stages[1].steps, mine.stages[1].settings["alpha"], mine.batches.patch) == (7, 1.5, (32, 64))


def test_null_removes_a_list_item_of_the_base(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: demo-2d/bcp\nname: mine\nstages: {0: null}\n")
    assert load_recipe(tmp_path / "mine.yaml").stages == load_recipe("demo-2d/bcp").stages[1:]


@pytest.mark.parametrize("items", ["{2: {steps: 1}}", "{first: {steps: 1}}", "{-1: null}"])
def test_unknown_items_of_the_base_are_refused(tmp_path: Path, items: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"base: demo-2d/bcp\nname: mine\nstages: {items}\n")
    with user_error(Code.RECIPE_INVALID, "mine.yaml: stages", "from 0 to 1"):
        load_recipe(tmp_path / "mine.yaml")


def test_the_defaults_of_methods_are_written_out() -> None:
    recipe = load_recipe("demo-2d/bcp")
    assert recipe.stages[1].settings["alpha"] == 0.5 and recipe.stages[1].settings["ema_decay"] == 0.99
    assert recipe.stages[0].settings["beta"] == pytest.approx(2 / 3)
    assert changed(recipe, ["stages.1.settings.alpha=1.5"]).stages[1].settings["alpha"] == 1.5


@pytest.mark.parametrize("method", ["dan", "sassnet", "advent-adversarial"])
def test_discriminator_has_its_own_default_optimizer(method: str) -> None:
    """The student's optimizer would be too fast; the recipe may still set another."""
    stage = {"method": method, "steps": 2, "optimizer": {"name": "sgd", "learning_rate": 0.5}}
    (usual,) = tiny_recipe(stages=[stage]).stages
    assert usual.optimizers == {"discriminator": Adam(learning_rate=1e-4, betas=(0.9, 0.99))}
    assert usual.optimizer_of("student") == Sgd(learning_rate=0.5)
    own = {"discriminator": {"name": "sgd", "learning_rate": 0.25}}
    (given,) = tiny_recipe(stages=[stage | {"optimizers": own}]).stages
    assert given.optimizers == {"discriminator": Sgd(learning_rate=0.25)}
    student = {"student": {"name": "sgd", "learning_rate": 0.25}}
    assert tiny_recipe(stages=[stage | {"optimizers": student}]).stages[0].optimizers.keys() == {
        "student",
        "discriminator",
    }
    # early runs used the student's optimizer for the discriminator
    assert tiny_recipe(stages=[stage | {"optimizers": {}}]).stages[0].optimizers == {}
    assert set(METHODS[method].default_optimizers) <= set(METHODS[method].trained_modules)


def test_first_scored_step_matters_only_if_checkpoints_are_selected() -> None:
    early, late = (tiny_recipe(selection={"every": 1, "first": first}) for first in (0, 2))
    assert training_differences(early, late) == []
    for scored in ("selection.protocol=val", "selection.oracle=true"):
        assert training_differences(*(changed(one, [scored]) for one in (early, late))) == ["selection.first"]


def test_fast_is_written_out() -> None:
    fast, usual = tiny_recipe(fast=True, loop={"log_every": 7}), tiny_recipe()
    assert fast.fast and fast.loop.precision == "bf16" and fast.loop.log_every == 7
    assert "joint" not in fast.stages[0].settings and fast.stages[1].settings["joint"] is True
    assert not usual.fast and usual.loop.precision == "float32" and usual.stages[1].settings["joint"] is False
    assert training_differences(fast, usual) == ["fast", "loop.precision", "stages.1.settings.joint"]


def test_a_fast_recipe_reads_back_and_changes(tmp_path: Path) -> None:
    fast = load_recipe("default-3d/bcp", ["fast=true"])
    path = tmp_path / "recipe.yaml"
    path.write_text(fast.to_yaml())
    assert load_recipe(path) == fast == changed(fast, ["fast=true"])
    assert changed(fast, ["seed=3"]).stages == fast.stages


@pytest.mark.parametrize("contradiction", ["loop.precision=float32", "stages.1.settings.joint=false"])
def test_contradictions_to_fast_are_refused(contradiction: str) -> None:
    with user_error(Code.SETTING_INVALID, contradiction, contradiction.partition("=")[0]):
        load_recipe("demo-2d/bcp", ["fast=true", contradiction])


@pytest.mark.parametrize("overrides", [["loop.precision=bf16"], ["stages.1.settings.joint=true"]])
def test_what_agrees_with_fast(overrides: list[str]) -> None:
    assert load_recipe("demo-2d/bcp", ["fast=true", *overrides]) == load_recipe("demo-2d/bcp", ["fast=true"])


def test_shared_bases_are_for_shipped_recipes_only(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: la/_bcp\nname: mine\n")
    with user_error(Code.RECIPE_MISSING, "mine.yaml", "la/_bcp"):
        load_recipe(tmp_path / "mine.yaml")


def test_cycles_of_recipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: b\nname: a\n")
    (tmp_path / "b.yaml").write_text("base: a\nname: b\n")
    with user_error(Code.RECIPE_INVALID, "a.yaml", "through b.yaml"):
        load_recipe(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("base: c\nname: b\n")
    (tmp_path / "c.yaml").write_text(f"base: ../{tmp_path.name}/b\nname: c\n")
    with user_error(Code.RECIPE_INVALID, "b.yaml", "through c.yaml"):
        load_recipe(tmp_path / "a.yaml")


def test_log_settings_are_no_difference() -> None:
    other = recipe_tree()
    other["loop"] = {"log_every": 7}
    assert training_differences(tiny_recipe(), tiny_recipe(loop=other["loop"])) == []
    assert training_differences(tiny_recipe(), tiny_recipe(loop={"precision": "bf16"})) == ["loop.precision"]


@for_each(
    ("setting", "keyword"),
    [
        ("stages.0.stepss=3", "stages.0.stepss"),
        ("network.depth=3", "name, width, levels, dropout"),
        ("seed=-1", "seed"),
        ("batches.labeled=3", "batches.labeled is 3"),
        ("batches.unlabeled=2", "batches.unlabeled"),
        ("batches.patch=[60, 64]", "multiples of 8"),
        ("batches.patch=[64, 64, 64]", "batches.patch has 3 axes"),
        ("stages.1.settings.alphaa=2", "alpha, ema_decay"),
        ("stages.1.method=bpc", "'bpc'"),
        ("stages.1.optimizers={critic: {name: adam}}", "critic"),
        ("stages.1.settings.connectivity=3", "connectivity"),
        ("stages.1.settings={legacy_background_mask: true}", "legacy_background_mask"),
        ("stages.1.settings={largest_component: false, connectivity: 1}", "connectivity"),
        ("stages.1.settings.direction=inward", "'both', 'in', 'out'"),
        ("stages.1.settings={direction: none, mask: {name: random}}", "direction: none"),
        ("stages.1.settings.mask={name: random, sizes: [3]}", "mask.sizes"),
        ("stages.0.settings.mask={name: contact, axis: 2}", "mask.axis"),
        ("stages.0.settings.mixing=false", "mixing: false"),
        ("stages.0.carry_optimizer=true", "carry_optimizer"),
        ("stages.1={method: bcp, steps: 1, carry_optimizer: true}", "carry_optimizer"),
        ("stages.1.optimizer.momentum=0.5", "stages.1.optimizer.adam.momentum"),
        ("batches.validation_cases=1", "selection.every"),
        ("selection.protocol=best", "'last', 'val' or 'paper'"),
        ("selection.stride=[65, 1]", "selection.stride"),
        ("batches.patch=[8, 8]", "one voxel"),
        ("inference.stride=[65, 1]", "inference.stride"),
        ("inference.stride=[1, 1, 1]", "inference.stride"),
        ("seed=99999999999999999999", "9223372036854775808"),
        ("stages=[]", "at least 1 item"),
        ("batches.held_out=0", "should be a list"),
        ("data.intensity=zscore", "should be a mapping"),
        ("stages.0.optimizers=[]", "should be a mapping"),
        ("stages.0.optimizer.schedule=poly", "should be a mapping"),
        ("data.intensity.low=.nan", "finite"),
    ],
)
def test_contradictions_are_refused(setting: str, keyword: str) -> None:
    with user_error(Code.SETTING_INVALID, f"--set {setting}", keyword):
        load_recipe("demo-2d/bcp", [setting])


def test_invalid_recipe_is_blamed_instead_of_the_override(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: demo-2d/bcp\nname: mine\nnetwork: {width: 0}\n")
    with user_error(Code.RECIPE_INVALID, path, "network.width"):
        load_recipe(path, ["seed=1"])
    assert load_recipe(path, ["network.width=8"]).network.width == 8


@pytest.mark.parametrize("setting", ["steps", "=3", "stages.9.steps=1", "name.x=1", "stages.x.steps=1", "seed={"])
def test_malformed_overrides_are_refused(setting: str) -> None:
    with user_error(Code.SETTING_INVALID, f"--set {setting}", "key=value"):
        load_recipe("demo-2d/bcp", [setting])


@pytest.mark.parametrize(
    ("content", "code", "keyword"),
    [
        ("a: [", Code.RECIPE_INVALID, "YAML"),
        ("", Code.RECIPE_INVALID, "no settings"),
        ("- 1", Code.RECIPE_INVALID, "no settings"),
        ("name: x", Code.RECIPE_INVALID, "Field required"),
        ("base: nothing\nname: x", Code.RECIPE_MISSING, "nothing"),
        ("base: mine\nname: x", Code.RECIPE_INVALID, "based on itself"),
        ("!!python/object/apply:os.system ['true']", Code.RECIPE_INVALID, "YAML"),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, content: str, code: Code, keyword: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with user_error(code, path, keyword):
        load_recipe(path)


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with user_error(Code.RECIPE_MISSING, "demo-2d/bpc", "demo-2d/bcp"):
        load_recipe("demo-2d/bpc")
    for name in ("demo-2d/_base", "la/_base"):
        with user_error(Code.RECIPE_MISSING, name):
            load_recipe(name)
    with user_error(Code.READ_FAILED, tmp_path / "absent.yaml"):
        load_recipe(tmp_path / "absent.yaml")


def test_yaml_is_plain() -> None:
    assert yaml.safe_load(tiny_recipe().to_yaml())["stages"][0]["method"] == "bcp-pretrain"


@pytest.mark.parametrize(
    ("change", "keyword"),
    [
        (["stages.1.method=fg-cutmix", "stages.1.settings={cells: [9, 4]}"], "[9, 4]"),
        (["stages.1.settings.mask={name: contact, thickness: 9}"], "[9]"),
        (["stages.1.method=dan", "stages.1.settings={}"], "16"),
    ],
)
def test_too_small_patches_are_refused_with_the_recipe(change: list[str], keyword: str) -> None:
    with user_error(Code.RECIPE_INVALID, "recipe tiny", keyword):
        changed(tiny_recipe(batches={"patch": [8, 8]}), change)
