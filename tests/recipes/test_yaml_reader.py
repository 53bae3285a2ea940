"""A key that stands twice is refused, wherever it stands; all else is read as ever."""

from pathlib import Path

import pytest
import yaml

from graftseg.core.errors import UserError
from graftseg.recipes.reading import NotYamlError, RepeatedKeyError, read_yaml
from graftseg.recipes.recipe import SHIPPED, load_recipe


@pytest.mark.parametrize(
    ("text", "key", "lines"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", (1, 3)),
        ("x:\n  - b: 1\n  - b: 2\n    c: 3\n    c: 4\n", "c", (4, 5)),
        ("x: {steps: 1, steps: 2}", "steps", (1, 1)),
        ("x: &one {<<: {k: 0}, k: 1}\ny: {<<: *one, k: 2}\nx: 3", "x", (1, 3)),
    ],
)
def test_a_key_that_stands_twice(text: str, key: str, lines: tuple[int, int]) -> None:
    with pytest.raises(RepeatedKeyError, match=f"^the key {key} is given twice, in lines {lines[0]} and {lines[1]}$"):
        read_yaml(text)


@pytest.mark.parametrize(
    "text",
    ["", "a", "[1, {a: 1}, {a: 2}]", "a: &n {b: 1}\nc: {<<: *n, b: 2}\nd: *n", "? [1]\n: 2", "1: a\n'1': b", "&a [*a]"],
)
def test_all_else_is_read_as_ever(text: str) -> None:
    try:
        expected = yaml.safe_load(text)
    except yaml.YAMLError:
        with pytest.raises(NotYamlError):
            read_yaml(text)
    else:
        assert repr(read_yaml(text)) == repr(expected)


def test_what_a_caller_changes_is_not_read_by_the_next() -> None:
    text = "a: &one {b: [1]}\nc: *one\n"
    first = read_yaml(text)
    assert first["a"] is first["c"]
    first["a"]["b"].append(2)
    assert read_yaml(text) == {"a": {"b": [1]}, "c": {"b": [1]}}


def test_a_mistake_is_told_every_time() -> None:
    for _ in range(2):
        with pytest.raises(RepeatedKeyError, match=r"^the key a is given twice, in lines 1 and 2$"):
            read_yaml("a: 1\na: 2\n")
        with pytest.raises(NotYamlError, match="expected"):
            read_yaml("a: [")


def test_every_shipped_recipe_is_read(tmp_path: Path) -> None:
    texts = [path.read_text() for path in SHIPPED.rglob("*.yaml")]
    assert len(texts) > 50 and all(read_yaml(text) == yaml.safe_load(text) for text in texts)


@pytest.mark.parametrize("value", ["!!bool foo", '!!int ""', "!!timestamp foo", "[[["])
def test_values_that_no_parser_can_read(tmp_path: Path, value: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: demo-2d/bcp\nname: {value}\n")
    with pytest.raises(UserError, match=r"mine\.yaml: not valid YAML \("):
        load_recipe(path)
    with pytest.raises(UserError, match=r"the value is not valid YAML \("):
        load_recipe("demo-2d/bcp", [f"name={value}"])


def test_recipes(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("base: demo-2d/bcp\nname: mine\nseed: 1\nseed: 2\n")
    with pytest.raises(UserError, match=r"mine\.yaml: the key seed is given twice, in lines 3 and 4; keep one of the"):
        load_recipe(path)
    with pytest.raises(UserError, match=r"--set batches=\{a: 1, a: 2\}: the key a is given twice"):
        load_recipe("demo-2d/bcp", ["batches={a: 1, a: 2}"])


@pytest.mark.parametrize(
    ("base", "finding"),
    [
        ("nothing", "its base 'nothing' is neither a file nor a shipped recipe; name as base"),
        ("none.yaml", "its base 'none.yaml' is neither a file nor a shipped recipe"),
        ("[x]", r"base is \['x'\], which is no name; name as base a recipe file or a shipped recipe"),
        ("7", "base is 7, which is no name"),
        ("''", "its base '' is neither a file"),
    ],
)
def test_a_base_that_does_not_fit_is_told_with_the_file_that_names_it(tmp_path: Path, base: str, finding: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"base: {base}\nname: mine\n")
    with pytest.raises(UserError, match=rf"mine\.yaml: {finding}") as refused:
        load_recipe(path)
    assert len(str(refused.value)) < 400
