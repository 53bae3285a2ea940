"""Recipes: all settings of a run in one file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from graftseg.core.errors import Code, UserError
from graftseg.core.files import write_text
from graftseg.core.settings import MAX_COUNT, MAX_SIDE, Settings
from graftseg.core.types import Precision
from graftseg.data.batches import BatchSettings
from graftseg.data.prepare import PrepareSettings
from graftseg.methods import METHODS
from graftseg.networks import NetworkSettings, dimensions_of, stride_of
from graftseg.recipes.reading import override, read_tree, recipe_path, shipped_recipes, with_checksum
from graftseg.recipes.settings import InferenceSettings, LoopSettings, SelectionSettings, StageSettings


class Published(Settings):
    """Published metrics: overlaps in percent, distances in voxels.

    ``selection`` says how the published checkpoint was chosen: by scores on a list of cases, or as the last checkpoint,
    if this is known.
    """

    table: str
    row: str
    dice: float = Field(ge=0, le=100)
    jaccard: float = Field(ge=0, le=100)
    hd95: float = Field(ge=0, le=MAX_SIDE)
    asd: float = Field(ge=0, le=MAX_SIDE)
    selection: Literal["test list", "validation list", "last", "unknown"]
    note: str = ""


PLANNED = "planned"
"""The name of every recipe that ``plan`` writes, so that no name reveals anything about the scans."""
FAST_PRECISION: Precision = "bf16"
"""The precision that ``fast`` sets."""
MAX_LISTED = 3
"""Number of settings that a message lists if there are more than four. The message counts the rest."""
RECIPE_REMEDY = "pass the same recipe, --set and --shorter, or the run's recipe.yaml as the recipe, or another --out"
"""The remedy for a run that was started with another recipe."""
YAML_MESSAGES = {
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "dict_type": "should be a mapping of settings",
    "model_type": "should be a mapping of settings",
    "model_attributes_type": "should be a mapping of settings",
}
"""Messages for values of the wrong type, in YAML terms."""
NOT_COMPARED = {"loop", "inference", "name", "about", "published", "baseline", "folds"}
"""Settings that do not change the trained network, except ``loop.precision`` and ``loop.batch_statistics``."""


class Recipe(Settings):
    """All settings of a run. Contradictory settings are rejected.

    ``fast`` sets ``loop.precision: bf16``, and ``joint: true`` for every stage whose method supports it. A parsed
    recipe contains these values.

    ``baseline`` also trains a supervised run with the same number of steps. ``average_with_baseline`` then averages the
    weights of both networks, except in a cross-validation. ``folds`` is the number of cross-validation folds; without
    it, a single network is trained.
    """

    name: str
    about: str = ""
    fast: bool = False
    data: PrepareSettings
    batches: BatchSettings
    network: NetworkSettings
    stages: tuple[StageSettings, ...] = Field(min_length=1)
    loop: LoopSettings = LoopSettings()
    inference: InferenceSettings = InferenceSettings()
    selection: SelectionSettings = SelectionSettings()
    seed: int = Field(0, ge=0, lt=2**63)
    baseline: bool = False
    average_with_baseline: bool = False
    folds: int | None = Field(None, ge=2, le=MAX_COUNT)
    published: Published | None = None

    @model_validator(mode="after")
    def _dimensions_agree(self) -> Self:
        axes, patch = self.data.dimensions, self.batches.patch
        if dimensions_of(self.network.name) != axes or len(patch) != axes:
            raise ValueError(
                f"data.dimensions is {axes}, batches.patch has {len(patch)} axes and network {self.network.name} "
                f"has {dimensions_of(self.network.name)}; they must agree"
            )
        stride = stride_of(self.network)
        if any(n % stride for n in patch):
            levels = self.network.levels
            raise ValueError(f"batches.patch {list(patch)} must be multiples of {stride} for {levels} levels")
        if all(n == stride for n in patch):
            raise ValueError(f"batches.patch {list(patch)} is one voxel at the coarsest level; double it along an axis")
        return self

    @model_validator(mode="after")
    def _windows_fit(self) -> Self:
        patch = self.batches.patch
        for part, strides in (("inference", self.inference.stride), ("selection", self.selection.stride)):
            if strides is None:
                continue
            if self.batches.fit == "stretch":
                raise ValueError(f"{part}.stride cannot be combined with batches.fit: stretch, which has no windows")
            if len(strides) != len(patch) or any(s > n for s, n in zip(strides, patch, strict=True)):
                raise ValueError(f"{part}.stride {list(strides)} does not fit windows of batches.patch {list(patch)}")
        return self

    @model_validator(mode="after")
    def _no_setting_is_ignored(self) -> Self:
        if self.batches.validation_cases and self.selection.every is None:
            raise ValueError("batches.validation_cases needs selection.every, or the cases are never scored")
        for before, stage in zip((None, *self.stages[:-1]), self.stages, strict=True):
            if stage.carry_optimizer and (before is None or before.optimizer.name != stage.optimizer.name):
                raise ValueError("carry_optimizer needs a previous stage with an optimizer of the same name")
        methods = [METHODS[stage.method] for stage in self.stages if stage.method in METHODS]
        if self.network.deep_supervision and not any(method.supervises_levels for method in methods):
            raise ValueError("network.deep_supervision needs a stage with supervised or graft")
        return self

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        for stage in self.stages:
            if stage.method not in METHODS:
                raise ValueError(f"unknown method {stage.method!r}; choose one of {', '.join(METHODS)}")
            method = METHODS[stage.method]
            try:
                config = method.Config.model_validate(stage.settings)
            except ValidationError as error:
                raise ValueError(f"settings of {stage.method}: {_first_problem(error, method.Config)}") from None
            if unknown := stage.optimizers.keys() - set(method.trained_modules):
                raise ValueError(f"method {stage.method} has no {', '.join(sorted(unknown))} to optimize")
            labeled, unlabeled = self.batches.labeled, self.batches.unlabeled
            method.check(config, labeled=labeled, unlabeled=unlabeled, patch=self.batches.patch)
        return self

    @model_validator(mode="after")
    def _fast_agrees(self) -> Self:
        if not self.fast:
            return self
        if "precision" in self.loop.model_fields_set and self.loop.precision != FAST_PRECISION:
            raise ValueError(f"fast means loop.precision: {FAST_PRECISION}, but the recipe sets {self.loop.precision}")
        for index, stage in enumerate(self.stages):
            if stage.settings.get("joint") is False:
                raise ValueError(f"fast means joint: true, but the recipe sets stages.{index}.settings.joint: false")
        return self

    @property
    def method(self) -> str:
        """The method of the last stage."""
        return self.stages[-1].method

    def to_yaml(self) -> str:
        """Return all settings as YAML, including defaults."""
        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120))

    def to_checked_yaml(self) -> str:
        """Return all settings as YAML, after a comment line with the checksum of the settings."""
        return with_checksum(self.to_yaml())

    def save(self, path: Path) -> None:
        """Write all settings and their checksum."""
        write_text(path, self.to_checked_yaml())


def load_recipe(recipe: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Load a recipe file or a shipped recipe, and apply overrides such as ``stages.0.steps=100``."""
    path, assignments = recipe_path(recipe), list(overrides)
    plain = read_tree(path)
    if not assignments:
        return parse_recipe(plain, path)
    tree = deepcopy(plain)
    for assignment in assignments:
        override(tree, assignment)
    options = " ".join(f"--set {assignment}" for assignment in assignments)
    try:
        return parse_recipe(tree, f"{path} {options}")
    except UserError as error:
        # if the recipe is invalid even without the overrides, this raises an error about the recipe
        parse_recipe(plain, path)
        raise UserError(Code.SETTING_INVALID, options, error.finding, "correct the setting") from None


def parse_recipe(tree: Mapping[str, Any], where: str | Path) -> Recipe:
    """Return the recipe with these values. Raise a UserError for the first invalid value."""
    try:
        return _resolved(Recipe.model_validate(tree))
    except ValidationError as error:
        raise UserError(Code.RECIPE_INVALID, where, _first_problem(error, Recipe), "correct the recipe") from None


def changed(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """Return a recipe with overrides such as ``stages.0.steps=100`` applied."""
    tree = recipe.model_dump(mode="json")
    for assignment in overrides:
        override(tree, assignment)
    return parse_recipe(tree, f"recipe {recipe.name}")


def training_differences(first: Recipe, second: Recipe) -> list[str]:
    """Return the dotted names of settings that differ and change the trained network."""
    first_values, second_values = (
        dict(_leaves(recipe.model_dump(mode="json", exclude=NOT_COMPARED))) for recipe in (first, second)
    )
    names = [key for key in {**first_values, **second_values} if first_values.get(key) != second_values.get(key)]
    if not any(recipe.selection.oracle or recipe.selection.protocol != "last" for recipe in (first, second)):
        names = [name for name in names if name != "selection.first"]
    compared = ("precision", "batch_statistics")
    loop = [f"loop.{name}" for name in compared if getattr(first.loop, name) != getattr(second.loop, name)]
    return sorted([*names, *loop])


def first_few(names: Sequence[str]) -> str:
    """Join names of settings. If there are more than four, list the first three and count the rest."""
    more = len(names) - MAX_LISTED
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:MAX_LISTED])} and {more} more"


def _resolved(recipe: Recipe) -> Recipe:
    """Fill in the settings that ``fast`` implies, and the methods' defaults, because later versions may change them."""
    stages = tuple(_resolved_stage(stage, recipe.fast) for stage in recipe.stages)
    loop = recipe.loop.model_copy(update={"precision": FAST_PRECISION}) if recipe.fast else recipe.loop
    return recipe.model_copy(update={"stages": stages, "loop": loop})


def _resolved_stage(stage: StageSettings, fast: bool) -> StageSettings:
    method = METHODS[stage.method]
    config = method.Config
    joint = {"joint": True} if fast and "joint" in config.model_fields else {}
    settings = config.model_validate(stage.settings | joint).model_dump(mode="json")
    # Without the key `optimizers`, the method's defaults apply. If the key is empty, all modules use `optimizer`.
    has_none = "optimizers" in stage.model_fields_set and not stage.optimizers
    defaults = {} if has_none else method.default_optimizers
    return stage.model_copy(update={"settings": settings, "optimizers": {**defaults, **stage.optimizers}})


def _first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem with the dotted name of its setting. For an unknown setting, list the known settings."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    finding = YAML_MESSAGES.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] in ("too_short", "too_long"):
        finding = finding.replace("Tuple should", "the list should").replace(" after validation", "")
    if first["type"] == "extra_forbidden":
        names = _settings_at(model, first["loc"][:-1])
        finding = f"unknown setting (known: {', '.join(names)})" if names else "unknown setting"
    return f"{place}: {finding}" if place else finding


def _settings_at(model: Any, location: tuple[str | int, ...]) -> list[str]:
    """Return the names of the settings at a location; list indices are skipped."""
    for part in location:
        if isinstance(part, str):
            field = getattr(model, "model_fields", {}).get(part)
            model = field.annotation if field else None
            model = next(iter(get_args(model)), model)
    return list(getattr(model, "model_fields", {}))


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value of nested settings with its dotted name."""
    if not isinstance(tree, dict | list):
        yield prefix, tree
        return
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))


def changes_of(recipe: Recipe, inference: Mapping[str, Any] | None = None) -> list[str]:
    """Return the settings, except the seed, that affect the metrics and differ from the shipped recipe of this name.

    If no shipped recipe has this name, return no settings. ``inference`` are the settings used for prediction, by
    default the inference settings of the recipe.
    """
    if recipe.name not in shipped_recipes():
        return []
    shipped = load_recipe(recipe.name)
    used = recipe.inference.model_dump(mode="json") if inference is None else inference
    default = shipped.inference.model_dump(mode="json")
    ignored = ("windows_per_forward", "precision")
    other = [key for key, value in used.items() if key not in ignored and default.get(key) != value]
    return [*metric_differences(shipped, recipe), *(f"inference.{key}" for key in other)]


def metric_differences(first: Recipe, second: Recipe) -> list[str]:
    """Return the settings, except the seed, that differ and affect the metrics.

    Selection settings are ignored if both recipes report the last checkpoint.
    """
    names = [name for name in training_differences(first, second) if name != "seed"]
    if first.selection.protocol == second.selection.protocol == "last":
        names = [name for name in names if not name.startswith("selection.")]
    return names
