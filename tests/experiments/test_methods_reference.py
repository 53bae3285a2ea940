"""Every method has a page in the reference, and the pages agree with the code and the recipes."""

import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from graftseg.methods import METHODS
from graftseg.ops.optimizers import RAMP_INTERVAL
from graftseg.recipes.reading import SHIPPED
from graftseg.recipes.recipe import load_recipe
from loops import for_each
from markdown_pages import DOCS, blocks, sections, tables

FOLDER = DOCS / "reference" / "methods"
ROWS = tables(FOLDER / "README.md")["Methods"]
PAGES = sorted(page.name for page in FOLDER.glob("*.md") if page.name != "README.md")
STEMS = [page.removesuffix(".md") for page in PAGES]
NAMES = {
    f"{stem}.md": [name for name in METHODS if name == stem or (name.startswith(f"{stem}-") and name not in STEMS)]
    for stem in STEMS
}
"""The methods of each page: the method it is named after, and variations without their own page."""
HEADINGS = ["What it does", "Equation", "Settings", "Published results", "Our results", "Known differences"]
FIGURES = "| setting | recipe | Dice | Jaccard | 95HD | ASD |"

each_page = for_each("page", NAMES)


def value_of(text: str) -> Any:
    """Return the default value in a cell of a table."""
    return 2 / 3 if text == "2/3" else yaml.safe_load(text)


def as_written(value: Any) -> Any:
    """Return a default value as it is written in YAML."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True)
    return list(value) if isinstance(value, tuple) else value


def published(method: str) -> list[list[str]]:
    """Return the published figures in the recipes of a method and its variations, as text."""
    files = [*SHIPPED.glob(f"*/{method}.yaml"), *SHIPPED.glob(f"*/{method}-*.yaml")]
    found = [yaml.safe_load(file.read_text()).get("published") for file in files]
    return [[f"{one[name]:.2f}" for name in ("dice", "jaccard", "hd95", "asd")] for one in found if one]


def test_every_method_of_the_table_has_a_page() -> None:
    assert sorted(name for names in NAMES.values() for name in names) == sorted(METHODS)


def test_every_page_has_a_summary() -> None:
    assert "-" not in [row[1] for row in ROWS], "a page begins with Use of unlabeled scans: ..."


@each_page
def test_a_page_begins_with_names_and_classes(page: str) -> None:
    title, *_ = (FOLDER / page).read_text().splitlines()
    assert title == f"# {', '.join(sorted(NAMES[page]))}"
    opening = (FOLDER / page).read_text().partition("\n## ")[0]
    for method in (METHODS[name] for name in NAMES[page]):
        assert f"`{method.__module__}.{method.__name__}`" in opening


@each_page
def test_a_page_has_its_sections_in_order(page: str) -> None:
    found = sections(FOLDER / page)
    assert list(found) == HEADINGS
    assert all(text.strip() for text in found.values())


@each_page
def test_settings_and_defaults_agree_with_the_code(page: str) -> None:
    described = tables(FOLDER / page).get("Settings", [])
    found = [(key.strip("`"), value_of(default.strip("`"))) for key, default, _ in described]
    fields = [field for name in NAMES[page] for field in METHODS[name].Config.model_fields.items()]
    expected = [(key, as_written(field.get_default(call_default_factory=True))) for key, field in fields]
    assert [one for one in found if one not in expected] == []
    assert [one for one in expected if one not in found] == []


@each_page
def test_published_figures_agree_with_the_recipes(page: str) -> None:
    lines = sections(FOLDER / page)["Published results"].splitlines()
    printed = [re.findall(r"\d+\.\d\d", line) for line in lines if line.startswith("|")]
    expected = published(page.removesuffix(".md"))
    assert sorted(found for found in printed if found) == sorted(expected)
    assert not expected or FIGURES in lines


@each_page
def test_recipes_on_the_pages_load(page: str, tmp_path: Path) -> None:
    for block in blocks(FOLDER / page, "yaml"):
        path = tmp_path / "recipe.yaml"
        path.write_text(block)
        assert load_recipe(path).method in NAMES[page]


def test_the_recipe_for_own_scans_extends_a_plan(tmp_path: Path) -> None:
    (block,) = blocks(FOLDER / "README.md", "yaml")
    (tmp_path / "plan.yaml").write_text("base: default-2d/bcp\nname: planned\nnetwork: {dropout: false}\n")
    (tmp_path / "ua-mt.yaml").write_text(block)
    recipe = load_recipe(tmp_path / "ua-mt.yaml")
    (stage,) = recipe.stages
    assert (stage.method, recipe.network.dropout) == ("ua-mt", True)
    assert stage.settings["ramp"] * RAMP_INTERVAL == stage.steps
