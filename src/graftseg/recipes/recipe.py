"""A recipe: all settings of a training in one readable file."""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, Field, ValidationError, model_validator

from graftseg.core.errors import Code, UserError
from graftseg.core.settings import MOST_STEPS, MOST_VOXELS, Settings
from graftseg.core.types import Precision
from graftseg.data.batches import BatchSettings
from graftseg.data.prepare import PrepareSettings
from graftseg.methods import METHODS
from graftseg.networks import NetworkSettings, dimensions_of, stride_of
from graftseg.recipes.reading import NotYamlError, RepeatedKeyError, likely, read_yaml
from graftseg.recipes.settings import InferenceSettings, LoopSettings, SelectionSettings, StageSettings


class Published(Settings):
    """Figures of a published table: overlaps in percent, distances in voxels.

    ``selection`` says on which cases their checkpoint was chosen.
    """

    table: str
    row: str
    dice: float = Field(ge=0, le=100)
    jaccard: float = Field(ge=0, le=100)
    hd95: float = Field(ge=0, le=MOST_VOXELS)
    asd: float = Field(ge=0, le=MOST_VOXELS)
    selection: Literal["test list", "validation list", "last", "unknown"]
    note: str = ""


SHIPPED = Path(str(files("graftseg") / "recipes"))
Tree = dict[Any, Any]
PLANNED = "planned"
"""The name of every recipe that was fitted to someone's scans: it tells nothing of what they show."""
FAST_PRECISION: Precision = "bf16"
SHOWN = 3
"""Settings that a refusal names, of many."""
SAME = "give the same recipe, --set and --shorter, or the run's own recipe.yaml as the recipe, or name another --out"
"""What mends a run whose recipe is not the one that is asked for."""
IN_YAML = {
    "tuple_type": "should be a list",
    "list_type": "should be a list",
    "dict_type": "should be a group of settings, key: value",
    "model_type": "should be a group of settings, key: value",
    "model_attributes_type": "should be a group of settings, key: value",
}
"""What is wrong with the kind of a value, in words of whoever writes YAML."""
NOT_TRAINED = {"loop", "inference", "name", "about", "published", "baseline", "folds"}


class Recipe(Settings):
    """Settings of every part, defined beside the code that reads them; contradictions are refused.

    ``fast`` stands for all that gains time by other arithmetic: ``loop.precision: bf16``, and ``joint: true`` for every
    stage whose method has it. A recipe that was parsed shows these values.

    ``baseline`` asks for a supervised run of as many steps beside this one. ``folds`` is into how many parts the
    labeled cases are divided, each of them scored by a network that was trained on the others; None trains one network.
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
    folds: int | None = Field(None, ge=2, le=MOST_STEPS)
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
                raise ValueError(f"{part}.stride moves windows, and batches.fit: stretch takes every slice whole")
            if len(strides) != len(patch) or any(s > n for s, n in zip(strides, patch, strict=True)):
                raise ValueError(f"{part}.stride {list(strides)} does not fit windows of batches.patch {list(patch)}")
        return self

    @model_validator(mode="after")
    def _all_is_read(self) -> Self:
        if self.batches.validation_cases and self.selection.every is None:
            raise ValueError("batches.validation_cases holds cases out and nothing scores them; set selection.every")
        for before, stage in zip((None, *self.stages), self.stages, strict=False):
            if stage.carry_optimizer and (before is None or before.optimizer.name != stage.optimizer.name):
                raise ValueError("carry_optimizer needs a stage before it with an optimizer of the same name")
        return self

    @model_validator(mode="after")
    def _stages_fit(self) -> Self:
        for stage in self.stages:
            if stage.method not in METHODS:
                raise ValueError(f"unknown method {stage.method!r}, choose one of {', '.join(METHODS)}")
            method = METHODS[stage.method]
            try:
                config = method.Config.model_validate(stage.settings)
            except ValidationError as error:
                raise ValueError(f"settings of {stage.method}: {_first_problem(error, method.Config)}") from None
            if unknown := stage.optimizers.keys() - set(method.moves):
                raise ValueError(f"method {stage.method} has no {', '.join(sorted(unknown))} to optimise")
            labeled, unlabeled = self.batches.labeled, self.batches.unlabeled
            method.check(config, labeled=labeled, unlabeled=unlabeled, patch=self.batches.patch)
        return self

    @model_validator(mode="after")
    def _fast_agrees(self) -> Self:
        if not self.fast:
            return self
        if "precision" in self.loop.model_fields_set and self.loop.precision != FAST_PRECISION:
            raise ValueError(f"fast means loop.precision: {FAST_PRECISION}, and the recipe says {self.loop.precision}")
        for index, stage in enumerate(self.stages):
            if stage.settings.get("joint") is False:
                raise ValueError(f"fast means joint: true, and the recipe says stages.{index}.settings.joint: false")
        return self

    @property
    def method(self) -> str:
        """The method of the last stage, whose student ships."""
        return self.stages[-1].method

    def to_yaml(self) -> str:
        """All settings, defaults included."""
        return str(yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120))


def shipped_recipes() -> list[str]:
    """Names of the recipes that come with the package; files that begin with an underscore are shared parts."""
    paths = (path for path in SHIPPED.glob("*/*.yaml") if not path.name.startswith("_"))
    return sorted(f"{path.parent.name}/{path.stem}" for path in paths)


def load_recipe(recipe: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe, a file or the name of a shipped one, and apply overrides such as ``stages.0.steps=100``."""
    path, given = recipe_path(recipe), list(overrides)
    plain = _read(path)
    if not given:
        return parse_recipe(plain, path)
    tree = deepcopy(plain)
    for override in given:
        _override(tree, override)
    said = " ".join(f"--set {override}" for override in given)
    try:
        return parse_recipe(tree, f"{path} {said}")
    except UserError as error:
        if not _is_valid(plain):
            raise
        raise UserError(error.code, said, error.finding, "correct the setting") from None


def _is_valid(tree: Tree) -> bool:
    try:
        Recipe.model_validate(tree)
    except ValidationError:
        return False
    return True


def parse_recipe(tree: Mapping[str, Any], where: str | Path) -> Recipe:
    """Settings from plain values, or one sentence on the first thing that is wrong with them."""
    try:
        return _resolved(Recipe.model_validate(tree))
    except ValidationError as error:
        raise UserError(Code.RECIPE_INVALID, where, _first_problem(error, Recipe), "correct the recipe") from None


def changed(recipe: Recipe, overrides: Iterable[str]) -> Recipe:
    """A recipe with overrides such as ``stages.0.steps=100`` applied."""
    tree = recipe.model_dump(mode="json")
    for override in overrides:
        _override(tree, override)
    return parse_recipe(tree, f"recipe {recipe.name}")


def recipe_path(recipe: str | Path) -> Path:
    """The file of a recipe."""
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    shipped = SHIPPED / f"{recipe}.yaml"
    if str(recipe) not in shipped_recipes():
        remedy = "name a .yaml file or a shipped recipe, of which graftseg doctor has a list"
        if meant := likely(str(recipe), shipped_recipes()):
            remedy += f" ({meant})"
        raise UserError(Code.RECIPE_MISSING, f"recipe {str(recipe)!r}", "neither a file nor a shipped recipe", remedy)
    return shipped


def differences(first: Recipe, second: Recipe) -> list[str]:
    """Settings, by dotted name, that differ and change what is trained; how it is logged and used does not count."""
    one, two = (dict(_leaves(recipe.model_dump(mode="json", exclude=NOT_TRAINED))) for recipe in (first, second))
    changed = [key for key in one.keys() | two.keys() if one.get(key) != two.get(key)]
    if not any(one.selection.oracle or one.selection.protocol != "last" for one in (first, second)):
        changed = [key for key in changed if key != "selection.first"]
    if first.loop.precision != second.loop.precision:
        changed.append("loop.precision")
    return sorted(changed)


def first_few(names: Sequence[str]) -> str:
    """Names of settings in a phrase; of many the first three and how many more."""
    more = len(names) - SHOWN
    return ", ".join(names) if more <= 1 else f"{', '.join(names[:SHOWN])} and {more} more"


def _resolved(recipe: Recipe) -> Recipe:
    """The recipe with what ``fast`` means and the defaults of its methods written out, so that it stays what it is."""
    stages = tuple(_resolved_stage(stage, recipe.fast) for stage in recipe.stages)
    loop = recipe.loop.model_copy(update={"precision": FAST_PRECISION}) if recipe.fast else recipe.loop
    return recipe.model_copy(update={"stages": stages, "loop": loop})


def _resolved_stage(stage: StageSettings, fast: bool) -> StageSettings:
    method = METHODS[stage.method]
    config = method.Config
    joint = {"joint": True} if fast and "joint" in config.model_fields else {}
    settings = config.model_validate(stage.settings | joint).model_dump(mode="json")
    # a run's own recipe always names its optimisers, and none where a discriminator had the student's
    said_none = "optimizers" in stage.model_fields_set and not stage.optimizers
    usual = {} if said_none else method.usual_optimizers
    return stage.model_copy(update={"settings": settings, "optimizers": {**usual, **stage.optimizers}})


def _read(path: Path, above: tuple[Path, ...] = ()) -> Tree:
    """A recipe's values on top of those of the recipe it is based on."""
    _refuse_circle(path, above)
    try:
        tree = read_yaml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check the path of the recipe"
        ) from None
    except RepeatedKeyError as error:
        raise UserError(Code.RECIPE_INVALID, path, str(error), "keep one of the two") from None
    except NotYamlError as error:
        raise UserError(Code.RECIPE_INVALID, path, f"not valid YAML ({error})", "correct the recipe") from None
    except ValueError:
        raise UserError(Code.RECIPE_INVALID, path, "not text in UTF-8", "save the recipe as UTF-8") from None
    if not isinstance(tree, dict):
        raise UserError(Code.RECIPE_INVALID, path, "holds no settings", "write keys and values as in a shipped recipe")
    base = tree.pop("base", None)
    if base is None:
        return tree
    return _merged(_read(_base_path(path, base), (*above, path)), tree, path)


def _refuse_circle(path: Path, above: Sequence[Path]) -> None:
    """Refuse a recipe that was read before on the way to it, however its path was written then."""
    known = [one.resolve() for one in above]
    if (here := path.resolve()) in known:
        between = [one.name for one in above[known.index(here) + 1 :]]
        way = f", through {' and '.join(between)}" if between else ""
        raise UserError(Code.RECIPE_INVALID, path, f"is based on itself{way}", "name another recipe as base")


def _base_path(path: Path, base: object) -> Path:
    """A file beside the recipe, a shared part where the recipe is a shipped one, or a shipped recipe."""
    remedy = "name as base a recipe file or a shipped recipe, such as default-3d/bcp"
    if not isinstance(base, str):
        raise UserError(Code.RECIPE_INVALID, path, f"base is {base!r:.60}, which is no name", remedy)
    folders = (path.parent, SHIPPED) if SHIPPED in path.parents else (path.parent,)
    named = [folder / f"{base}.yaml" for folder in folders]
    if found := next((file for file in named if file.is_file() and file != path), None):
        return found
    try:
        found = recipe_path(base)
    except UserError:
        found = None
    if found is None and path in named:
        return path
    if found is None or not found.is_file():
        raise UserError(
            Code.RECIPE_MISSING, path, f"its base {base!r:.60} is neither a file nor a shipped recipe", remedy
        )
    return found


def _merged(below: Tree, above: Tree, path: Path) -> Tree:
    """Nested keys of ``above`` replace those of ``below``; lists are replaced whole, or by a mapping item by item."""
    merged = dict(below)
    for key, value in above.items():
        known = below.get(key)
        if isinstance(known, list) and isinstance(value, dict):
            merged[key] = _merged_items(known, value, f"{path}: {key}", path)
        elif isinstance(known, dict) and isinstance(value, dict):
            merged[key] = _merged(known, value, path)
        else:
            merged[key] = value
    return merged


def _merged_items(below: list[Any], above: dict[Any, Any], where: str, path: Path) -> list[Any]:
    """A list with items replaced or merged by their number, counted from 0; null leaves one out."""
    items = dict(enumerate(below))
    if unknown := [str(key) for key in above if key not in items]:
        remedy = f"count the items of the base from 0 to {len(below) - 1}, or write a whole list"
        raise UserError(Code.RECIPE_INVALID, where, f"the base has no item {', '.join(unknown)}", remedy)
    merged = _merged(items, above, path)
    return [value for number, value in merged.items() if above.get(number, ...) is not None]


def _override(tree: Tree, override: str) -> None:
    key, equals, text = override.partition("=")
    remedy = "write --set key=value with a dotted key, as in stages.0.steps=100"
    if not equals or not key:
        raise UserError(Code.SETTING_INVALID, f"--set {override}", "not of the form key=value", remedy)
    try:
        value = read_yaml(text)
    except RepeatedKeyError as error:
        raise UserError(Code.RECIPE_INVALID, f"--set {override}", str(error), "keep one of the two") from None
    except NotYamlError as error:
        raise UserError(
            Code.RECIPE_INVALID, f"--set {override}", f"the value is not valid YAML ({error})", remedy
        ) from None
    *parents, last = key.split(".")
    place: Any = tree
    try:
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
        place[int(last) if isinstance(place, list) else last] = value
    except (IndexError, ValueError, AttributeError, TypeError):
        raise UserError(
            Code.SETTING_INVALID, f"--set {override}", f"the recipe has no place for {key}", remedy
        ) from None


def _first_problem(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing that is wrong, by its dotted name; for an unknown setting, with those that exist there."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    finding = IN_YAML.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] in ("too_short", "too_long"):
        finding = finding.replace("Tuple should", "the list should").replace(" after validation", "")
    if first["type"] == "extra_forbidden":
        known = _settings_at(model, first["loc"][:-1])
        finding = f"unknown setting (there are {', '.join(known)})" if known else "unknown setting"
    return f"{place}: {finding}" if place else finding


def _settings_at(model: Any, location: tuple[str | int, ...]) -> list[str]:
    """Names of the settings of the part that a location leads to; indices of lists are stepped over."""
    for part in location:
        if isinstance(part, str):
            field = getattr(model, "model_fields", {}).get(part)
            model = field.annotation if field else None
            model = next(iter(get_args(model)), model)
    return list(getattr(model, "model_fields", {}))


def _leaves(tree: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if entries is None:
        yield prefix, tree
        return
    for key, value in entries:
        yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
