"""Label maps without small components: settings, volumes in milliliters, and errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from numpy.typing import NDArray
from tiny import tiny_recipe
from torch import Tensor

from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.grid import plan_grid, to_grid
from graftseg.inference.label_maps import LABELS_ONLY, clean_labels
from graftseg.inference.predictor import COMPONENT_BYTES, Predictor, host_bytes
from graftseg.recipes.recipe import load_recipe, parse_recipe
from graftseg.recipes.settings import InferenceSettings
from user_errors import user_error

CPU = torch.device("cpu")


def settings_of(**values: Any) -> InferenceSettings:
    return InferenceSettings.model_validate(values)


def brighter(images: Tensor) -> Tensor:
    """Return a network that finds foreground where the image is above 0.5."""
    bright = (images[:, :1] > 0.5).float()
    return torch.cat([1 - bright, bright], dim=1)


def boxes(*sides: int) -> NDArray[np.float32]:
    """Return an image of 40 x 10 x 10 voxels with a bright cube of each side length."""
    image = np.zeros((40, 10, 10), np.float32)
    for number, side in enumerate(sides):
        image[number * 8 : number * 8 + side, :side, :side] = 1
    return image


def predicted_sides(settings: InferenceSettings, spacing: float | None = None) -> list[int]:
    """Predict cubes of 2, 4, 3 and 4 voxels of 0.5 x 1 x 2 mm. Return the side lengths of the cubes that are kept."""
    sides = (2, 4, 3, 4)
    affine = tuple(tuple(row) for row in np.diag([-0.5, 1.0, 2.0, 1.0]).tolist())
    steps = None if spacing is None else (spacing,) * 3
    grid = plan_grid(Geometry((40, 10, 10), affine), orientation="RAS", spacing=steps)
    image = torch.from_numpy(to_grid(boxes(*sides)[None], grid, labels=False))
    labels = Predictor(brighter, (16, 8, 8), settings, 2, CPU).maps(image, grid).labels
    return [side for number, side in enumerate(sides) if labels[number * 8, 0, 0]]


def test_the_largest_components_are_kept() -> None:
    assert predicted_sides(settings_of()) == [2, 4, 3, 4]
    assert predicted_sides(settings_of(keep_components={1: 2})) == [4, 4]
    assert predicted_sides(settings_of(keep_components={1: 3})) == [4, 3, 4]


@pytest.mark.parametrize("spacing", [None, 0.5])
def test_volumes_are_those_of_the_scan(spacing: float | None) -> None:
    """A voxel has 1 mm³, so the cubes have 0.008, 0.064, 0.027 and 0.064 mL, at any resolution of the network."""
    assert predicted_sides(settings_of(min_component_ml={1: 0.02}), spacing) == [4, 3, 4]
    assert predicted_sides(settings_of(min_component_ml={1: 0.05}), spacing) == [4, 4]


def test_a_component_of_exactly_the_smallest_volume_is_kept() -> None:
    assert predicted_sides(settings_of(min_component_ml={1: 0.027})) == [4, 3, 4]
    assert predicted_sides(settings_of(min_component_ml={1: 0.02701})) == [4, 4]
    assert predicted_sides(settings_of(keep_components={1: 1}, min_component_ml={1: 0.1})) == []


def test_a_scan_without_volume_is_an_error() -> None:
    labels = torch.ones(4, 4, dtype=torch.uint8)
    with user_error(Code.RECIPE_MISMATCH, "inference.min_component_ml", "2-D"):
        clean_labels(labels, settings_of(min_component_ml={1: 0.5}), 2, None)
    assert torch.equal(clean_labels(labels, settings_of(keep_components={1: 1}), 2, None), labels)


def test_an_unknown_class_is_an_error() -> None:
    with user_error(Code.RECIPE_MISMATCH, "inference", "class 2"):
        predicted_sides(settings_of(keep_components={2: 2}))


@pytest.mark.parametrize(
    ("inference", "keyword"),
    [
        ({"largest_component": True, "keep_components": {1: 2}}, "class 1"),
        ({"largest_component": [1, 2], "keep_components": {2: 2}}, "class 2"),
        ({"keep_components": {0: 2}}, "greater than"),
        ({"keep_components": {1: 0}}, "greater than"),
        ({"min_component_ml": {1: 0}}, "greater than"),
        ({"min_component_ml": [1]}, "mapping"),
    ],
)
def test_invalid_settings_are_errors(inference: dict[str, Any], keyword: str) -> None:
    with user_error(Code.RECIPE_INVALID, "tiny", keyword):
        tiny_recipe(inference=inference)


def test_settings_are_written_only_if_they_are_used(tmp_path: Path) -> None:
    """Runs of older versions have neither setting and must stay equal."""
    assert not {"keep_components", "min_component_ml"} & settings_of().model_dump(mode="json").keys()
    recipe = tiny_recipe(
        3, inference={"largest_component": [2], "keep_components": {1: 2}, "min_component_ml": {3: 0.5}}
    )
    assert parse_recipe(yaml.safe_load(recipe.to_yaml()), "run") == recipe
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe.to_yaml())
    for override in ("inference.keep_components={1: 3}", "inference.keep_components.1=3"):
        assert load_recipe(path, [override]).inference.keep_components == {1: 3}
    assert recipe.inference.uncleaned() == settings_of()


def test_the_search_for_components_needs_memory_on_the_host() -> None:
    grid = plan_grid(
        Geometry((40, 10, 10), ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))),
        orientation="RAS",
        spacing=None,
    )
    needed = [
        host_bytes(grid, 1, Predictor(brighter, (1, 1, 1), settings, 2, torch.device("cuda")), LABELS_ONLY)
        for settings in (settings_of(largest_component=True), settings_of(keep_components={1: 2}))
    ]
    assert needed[0] < needed[1] == (4 + 1 + COMPONENT_BYTES) * 4000
