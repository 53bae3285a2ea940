"""A record that does not lie where it belongs, or that is not like those beside it, is in no mean."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.files import write_json
from graftseg.experiments.records import read_record, refuse_other_data
from graftseg.experiments.tables import markdown, table
from record_fakes import record
from sweep_fakes import Sweeper

RECIPE = "la-4/bcp"
MOVE = "move the folder elsewhere, and record the run again"


@pytest.fixture
def results(shipped: Path, tmp_path: Path) -> Path:
    """One record of a shipped row."""
    record(tmp_path / "results", RECIPE, 0, 0.5)
    return tmp_path / "results"


def facts_of(results: Path, number: int, /, **facts: Any) -> None:
    path = results / RECIPE / f"seed-{number}" / "run.json"
    write_json(path, json.loads(path.read_text()) | facts)


def settings_of(results: Path, number: int, /, **settings: Any) -> None:
    path = results / RECIPE / f"seed-{number}" / "recipe.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))


@pytest.mark.parametrize(
    ("facts", "finding"),
    [
        ({"seed": 3}, "it is of the seed 3, and lies where seed 0 belongs"),
        ({"recipe": "la-4/dtc"}, "it is of the recipe la-4/dtc, and lies where recipe la-4/bcp belongs"),
        ({"variant": "short"}, "it is of the variant short, and lies where none belongs"),
    ],
)
def test_facts_of_another_record_are_refused(results: Path, facts: dict[str, Any], finding: str) -> None:
    facts_of(results, 0, **facts)
    with pytest.raises(UserError) as error:
        table("la", results)
    assert str(error.value) == f"{results / RECIPE}/seed-0/run.json: {finding}; {MOVE}."


def test_a_record_without_its_variant_is_refused(results: Path) -> None:
    facts_of(results, 0, variant="")
    assert "| la-4/bcp | - | 0 |" in table("la", results)
    (results / RECIPE / "seed-0").rename(results / RECIPE / "seed-0-short")
    with pytest.raises(UserError, match=r"run.json: it is of no variant, and lies where variant short belongs; move"):
        table("la", results)


@pytest.mark.parametrize(
    ("settings", "finding"),
    [
        ({"seed": 3}, "it is of the seed 3, and lies where seed 0 belongs"),
        ({"name": "la-4/dtc"}, "it is of the recipe la-4/dtc, and lies where recipe la-4/bcp belongs"),
    ],
)
def test_settings_of_another_record_are_refused(results: Path, settings: dict[str, Any], finding: str) -> None:
    settings_of(results, 0, **settings)
    with pytest.raises(UserError, match=rf"seed-0/recipe.yaml: {finding}; {MOVE}"):
        table("la", results)


def test_damaged_settings_are_named(results: Path) -> None:
    path = results / RECIPE / "seed-0" / "recipe.yaml"
    for content in ("{", "[]", "name: la-4/bcp\nseed: x\n"):
        path.write_text(content)
        with pytest.raises(UserError, match=r"recipe\.yaml: .*; record the run again"):
            table("la", results)
    path.unlink()
    with pytest.raises(UserError, match=r"recipe\.yaml: .*; record the run again"):
        table("la", results)


@pytest.mark.parametrize(
    "name", ["seed-00-s", "seed-\u0663-s", "seed-01", "seed-1-a|b", "seed-1-", "seed-x", "seed-1.old"]
)
def test_names_that_are_no_places_of_records(results: Path, name: str) -> None:
    folder = results / RECIPE / name
    shutil.copytree(results / RECIPE / "seed-0", folder)
    with pytest.raises(UserError) as error:
        table("la", results)
    assert str(error.value).startswith(f"{folder}: not the name of a record, which is seed-N or seed-N-VARIANT")
    assert str(error.value).endswith(f"; {MOVE}.")
    (folder / "run.json").unlink()
    assert "| la-4/bcp | - | 0 |" in table("la", results)


def test_no_seed_vanishes_silently(results: Path) -> None:
    folder = results / RECIPE / "seed-1"
    folder.mkdir()
    assert "| la-4/bcp | - | 0 |" in table("la", results)
    (folder / "run.json").mkdir()
    with pytest.raises(UserError, match=rf"seed-1/run.json: not a file; {MOVE}"):
        table("la", results)
    (folder / "run.json").rmdir()
    (folder / "run.json").symlink_to(folder / "gone.json")
    with pytest.raises(UserError, match=r"seed-1/run.json: a link that leads nowhere; mend it, or move .*/seed-1 else"):
        table("la", results)
    shutil.rmtree(folder)
    folder.symlink_to(results / "gone")
    with pytest.raises(UserError, match=r"seed-1: a link that leads nowhere; mend it, or move .*/seed-1 elsewhere"):
        table("la", results)


def test_a_sweep_takes_no_folder_for_a_record(sweeper: Sweeper) -> None:
    folder = sweeper.results / RECIPE / "seed-0"
    (folder / "run.json").mkdir(parents=True)
    with pytest.raises(UserError, match=r"the record is damaged \(run.json: not a file\), and its run is not in"):
        sweeper("masks", RECIPE)
    assert not sweeper.runs.exists()


def test_seeds_of_other_lengths_share_no_line(results: Path) -> None:
    record(results, RECIPE, 1, 0.6, steps=30)
    with pytest.raises(
        UserError, match=r"seed-1: .*seed-0 has the same variant and other settings \(steps\); move one"
    ):
        table("la", results)
    facts_of(results, 1, steps=100)
    (results / RECIPE / "seed-1" / "log.jsonl").write_text('{"global_step": 100, "total": 0.5}\n')
    assert "| la-4/bcp | - | 0, 1 |" in table("la", results)
    settings_of(results, 1, baseline=False, network={"name": "unet-2d", "width": 4, "levels": 3})
    with pytest.raises(UserError, match=r"seed-0 has the same variant and other settings \(network.width\); move one"):
        table("la", results)


def test_a_table_tells_of_seeds_that_were_trained_on_other_data(results: Path) -> None:
    for seed in (1, 2):
        record(results, RECIPE, seed, 0.5)
    facts_of(results, 0, store={"identity": "f00"})
    facts_of(results, 1, store={"identity": "f00"})
    said = "Seeds 0, 1 and 2 of la-4/bcp were trained on stores that differ.\n"
    assert said not in table("la", results)
    facts_of(results, 2, store={"identity": "f01"})
    assert f"\n\n{said}" in table("la", results) and said in api.table("all", results)


def test_seeds_that_were_trained_on_other_data_are_not_recorded_beside_one_another(results: Path) -> None:
    facts_of(results, 0, store={"identity": "f00"})
    folder = results / RECIPE / "seed-1"
    before = read_record(results / RECIPE / "seed-0", RECIPE)
    for identity in ("f00", None):
        refuse_other_data(replace(before, seed=1, identity=identity), folder)
    with pytest.raises(UserError, match=r"^new: .*seed-0 has the same variant and was trained on another store; name"):
        refuse_other_data(replace(before, seed=1, name="new", identity="f01"), folder)


def test_seeds_that_were_tested_on_other_labels_of_the_same_volume_share_no_line(results: Path) -> None:
    record(results, RECIPE, 1, 0.5)
    for seed, tested_on in ((0, "f00"), (1, "f00"), (1, "f01")):
        path = results / RECIPE / f"seed-{seed}" / "metrics.json"
        write_json(path, json.loads(path.read_text()) | {"tested_on": tested_on})
        if tested_on == "f00":
            assert "| la-4/bcp | - | 0, 1 |" in table("la", results)
    with pytest.raises(UserError, match=r"seed-1: the scans or labels that it was tested on are not those of .*seed-0"):
        table("la", results)


def test_a_bar_in_a_cell_breaks_no_table() -> None:
    assert markdown([["a"], ["b|c"]]) == "| a |\n| --- |\n| b\\|c |\n"
