"""Names that there are not: what may have been meant, and never a list of all."""

from pathlib import Path

import pytest
from command_line import CommandLine

from graftseg.core.errors import UserError
from graftseg.recipes.reading import likely
from graftseg.recipes.recipe import load_recipe, shipped_recipes

KNOWN = ["la-4/bcp", "la-8/bcp", "la-8/supervised", "la-8/ua-mt", "acdc-3/bcp"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("la-8/bpc", "perhaps la-8/bcp is meant"),
        ("LA-8/UA-MT", "perhaps la-8/ua-mt is meant"),
        ("la-8/zebra", "la-8/ has bcp, supervised, ua-mt"),
        ("la-8", "la-8/ has bcp, supervised, ua-mt"),
        ("LA-8/", "la-8/ has bcp, supervised, ua-mt"),
        ("acdc-3/", "acdc-3/ has bcp"),
        ("la", ""),
        ("nothing/like/it", ""),
        ("", ""),
    ],
)
def test_names_that_are_alike_or_lie_in_the_same_folder(given: str, expected: str) -> None:
    assert likely(given, KNOWN) == expected


def test_a_misspelt_recipe_is_answered_with_the_likely_one() -> None:
    with pytest.raises(UserError) as caught:
        load_recipe("la-8/bpc")
    assert str(caught.value) == (
        "recipe 'la-8/bpc': neither a file nor a shipped recipe; "
        "name a .yaml file or a shipped recipe, of which graftseg doctor has a list (perhaps la-8/bcp is meant)."
    )


@pytest.mark.parametrize("name", ["nothing", "la-8/zebra", "acdc/bcp", "la-80/ua-mt", "bcp"])
def test_no_answer_is_a_list_of_all(name: str) -> None:
    with pytest.raises(UserError, match="graftseg doctor has a list") as caught:
        load_recipe(name)
    assert len([one for one in shipped_recipes() if one in str(caught.value)]) <= 1
    assert len(str(caught.value)) < 400


def test_rows_that_a_table_has_not_are_answered_alike(cli: CommandLine, tmp_path: Path) -> None:
    words = ("sweep", "all", "--results", tmp_path, "--out", tmp_path / "runs", "--device", "cpu", "--dry-run")
    error = cli.fails(*words, "--only", "la-8/bpc")
    assert error.endswith("see those of graftseg sweep all --dry-run (perhaps la-8/bcp is meant).\n")
    for folder in ("acdc-3", "acdc-3/"):
        told = (
            f"graftseg: --only {folder}: a folder of recipes, not one of them; write --only 'acdc-3/*' for all in it.\n"
        )
        assert cli.fails(*words, "--only", folder) == told
    assert cli.fails(*words, "--only", "x*").endswith(
        "no row of table all; see those of graftseg sweep all --dry-run.\n"
    )
