"""Suggestions for misspelled names."""

from pathlib import Path

import pytest
from command_line import CommandLine

from graftseg.core.errors import Code
from graftseg.recipes.reading import shipped_recipes, suggest
from graftseg.recipes.recipe import load_recipe
from loops import for_each
from user_errors import user_error

KNOWN = ["la-4/bcp", "la-8/bcp", "la-8/supervised", "la-8/ua-mt", "acdc-3/bcp"]


@for_each(
    ("given", "expected"),
    [
        ("la-8/bpc", "did you mean la-8/bcp?"),
        ("LA-8/UA-MT", "did you mean la-8/ua-mt?"),
        ("la-8/zebra", "la-8/ has bcp, supervised, ua-mt"),
        ("la-8", "la-8/ has bcp, supervised, ua-mt"),
        ("LA-8/", "la-8/ has bcp, supervised, ua-mt"),
        ("acdc-3/", "acdc-3/ has bcp"),
        ("la", ""),
        ("nothing/like/it", ""),
        ("", ""),
    ],
)
def test_similar_names_and_names_of_the_same_folder(given: str, expected: str) -> None:
    assert suggest(given, KNOWN) == expected


def test_misspelled_recipe_gets_a_suggestion() -> None:
    with user_error(Code.RECIPE_MISSING, "la-8/bpc", "la-8/bcp"):
        load_recipe("la-8/bpc")


@pytest.mark.parametrize("name", ["nothing", "la-8/zebra", "acdc/bcp", "la-80/ua-mt", "bcp"])
def test_error_never_lists_all_recipes(name: str) -> None:
    with user_error(Code.RECIPE_MISSING, name, "graftseg doctor") as caught:
        load_recipe(name)
    assert len([one for one in shipped_recipes() if one in str(caught.value)]) <= 1
    assert len(str(caught.value)) < 450


def test_unknown_rows_of_a_table_get_a_suggestion(cli: CommandLine, tmp_path: Path) -> None:
    words = ("sweep", "all", "--results", tmp_path, "--out", tmp_path / "runs", "--device", "cpu", "--dry-run")
    assert "la-8/bcp" in cli.fails(*words, "--only", "la-8/bpc")
    for folder in ("acdc-3", "acdc-3/"):
        assert "'acdc-3/*'" in cli.fails(*words, "--only", folder)
    assert "did you mean" not in cli.fails(*words, "--only", "x*")
