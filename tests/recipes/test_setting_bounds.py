"""Every number of a recipe has an upper bound: beyond it arithmetic overflows, or a loop never ends."""

from collections.abc import Iterator
from typing import Any

import pytest
import tiny
from command_line import CommandLine
from pydantic import BaseModel, Field, ValidationError

from graftseg.core.errors import UserError
from graftseg.methods import METHODS
from graftseg.methods.bcp import BcpConfig
from graftseg.recipes.recipe import Recipe, changed
from loops import for_each

HUGE = "1" + "0" * 400
BOUNDS = {"maximum", "exclusiveMaximum", "enum", "const"}
SETTINGS = [
    "batches.patch=[{},32]",
    "batches.labeled={}",
    "batches.unlabeled={}",
    "batches.labeled_cases={}",
    "batches.validation_cases={}",
    "batches.augment.margin={}",
    "inference.windows_per_forward={}",
    "inference.stride=[{},1]",
    "loop.log_every={}",
    "loop.checkpoint_every={}",
    "loop.snapshots={}",
    "network.width={}",
    "selection.every={}",
    "selection.first={}",
    "stages.0.steps={}",
    "folds={}",
]
FRACTIONS = [
    "data.spacing=[{},1]",
    "data.intensity={{rule: window, low: 0, high: {}}}",
    "data.intensity={{rule: window-zscore, low: 0, high: 1, mean: 0, std: {}}}",
    "stages.0.optimizer={{name: sgd, learning_rate: {}}}",
    "stages.0.optimizer={{name: adam, learning_rate: {}}}",
    "stages.0.optimizer={{name: sgd, weight_decay: {}}}",
    "stages.0.optimizer={{name: adam, weight_decay: {}}}",
    "stages.0.optimizer={{name: sgd, clip_gradient: {}}}",
    "stages.0.optimizer={{name: adam, schedule: {{name: poly, power: {}}}}}",
]


def unbounded(schema: Any, path: str = "") -> Iterator[str]:
    """Places of a JSON schema that take any number."""
    if isinstance(schema, dict) and schema.get("type") in ("integer", "number") and not BOUNDS & schema.keys():
        yield path
    below = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in below:
        yield from unbounded(value, f"{path}/{key}")


def test_what_has_no_bound_is_found() -> None:
    class Loose(BaseModel):
        number: int
        few: tuple[int, ...] = ()
        share: float | None = Field(None, gt=0)

    found = ["/properties/number", "/properties/few/items", "/properties/share/anyOf/0"]
    assert list(unbounded(Loose.model_json_schema())) == found


@for_each("model", [Recipe, *(method.Config for method in METHODS.values())])
def test_every_number_has_a_bound(model: type[BaseModel]) -> None:
    assert list(unbounded(model.model_json_schema())) == []


@for_each(("setting", "huge"), [*((one, HUGE) for one in SETTINGS), *((one, "1.0e+300") for one in FRACTIONS)])
def test_huge_numbers_are_refused_in_a_sentence(setting: str, huge: str) -> None:
    # by the name of the setting, without the values of a list
    name = setting.partition("=")[0]
    with pytest.raises(UserError, match=rf"recipe tiny: {name}.*: Input should be less than"):
        changed(tiny.tiny_recipe(), [setting.format(huge)])


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("mixup", "direct"),
        ("mixup", "unlabeled_ratio"),
        ("dtc", "sharpness"),
        ("ua-mt", "threshold_start"),
        ("ua-mt", "threshold_end"),
    ],
)
def test_numbers_that_overflow_a_loss_are_refused(method: str, name: str) -> None:
    finding = f"settings of {method}: {name}: Input should be less than or equal to 1000000000"
    with pytest.raises(UserError, match=finding):
        tiny.tiny_recipe(stages=[{"method": method, "steps": 2, "settings": {name: 1e39}}])


def test_the_command_line_refuses_them(cli: CommandLine) -> None:
    words = ("train", "acdc-3/bcp", "--data", "nowhere", "--out", "run", "--set")
    assert "batches.patch.0: Input should be less than or equal to 65536; correct" in cli.fails(
        *words, f"batches.patch=[{HUGE},32]"
    )


@for_each(
    ("setting", "place", "value"),
    [
        ("network.width=true", "network.width", "true"),
        ("stages.0.steps=true", "stages.0.steps", "true"),
        ("seed=false", "seed", "false"),
        ("folds=true", "folds", "true"),
        ("batches.patch=[32,true]", "batches.patch.1", "true"),
        ("batches.foreground=true", "batches.foreground", "true"),
        ("data.spacing=[true,1]", "data.spacing.0", "true"),
        ("stages.0.optimizer={name: adam, betas: [false, 0.9]}", "stages.0.optimizer.adam.betas.0", "false"),
    ],
)
def test_a_truth_value_is_no_number(setting: str, place: str, value: str) -> None:
    with pytest.raises(UserError) as caught:
        changed(tiny.tiny_recipe(), [setting])
    assert caught.value.finding == f"{place}: should be a number, not {value}"


def test_booleans_are_accepted_by_boolean_settings() -> None:
    chosen = changed(tiny.tiny_recipe(), ["network.dropout=false", "loop.compiled=false", "baseline=true"])
    assert (chosen.network.dropout, chosen.loop.compiled, chosen.baseline) == (False, False, True)
    assert BcpConfig(largest_component=False).largest_component is False
    assert BcpConfig(largest_component=(1, 2)).largest_component == (1, 2)
    with pytest.raises(ValidationError, match="should be a number, not true"):
        BcpConfig.model_validate({"largest_component": [True]})
