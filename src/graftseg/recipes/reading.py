"""Read recipe files: YAML without duplicate keys, inheritance by ``base``, overrides by ``--set``."""

import hashlib
import os
from collections.abc import Hashable, Sequence
from copy import deepcopy
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import read_start

SHIPPED = Path(str(files("graftseg") / "recipes"))
"""The folder of the recipes that come with the package."""
Tree = dict[Any, Any]
MAX_CHARACTERS, MAX_VALUES, MAX_LEVELS = 2**18, 100_000, 50
"""Limits of a YAML text: number of characters, of values, and of levels of nested lists and mappings."""
MAX_BYTES = 4 * MAX_CHARACTERS + 4
"""Number of bytes to read of a YAML file. A longer file has too many characters."""
CHECKSUM_LINE = "# sha256 of all other lines: "
"""Start of the first line of the recipe file in a run folder."""
SIMILARITY = 0.75
"""Minimum similarity, from 0 to 1, at which a known name is suggested for a misspelled name."""


class NotYamlError(ValueError):
    """A text that is not valid YAML or has a duplicate key."""


class ChecksumError(NotYamlError):
    """A text that was changed after its checksum was computed."""


class _Loader(yaml.SafeLoader):
    """A safe YAML loader that rejects duplicate keys and aliases that expand to too many values."""

    def compose_document(self) -> yaml.Node | None:
        """Compose the text. Raise NotYamlError for too many values or levels after aliases are expanded."""
        document = super().compose_document()
        pending, values = [(document, 0)], 0
        while pending:
            node, level = pending.pop()
            values += 1
            if values > MAX_VALUES or level > MAX_LEVELS:
                raise NotYamlError(f"more than {MAX_VALUES} values or {MAX_LEVELS} levels, or an alias of itself")
            if isinstance(node, yaml.SequenceNode):
                pending += [(item, level + 1) for item in node.value]
            elif isinstance(node, yaml.MappingNode):
                pending += [(item, level + 1) for pair in node.value for item in pair]
        return document

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct a mapping; raise NotYamlError for a duplicate key."""
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line, name = key.start_mark.line + 1, (key.tag, key.value)
                if name in lines:
                    raise NotYamlError(f"duplicate key {key.value} in lines {lines[name]} and {line}")
                lines[name] = line
        return super().construct_mapping(node, deep)


def read_yaml(text: str) -> Any:
    """Parse a YAML text; raise NotYamlError if it is invalid, too large, has a duplicate key or a wrong checksum."""
    if len(text) > MAX_CHARACTERS:
        raise NotYamlError(f"more than {MAX_CHARACTERS} characters")
    if text.startswith(CHECKSUM_LINE) and text != with_checksum(text.partition("\n")[2]):
        raise ChecksumError("the checksum in its first line is wrong")
    return deepcopy(_parse(text))


def with_checksum(text: str) -> str:
    """Return a comment line with the checksum, which ``read_yaml`` verifies, followed by the YAML text."""
    return f"{CHECKSUM_LINE}{hashlib.sha256(text.encode()).hexdigest()}\n{text}"


@lru_cache(maxsize=256)
def _parse(text: str) -> Any:
    """Parse a text; cached, because many recipes share the same bases."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a subclass of SafeLoader
    except NotYamlError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise NotYamlError(" ".join(str(error).split())) from None
    except (LookupError, AttributeError, TypeError):
        # raised by PyYAML for a value such as !!bool foo
        raise NotYamlError("a value does not fit its tag") from None


def shipped_recipes() -> list[str]:
    """Return the names of the shipped recipes, without shared bases (files that start with an underscore)."""
    paths = (path for path in SHIPPED.glob("*/*.yaml") if not path.name.startswith("_"))
    return sorted(f"{path.parent.name}/{path.stem}" for path in paths)


def recipe_path(recipe: str | Path) -> Path:
    """Return the file of a recipe. ``recipe`` is a path or the name of a shipped recipe."""
    path = Path(recipe)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return path
    if str(recipe) not in shipped_recipes():
        remedy = "pass a .yaml file or the name of a shipped recipe (graftseg doctor --recipes lists them)"
        if suggestion := suggest(str(recipe), shipped_recipes()):
            remedy += f"; {suggestion}"
        raise UserError(Code.RECIPE_MISSING, f"recipe {str(recipe)!r}", "neither a file nor a shipped recipe", remedy)
    return SHIPPED / f"{recipe}.yaml"


def suggest(name: str, known: Sequence[str]) -> str:
    """Return a hint: a similar known name, or else the known names in the same folder, or else an empty string."""
    folder, slash, rest = name.lower().partition("/")
    siblings = [candidate.partition("/")[2] for candidate in known if candidate.startswith(f"{folder}/")]
    if siblings and not rest:
        return f"{folder}/ has {', '.join(siblings)}"
    lowercase = {candidate.lower(): candidate for candidate in known}
    if similar := get_close_matches(name.lower(), lowercase, 1, SIMILARITY):
        return f"did you mean {lowercase[similar[0]]}?"
    return f"{folder}/ has {', '.join(siblings)}" if slash and siblings else ""


def read_tree(path: Path, children: tuple[Path, ...] = ()) -> Tree:
    """Read a recipe and merge it over its base. ``children`` are the recipes that are based on this recipe."""
    _refuse_cycle(path, children)
    try:
        tree = read_yaml(read_start(path, MAX_BYTES).decode().replace("\r\n", "\n"))
    except OSError as error:
        finding = f"cannot be read ({error.strerror})"
        raise UserError(Code.READ_FAILED, path, finding, "check the path of the recipe") from None
    except ChecksumError as error:
        remedy = "restore the file; if you edited it on purpose, delete its first line"
        raise UserError(Code.DAMAGED_FILE, path, f"damaged or edited, {error}", remedy) from None
    except NotYamlError as error:
        raise UserError(Code.RECIPE_INVALID, path, f"invalid YAML ({error})", "correct the recipe") from None
    except ValueError:
        raise UserError(Code.RECIPE_INVALID, path, "not UTF-8 text", "save the recipe as UTF-8") from None
    if not isinstance(tree, dict):
        finding = "contains no settings"
        raise UserError(Code.RECIPE_INVALID, path, finding, "write keys and values as in a shipped recipe")
    base = tree.pop("base", None)
    return tree if base is None else _merge(read_tree(_base_path(path, base), (*children, path)), tree, path)


def _refuse_cycle(path: Path, children: Sequence[Path]) -> None:
    """Raise a UserError if a recipe is based on itself, directly or through other recipes."""
    seen = [os.path.realpath(child) for child in children]
    if (here := os.path.realpath(path)) in seen:
        between = [child.name for child in children[seen.index(here) + 1 :]]
        through = f", through {' and '.join(between)}" if between else ""
        raise UserError(Code.RECIPE_INVALID, path, f"based on itself{through}", "choose another base")


def _base_path(path: Path, base: object) -> Path:
    """Return the file of a base: a file next to the recipe, a shared base, or a shipped recipe."""
    remedy = "set base to a recipe file or a shipped recipe, such as default-3d/bcp"
    if not isinstance(base, str):
        raise UserError(Code.RECIPE_INVALID, path, f"base is {base!r:.60}, which is not a name", remedy)
    folders = (path.parent, SHIPPED) if SHIPPED in path.parents else (path.parent,)
    candidates = [folder / f"{base}.yaml" for folder in folders]
    if file := next((file for file in candidates if file.is_file() and file != path), None):
        return file
    try:
        file = recipe_path(base)
    except UserError:
        file = None
    if file is None and path in candidates:
        return path
    if file is None or not file.is_file():
        finding = f"base {base!r:.60} is neither a file nor a shipped recipe"
        raise UserError(Code.RECIPE_MISSING, path, finding, remedy)
    return file


def _merge(base: Tree, tree: Tree, path: Path) -> Tree:
    """Merge a recipe over its base. A list replaces the base's list. A mapping of indices changes single items."""
    merged = dict(base)
    for key, value in tree.items():
        inherited = base.get(key)
        if isinstance(inherited, list) and isinstance(value, dict):
            merged[key] = _merge_items(inherited, value, f"{path}: {key}", path)
        elif isinstance(inherited, dict) and isinstance(value, dict):
            merged[key] = _merge(inherited, value, path)
        else:
            merged[key] = value
    return merged


def _merge_items(base: list[Any], items: dict[Any, Any], where: str, path: Path) -> list[Any]:
    """Merge single items of a list by index, counted from 0. Null removes an item."""
    numbered = dict(enumerate(base))
    if unknown := [str(key) for key in items if key not in numbered]:
        remedy = f"use item numbers from 0 to {len(base) - 1}, or write the whole list"
        raise UserError(Code.RECIPE_INVALID, where, f"the base has no item {', '.join(unknown)}", remedy)
    merged = _merge(numbered, items, path)
    return [value for number, value in merged.items() if items.get(number, ...) is not None]


def override(tree: Tree, assignment: str) -> None:
    """Apply an override such as ``stages.0.steps=100`` to a tree, in place."""
    key, equals, text = assignment.partition("=")
    where, remedy = f"--set {assignment}", "write --set key=value with a dotted key, as in stages.0.steps=100"
    if not equals or not key:
        raise UserError(Code.SETTING_INVALID, where, "not of the form key=value", remedy)
    try:
        value = read_yaml(text)
    except NotYamlError as error:
        raise UserError(Code.SETTING_INVALID, where, f"the value is invalid YAML ({error})", remedy) from None
    *parents, last = key.split(".")
    target: Any = tree
    try:
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target.setdefault(part, {})
        target[int(last) if isinstance(target, list) else last] = value
    except (IndexError, ValueError, AttributeError, TypeError):
        raise UserError(Code.SETTING_INVALID, where, f"the recipe has no setting {key}", remedy) from None
