"""A table asks for its rows, or for those that are named, each recipe once, with settings that they can have."""

import pytest

from graftseg.core.errors import UserError
from graftseg.experiments.sweep import sweep
from sweep_fakes import Sweeper


def test_recipes_without_a_row_are_run_where_they_are_named(sweeper: Sweeper) -> None:
    assert sweeper("la", "la-4/extra").recorded == ("la-4/extra, seed 0",)
    told = sweeper("la", "la-4/extra", "la-8/bcp", dry_run=True)
    assert told.before == ("la-4/extra, seed 0",)
    lines = list[str]()
    sweep("la", dry_run=True, results=sweeper.results, device="cpu", tell=lines.append)
    assert "la-8/bcp, seed 0: to be trained" in lines and not any("extra" in line for line in lines)


def test_every_recipe_is_run_once_of_all_tables(sweeper: Sweeper) -> None:
    sweeper("all", "*/bcp", dry_run=True, data=None)
    trials = [line for line in sweeper.told if line.endswith("to be trained")]
    assert trials == [f"{name}/bcp, seed 0: to be trained" for name in ("la-4", "la-8", "acdc-3")]


def test_a_setting_that_no_row_can_have_is_told_once(sweeper: Sweeper) -> None:
    with pytest.raises(UserError, match=r"--set foo=1: foo: .*, in every one of the 2 rows; correct the setting"):
        sweeper(overrides=["foo=1"], variant="odd")
    assert sweeper.told == []
    swept = sweeper("masks", "la-4/*", overrides=["seed=1"], dry_run=True)
    assert sorted(swept.failures) == ["la-4/bcp-contact", "la-4/bcp-random"]


@pytest.mark.parametrize("setting", ["name=la-8/bcp", "published=null", "published.dice=99", " name=la-8/bcp"])
@pytest.mark.parametrize("dry_run", [True, False])
def test_no_row_becomes_another(sweeper: Sweeper, setting: str, dry_run: bool) -> None:
    with pytest.raises(UserError, match=rf"^--set {setting}: (name|published) says which row it is, and no row becom"):
        sweeper("masks", "la-4/bcp", overrides=["seed=1", setting], variant="odd", dry_run=dry_run)
    assert sweeper.told == [] and not sweeper.runs.exists() and not sweeper.results.exists()


def test_names_that_no_row_has(sweeper: Sweeper) -> None:
    with pytest.raises(
        UserError, match=r"--only bcp: no row of table masks; choose among la-4/bcp-random, la-4/bcp-co"
    ):
        sweeper("masks", "bcp")
    with pytest.raises(UserError, match="table liver: unknown; choose one of la, acdc"):
        sweeper("liver")


def test_a_variant_is_a_name_that_folders_can_have(sweeper: Sweeper) -> None:
    with pytest.raises(UserError, match=r"^--variant vvvvv.*: more than 100 letters; name a shorter one"):
        sweeper("masks", "la-4/bcp", dry_run=True, variant="v" * 300)


def test_rows_without_a_recipe_fail_and_the_others_go_on(sweeper: Sweeper) -> None:
    swept = sweeper("masks", "la-4/*")
    assert sorted(swept.failures) == ["la-4/bcp-contact", "la-4/bcp-random"]
    assert "neither a file nor a shipped recipe" in swept.failures["la-4/bcp-random"]
    assert swept.recorded == ("la-4/bcp, seed 0",)
