"""Recipes: shipped ones are sound, wrong ones are refused in one sentence."""

from pathlib import Path

import pytest
import torch
import yaml
from tiny import recipe_tree, tiny_recipe

from graftseg.core.errors import UserError
from graftseg.inference.model import build_method
from graftseg.methods import METHODS
from graftseg.ops.optimizers import Adam, Sgd
from graftseg.recipes.recipe import changed, differences, load_recipe, shipped_recipes

META = torch.device("meta")
"""Networks of full size without their weights, which would be drawn for seconds and are not looked at."""


@pytest.mark.parametrize("name", shipped_recipes())
def test_shipped_recipes_load_and_build(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.name == name and recipe.about
    for stage in recipe.stages:
        with META:
            method = build_method(recipe, stage, 1, 4, META)
        assert sum(parameter.numel() for parameter in method.student.parameters()) > 1000


def test_each_setting_of_our_own_has_its_supervised_baseline_of_the_same_length() -> None:
    for setting in ("default-2d", "default-3d", "demo-2d", "demo-3d"):
        baseline, bcp = load_recipe(f"{setting}/supervised"), load_recipe(f"{setting}/bcp")
        assert sum(stage.steps for stage in baseline.stages) == sum(stage.steps for stage in bcp.stages)
        assert baseline.data == bcp.data and baseline.network == bcp.network and baseline.batches == bcp.batches


def test_the_resolved_recipe_reads_back(tmp_path: Path) -> None:
    recipe = load_recipe("demo-2d/bcp", ["seed=5", "stages.1.settings.alpha=1.5"])
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    assert load_recipe(path) == recipe
    assert recipe.seed == 5 and recipe.stages[1].settings["alpha"] == 1.5


def test_a_recipe_can_rest_on_another(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: demo-2d/bcp\nname: mine\nbatches: {patch: [32, 32]}\n")
    mine, base = load_recipe(tmp_path / "mine.yaml"), load_recipe("demo-2d/bcp")
    assert mine.batches.patch == (32, 32) and mine.batches.labeled == base.batches.labeled
    assert mine.stages == base.stages
    assert differences(mine, base) == ["batches.patch.0", "batches.patch.1"]


def test_items_of_a_list_of_the_base_are_changed_by_their_number(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "base: demo-2d/bcp\nname: mine\nstages:\n  1: {steps: 7, settings: {alpha: 1.5}}\nbatches: {patch: {0: 32}}\n"
    )
    mine, base = load_recipe(tmp_path / "mine.yaml"), load_recipe("demo-2d/bcp")
    assert differences(mine, base) == ["batches.patch.0", "stages.1.settings.alpha", "stages.1.steps"]
    assert (mine.stages[1].steps, mine.stages[1].settings["alpha"], mine.batches.patch) == (7, 1.5, (32, 64))


def test_an_item_of_a_list_of_the_base_is_left_out_by_null(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: demo-2d/bcp\nname: mine\nstages: {0: null}\n")
    assert load_recipe(tmp_path / "mine.yaml").stages == load_recipe("demo-2d/bcp").stages[1:]


@pytest.mark.parametrize("items", ["{2: {steps: 1}}", "{first: {steps: 1}}", "{-1: null}"])
def test_items_that_the_base_does_not_have(tmp_path: Path, items: str) -> None:
    (tmp_path / "mine.yaml").write_text(f"base: demo-2d/bcp\nname: mine\nstages: {items}\n")
    with pytest.raises(UserError, match=r"mine.yaml: stages: the base has no item .*; count the items .* from 0 to 1"):
        load_recipe(tmp_path / "mine.yaml")


def test_the_defaults_of_methods_are_written_out() -> None:
    recipe = load_recipe("demo-2d/bcp")
    assert recipe.stages[1].settings["alpha"] == 0.5 and recipe.stages[1].settings["ema_decay"] == 0.99
    assert recipe.stages[0].settings["beta"] == pytest.approx(2 / 3)
    assert changed(recipe, ["stages.1.settings.alpha=1.5"]).stages[1].settings["alpha"] == 1.5


@pytest.mark.parametrize("method", ["dan", "sassnet", "advent-adversarial"])
def test_a_discriminator_has_its_usual_optimiser(method: str) -> None:
    """Not the student's, of which it would learn too fast; what the recipe says comes first."""
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
    # a run of old, whose discriminator had the student's
    assert tiny_recipe(stages=[stage | {"optimizers": {}}]).stages[0].optimizers == {}
    assert set(METHODS[method].usual_optimizers) <= set(METHODS[method].moves)


def test_when_scoring_begins_makes_no_other_training_where_the_last_checkpoint_is_reported() -> None:
    early, late = (tiny_recipe(selection={"every": 1, "first": first}) for first in (0, 2))
    assert differences(early, late) == []
    for scored in ("selection.protocol=val", "selection.oracle=true"):
        assert differences(*(changed(one, [scored]) for one in (early, late))) == ["selection.first"]


def test_fast_is_written_out() -> None:
    fast, usual = tiny_recipe(fast=True, loop={"log_every": 7}), tiny_recipe()
    assert fast.fast and fast.loop.precision == "bf16" and fast.loop.log_every == 7
    assert "joint" not in fast.stages[0].settings and fast.stages[1].settings["joint"] is True
    assert not usual.fast and usual.loop.precision == "float32" and usual.stages[1].settings["joint"] is False
    assert differences(fast, usual) == ["fast", "loop.precision", "stages.1.settings.joint"]


def test_a_fast_recipe_reads_back_and_changes(tmp_path: Path) -> None:
    fast = load_recipe("default-3d/bcp", ["fast=true"])
    path = tmp_path / "recipe.yaml"
    path.write_text(fast.to_yaml())
    assert load_recipe(path) == fast == changed(fast, ["fast=true"])
    assert changed(fast, ["seed=3"]).stages == fast.stages


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["loop.precision=float32"], "fast means loop.precision: bf16, and the recipe says float32"),
        (
            ["stages.1.settings.joint=false"],
            "fast means joint: true, and the recipe says stages.1.settings.joint: false",
        ),
    ],
)
def test_what_contradicts_fast(overrides: list[str], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("demo-2d/bcp", ["fast=true", *overrides])
    assert sentence in str(caught.value)


@pytest.mark.parametrize("overrides", [["loop.precision=bf16"], ["stages.1.settings.joint=true"]])
def test_what_agrees_with_fast(overrides: list[str]) -> None:
    assert load_recipe("demo-2d/bcp", ["fast=true", *overrides]) == load_recipe("demo-2d/bcp", ["fast=true"])


def test_shared_parts_of_the_package_are_for_shipped_recipes_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("base: la/_bcp\nname: mine\n")
    with pytest.raises(UserError, match="its base 'la/_bcp' is neither a file nor a shipped recipe"):
        load_recipe(tmp_path / "mine.yaml")


def test_a_circle_of_recipes(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("base: b\nname: a\n")
    (tmp_path / "b.yaml").write_text("base: a\nname: b\n")
    with pytest.raises(UserError, match=r"a.yaml: is based on itself, through b.yaml; name another recipe as base"):
        load_recipe(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text("base: c\nname: b\n")
    (tmp_path / "c.yaml").write_text(f"base: ../{tmp_path.name}/b\nname: c\n")
    with pytest.raises(UserError, match=r"b.yaml: is based on itself, through c.yaml; name another recipe as base"):
        load_recipe(tmp_path / "a.yaml")


def test_how_a_run_logs_is_no_difference() -> None:
    other = recipe_tree()
    other["loop"] = {"log_every": 7}
    assert differences(tiny_recipe(), tiny_recipe(loop=other["loop"])) == []
    assert differences(tiny_recipe(), tiny_recipe(loop={"precision": "bf16"})) == ["loop.precision"]


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("stages.0.stepss=3", "stages.0.stepss: unknown setting (there are method, steps, settings, optimizer"),
        ("network.depth=3", "network.depth: unknown setting (there are name, width, levels, dropout)"),
        ("seed=-1", "seed: Input should be greater than or equal to 0"),
        ("batches.labeled=3", "batches.labeled is 3; copy-paste pairs images up and needs an even number"),
        ("batches.unlabeled=2", "batches.labeled is 4 and batches.unlabeled 2; copy-paste pairs them up"),
        ("batches.patch=[60, 64]", "batches.patch [60, 64] must be multiples of 8 for 4 levels"),
        ("batches.patch=[64, 64, 64]", "data.dimensions is 2, batches.patch has 3 axes and network unet-2d has 2"),
        (
            "stages.1.settings.alphaa=2",
            "settings of bcp: alphaa: unknown setting (there are alpha, ema_decay, ema_scope",
        ),
        ("stages.1.method=bpc", "unknown method 'bpc', choose one of supervised, "),
        ("stages.1.optimizers={critic: {name: adam}}", "method bcp has no critic to optimise"),
        ("stages.1.settings.connectivity=3", "connectivity is 3 and there are only 2 axes"),
        ("stages.1.settings={legacy_background_mask: true}", "legacy_background_mask needs dice: over-batch"),
        ("stages.1.settings={largest_component: false, connectivity: 1}", "connectivity is read only with"),
        ("stages.1.settings.direction=inward", "settings of bcp: direction: Input should be 'both', 'in', 'out'"),
        ("stages.1.settings={direction: none, mask: {name: random}}", "mask is not read with direction: none"),
        ("stages.1.settings.mask={name: random, sizes: [3]}", "mask.sizes has 1 numbers and there are 2 axes"),
        (
            "stages.0.settings.mask={name: contact, axis: 2}",
            "mask.axis is 2, counted from 0, and there are only 2 axes",
        ),
        ("stages.0.settings.mixing=false", "mixing: false needs loss: whole and reads no mask"),
        ("stages.0.carry_optimizer=true", "carry_optimizer needs a stage before it with an optimizer of the same name"),
        ("stages.1={method: bcp, steps: 1, carry_optimizer: true}", "an optimizer of the same name"),
        ("stages.1.optimizer.momentum=0.5", "stages.1.optimizer.adam.momentum: unknown setting"),
        ("batches.validation_cases=1", "holds cases out and nothing scores them; set selection.every"),
        ("selection.protocol=best", "selection.protocol: Input should be 'last', 'val' or 'paper'"),
        ("selection.stride=[65, 1]", "selection.stride [65, 1] does not fit windows of batches.patch [64, 64]"),
        ("batches.patch=[8, 8]", "is one voxel at the coarsest level; double it along an axis"),
        ("inference.stride=[65, 1]", "inference.stride [65, 1] does not fit windows of batches.patch [64, 64]"),
        ("inference.stride=[1, 1, 1]", "inference.stride [1, 1, 1] does not fit windows"),
        ("seed=99999999999999999999", "seed: Input should be less than 9223372036854775808"),
        ("stages=[]", "stages: the list should have at least 1 item, not 0"),
        ("batches.held_out=0", "batches.held_out: should be a list"),
        ("data.intensity=zscore", "data.intensity: should be a group of settings, key: value"),
        ("stages.0.optimizers=[]", "stages.0.optimizers: should be a group of settings, key: value"),
        ("stages.0.optimizer.schedule=poly", "schedule: should be a group of settings, key: value"),
        ("data.intensity.low=.nan", "data.intensity.low: Input should be a finite number"),
    ],
)
def test_contradictions_are_refused(override: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("demo-2d/bcp", [override])
    assert sentence in str(caught.value) and str(caught.value).endswith("; correct the setting.")
    assert caught.value.where == f"--set {override}"


def test_a_recipe_that_is_wrong_by_itself_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: demo-2d/bcp\nname: mine\nnetwork: {width: 0}\n")
    with pytest.raises(UserError) as caught:
        load_recipe(path, ["seed=1"])
    finding = "network.width: Input should be greater than or equal to 1"
    assert str(caught.value) == f"{path} --set seed=1: {finding}; correct the recipe."
    assert load_recipe(path, ["network.width=8"]).network.width == 8


@pytest.mark.parametrize("override", ["steps", "=3", "stages.9.steps=1", "name.x=1", "stages.x.steps=1", "seed={"])
def test_overrides_that_fit_nowhere(override: str) -> None:
    with pytest.raises(UserError, match="write --set key=value with a dotted key"):
        load_recipe("demo-2d/bcp", [override])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("a: [", "not valid YAML"),
        ("", "holds no settings"),
        ("- 1", "holds no settings"),
        ("name: x", "Field required"),
        ("base: nothing\nname: x", "neither a file nor a shipped recipe"),
        ("base: mine\nname: x", "is based on itself; name another recipe as base"),
        ("!!python/object/apply:os.system ['true']", "not valid YAML"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, content: str, sentence: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(content)
    with pytest.raises(UserError) as caught:
        load_recipe(path)
    assert sentence in str(caught.value)


def test_unknown_names_are_answered_with_a_choice(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"graftseg doctor has a list \(perhaps demo-2d/bcp is meant\)"):
        load_recipe("demo-2d/bpc")
    with pytest.raises(UserError, match="neither a file nor a shipped recipe"):
        load_recipe("demo-2d/_base")
    with pytest.raises(UserError, match="neither a file nor a shipped recipe"):
        load_recipe("la/_base")
    with pytest.raises(UserError, match="cannot be read"):
        load_recipe(tmp_path / "absent.yaml")


def test_yaml_is_plain() -> None:
    assert yaml.safe_load(tiny_recipe().to_yaml())["stages"][0]["method"] == "bcp-pretrain"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (["stages.1.method=fg-cutmix", "stages.1.settings={cells: [9, 4]}"], "a grid of [9, 4] cells has more of them"),
        (["stages.1.settings.mask={name: contact, thickness: 9}"], "mask: a slab of [9]"),
        (
            ["stages.1.method=dan", "stages.1.settings={}"],
            "batches.patch has a side of 8 and the method needs 16 at least",
        ),
    ],
)
def test_patches_that_are_too_small_are_refused_with_the_recipe(change: list[str], finding: str) -> None:
    """Before scans are prepared, which may take long."""
    with pytest.raises(UserError) as caught:
        changed(tiny_recipe(batches={"patch": [8, 8]}), change)
    assert finding in str(caught.value)
