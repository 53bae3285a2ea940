"""Every whole number of a recipe has an upper bound: beyond it arithmetic overflows, or a loop never ends."""

from collections.abc import Iterator
from typing import Any

import pytest
import tiny
from command_line import CommandLine
from pydantic import BaseModel

from graftseg.errors import UserError
from graftseg.methods import METHODS
from graftseg.recipe import Recipe, changed

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


def unbounded(schema: Any, path: str = "") -> Iterator[str]:
    """Places of a JSON schema that take any whole number."""
    if isinstance(schema, dict) and schema.get("type") == "integer" and not BOUNDS & schema.keys():
        yield path
    below = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in below:
        yield from unbounded(value, f"{path}/{key}")


def test_what_has_no_bound_is_found() -> None:
    class Loose(BaseModel):
        number: int
        few: tuple[int, ...] = ()

    assert list(unbounded(Loose.model_json_schema())) == ["/properties/number", "/properties/few/items"]


@pytest.mark.parametrize("model", [Recipe, *(method.Config for method in METHODS.values())])
def test_every_whole_number_has_a_bound(model: type[BaseModel]) -> None:
    assert list(unbounded(model.model_json_schema())) == []


@pytest.mark.parametrize("setting", SETTINGS)
def test_huge_numbers_are_refused_in_a_sentence(setting: str) -> None:
    # by the name of the setting, without the values of a list
    name = setting.partition("=")[0]
    with pytest.raises(UserError, match=rf"recipe tiny: {name}.*: Input should be less than"):
        changed(tiny.tiny_recipe(), [setting.format(HUGE)])


def test_a_weight_that_no_loss_can_have_is_refused() -> None:
    with pytest.raises(UserError, match="settings of mixup: direct: Input should be less than or equal to 1000000000"):
        tiny.tiny_recipe(stages=[{"method": "mixup", "steps": 2, "settings": {"direct": 1e39}}])


def test_the_command_line_refuses_them(cli: CommandLine) -> None:
    words = ("train", "acdc-3/bcp", "--data", "nowhere", "--out", "run", "--set")
    assert "batches.patch.0: Input should be less than or equal to 65536; correct" in cli.fails(
        *words, f"batches.patch=[{HUGE},32]"
    )
