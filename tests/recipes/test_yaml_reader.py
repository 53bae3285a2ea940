"""YAML reading: duplicate keys are rejected, everything else is read as by PyYAML."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from graftseg.core.errors import Code, UserError
from graftseg.recipes.reading import SHIPPED, NotYamlError, read_yaml
from graftseg.recipes.recipe import load_recipe
from user_errors import user_error


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", (1, 3)),
        ("x:\n  - b: 1\n  - b: 2\n    c: 3\n    c: 4\n", "c", (4, 5)),
        ("x: {steps: 1, steps: 2}", "steps", (1, 1)),
        ("x: &one {<<: {k: 0}, k: 1}\ny: {<<: *one, k: 2}\nx: 3", "x", (1, 3)),
    ],
)
def test_duplicate_keys_are_rejected(text: str, key: str, lines: tuple[int, int]) -> None:
    with pytest.raises(NotYamlError, match=f"key {key} in lines {lines[0]} and {lines[1]}$"):
        read_yaml(text)


@pytest.mark.parametrize(
    "text",
    ["", "a", "[1, {a: 1}, {a: 2}]", "a: &n {b: 1}\nc: {<<: *n, b: 2}\nd: *n", "? [1]\n: 2", "1: a\n'1': b"],
)
def test_valid_yaml_is_read_as_by_pyyaml(text: str) -> None:
    try:
        expected = yaml.safe_load(text)
    except yaml.YAMLError:
        with pytest.raises(NotYamlError):
            read_yaml(text)
    else:
        assert repr(read_yaml(text)) == repr(expected)


def test_cached_values_cannot_be_changed_by_a_caller() -> None:
    text = "a: &one {b: [1]}\nc: *one\n"
    first = read_yaml(text)
    assert first["a"] is first["c"]
    first["a"]["b"].append(2)
    assert read_yaml(text) == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_errors_are_raised_every_time() -> None:
    for _ in range(2):
        with pytest.raises(NotYamlError, match=r"key a in lines 1 and 2$"):
            read_yaml("a: 1\na: 2\n")
        with pytest.raises(NotYamlError, match="expected"):
            read_yaml("a: [")


NINES = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9))
MERGES = "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 9))


@pytest.mark.parametrize(
    "text",
    [
        "about: &a [*a]",
        "about: &a {b: *a}",
        f"a0: &a0 [1]\n{NINES}",
        f"a0: &a0 {{b: 1}}\n{MERGES}",
        "a: " + "[" * 60 + "]" * 60,
        "a: " + "[" * 500,  # more than Python can call in depth
        f"a: {'b' * 2**18}",
    ],
)
def test_texts_beyond_the_limits(tmp_path: Path, text: str) -> None:
    """Aliases of aliases would become millions of values. An alias of itself has no end."""
    with pytest.raises(NotYamlError):
        read_yaml(text)
    (tmp_path / "a.yaml").write_text(text)
    with user_error(Code.RECIPE_INVALID, tmp_path / "a.yaml"):
        load_recipe(tmp_path / "a.yaml")


def test_every_shipped_recipe_is_read(tmp_path: Path) -> None:
    texts = [path.read_text() for path in SHIPPED.rglob("*.yaml")]
    assert len(texts) > 50 and all(read_yaml(text) == yaml.safe_load(text) for text in texts)


@pytest.mark.parametrize("value", ["!!bool foo", '!!int ""', "!!timestamp foo", "[[["])
def test_values_that_no_parser_can_read(tmp_path: Path, value: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: demo-2d/bcp\nname: {value}\n")
    with user_error(Code.RECIPE_INVALID, "mine.yaml", "YAML"):
        load_recipe(path)
    with user_error(Code.SETTING_INVALID, "--set name", "YAML"):
        load_recipe("demo-2d/bcp", [f"name={value}"])


def test_duplicate_keys_in_recipes_and_overrides(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: demo-2d/bcp\nname: mine\nseed: 1\nseed: 2\n")
    with user_error(Code.RECIPE_INVALID, "mine.yaml", "seed in lines 3 and 4"):
        load_recipe(path)
    with user_error(Code.SETTING_INVALID, "--set batches={a: 1, a: 2}", "key a"):
        load_recipe("demo-2d/bcp", ["batches={a: 1, a: 2}"])


@pytest.mark.parametrize(
    ("base", "code"),
    [
        ("nothing", Code.RECIPE_MISSING),
        ("none.yaml", Code.RECIPE_MISSING),
        ("[x]", Code.RECIPE_INVALID),
        ("7", Code.RECIPE_INVALID),
        ("''", Code.RECIPE_MISSING),
    ],
)
def test_invalid_bases_are_refused(tmp_path: Path, base: str, code: Code) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: {base}\nname: mine\n")
    with user_error(code, path) as refused:
        load_recipe(path)
    assert len(str(refused.value)) < 400


def test_every_flipped_bit_of_a_saved_recipe_is_found_or_harmless(tmp_path: Path) -> None:
    path, recipe = tmp_path / "recipe.yaml", load_recipe("demo-2d/bcp")
    recipe.save(path)
    intact, line = path.read_bytes(), path.read_bytes().index(b"\n") + 1
    assert load_recipe(path) == recipe
    random = np.random.default_rng(0)
    for place in [*range(0, 8 * (line + 2), 3), *random.integers(8 * line, 8 * len(intact), 60)]:
        damaged = bytearray(intact)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert load_recipe(path) == recipe and place // 8 < line
        except UserError as error:
            assert error.code in (Code.DAMAGED_FILE, Code.RECIPE_INVALID)
    path.write_bytes(intact.replace(b"seed: 0", b"seed: 1"))
    with user_error(Code.DAMAGED_FILE, path, "delete its first line"):
        load_recipe(path)
    # recipes of earlier versions, and edited recipes, have no checksum
    path.write_bytes(path.read_bytes()[line:])
    assert load_recipe(path) == recipe.model_copy(update={"seed": 1})
    path.write_bytes(intact.replace(b"\n", b"\r\n"))
    assert load_recipe(path) == recipe
