"""What would keep a sweep from its records is found before anything is trained, and by a dry run too."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny

import graftseg.experiments.preflight
from graftseg import api
from graftseg.core.errors import UserError
from graftseg.data import benchmarks
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.recipes.recipe import Recipe
from sweep_fakes import Sweeper, refuse


def test_a_dry_run_only_tells(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper("masks", "la-4/bcp")
    for verb in ("train", "predict", "evaluate", "record"):
        monkeypatch.setattr(api, verb, refuse)
    swept = sweeper(dry_run=True, data=None)
    assert sweeper.told == [
        "la-4/bcp, seed 0: recorded",
        "la-8/bcp, seed 0: to be trained",
        "1 recorded before, 0 recorded now, 1 to do, 0 failed",
    ]
    assert swept.recorded == ()
    (sweeper.runs / "la-4/bcp/seed-0/run.json").write_text("[]")
    shutil.rmtree(sweeper.results)
    sweeper("masks", "la-4/bcp", dry_run=True)
    assert "run.json: not a run of this version" in sweeper.told[0]


def test_a_dry_run_tells_of_a_store_that_is_not_that_of_the_rows(sweeper: Sweeper, tmp_path: Path) -> None:
    other = Path(shutil.copytree(sweeper.store.path, tmp_path / "other"))
    content = json.loads((other / "manifest.json").read_text())
    content["settings"]["spacing"] = [3.0, 3.0]
    (other / "manifest.json").write_text(json.dumps(content))
    swept = sweeper(dry_run=True, data={"la": other})
    assert sorted(swept.failures) == ["la-4/bcp, seed 0", "la-8/bcp, seed 0"]
    words = f"la-4/bcp, seed 0: to be trained, but would fail: {other}: the store was prepared otherwise than recipe"
    assert sweeper.told[0].startswith(words)
    assert sweeper.told[-1] == "0 recorded before, 0 recorded now, 0 to do, 2 failed"
    sweeper("masks", "la-4/bcp")
    shutil.rmtree(sweeper.results)
    run = sweeper.runs / "la-4/bcp/seed-0/run.json"
    run.write_text(run.read_text().replace(sweeper.store.identity, "f00"))
    (why,) = sweeper("masks", "la-4/bcp", dry_run=True).failures.values()
    assert why == f"{sweeper.store.path}: the store is not the one that the run began with"


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_store_that_is_not_named_is_refused_by_a_dry_run_too(sweeper: Sweeper, dry_run: bool) -> None:
    with pytest.raises(UserError) as caught:
        sweeper("masks", "la-4/bcp", dry_run=dry_run, data={"acdc": sweeper.store.path})
    sentence = "--data: the rows need 1 data set, and the store of la is not named; name it: --data la=STORE."
    assert str(caught.value) == sentence and not sweeper.runs.exists()


def test_a_store_that_fits_no_row_is_refused_once(sweeper: Sweeper, tmp_path: Path) -> None:
    other = Path(shutil.copytree(sweeper.store.path, tmp_path / "other"))
    content = json.loads((other / "manifest.json").read_text())
    content["settings"]["spacing"] = [3.0, 3.0]
    (other / "manifest.json").write_text(json.dumps(content))
    why = (
        f"^{other}: the rows want the data set la, and this store of crescent, ring, core is another or was prepared "
        r"otherwise \(data.spacing is \[3.0, 3.0\], not None\); name one that was made with graftseg prepare --bench"
    )
    for data in (other, {"la": other, "acdc": sweeper.store.path}):
        with pytest.raises(UserError, match=why):
            sweeper(data=data)
    with pytest.raises(UserError, match=why):
        sweeper("directions", "la-4/bcp", "acdc-3/bcp", data={"la": other, "acdc": sweeper.store.path})
    assert sweeper.told == [] and not sweeper.runs.exists()
    sweeper("directions", "la-4/bcp", "acdc-3/bcp", data={"la": sweeper.store.path, "acdc": sweeper.store.path})
    assert len(sweeper.records()) == 2


def test_a_store_of_other_classes_is_another_data_set(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graftseg.experiments.preflight, "classes_of", benchmarks.classes_of)
    store = sweeper.store.path
    why = "the rows want the data set la of left atrium, and this store of crescent, ring, core is another"
    remedy = "name one that was made with graftseg prepare --benchmark la"
    with pytest.raises(UserError) as error:
        sweeper("masks", "la-4/bcp")
    assert str(error.value) == f"{store}: {why}; {remedy}."
    assert sweeper("masks", "la-4/bcp", dry_run=True).failures == {"la-4/bcp, seed 0": f"{store}: {why}"}
    assert not sweeper.runs.exists()


def test_a_record_never_takes_the_place_of_a_run(sweeper: Sweeper, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sweeper.runs, target_is_directory=True)
    sweeper.results = tmp_path / "link"
    with pytest.raises(UserError, match="seed-0: the record would be written over the run itself; name another folder"):
        sweeper("masks", "la-4/bcp")
    assert not sweeper.runs.exists()
    sweeper.results = tmp_path / "results"
    sweeper("masks", "la-4/bcp")
    kept, sweeper.runs = sweeper.runs, sweeper.results
    with pytest.raises(UserError, match="the record would be written over the run itself"):
        sweeper("masks", "la-4/bcp")
    sweeper.runs = kept
    runs, sweeper.results, sweeper.runs = sweeper.runs, sweeper.runs, tmp_path / "others"
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="la-4/bcp/seed-0: holds a run, over which its record would be written"):
        sweeper("masks", "la-4/bcp")
    assert not sweeper.runs.exists()
    assert before == {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}


def test_results_that_cannot_be_written_are_refused_before_a_training(sweeper: Sweeper, tmp_path: Path) -> None:
    sweeper.results = tmp_path / "file"
    sweeper.results.write_text("")
    with pytest.raises(UserError, match=r"/file: not a folder; name another folder as --results or --out"):
        sweeper("masks", "la-4/bcp")
    sweeper.results = tmp_path / "results"
    (sweeper.results / "la-4").mkdir(parents=True)
    (sweeper.results / "la-4" / "bcp").write_text("")
    with pytest.raises(UserError, match=r"/results/la-4/bcp: not a folder"):
        sweeper("masks", "la-4/bcp")
    assert not sweeper.runs.exists()
    sweeper.runs, sweeper.results = tmp_path / "file", tmp_path / "others"
    with pytest.raises(UserError, match=r"/file: cannot be made a folder \(File exists\); name another one"):
        sweeper("masks", "la-4/bcp")


def test_a_closed_folder_of_results_is_refused_before_a_training(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweeper.results.mkdir()
    # whoever runs the tests may have every right
    monkeypatch.setattr("graftseg.core.files.os.access", lambda path, mode: Path(path) != sweeper.results)
    with pytest.raises(UserError, match=r"/results: the folder cannot be written into"):
        sweeper("masks", "la-4/bcp")
    assert not sweeper.runs.exists()


def test_a_dry_run_foresees_a_run_of_other_settings(sweeper: Sweeper) -> None:
    sweeper("masks", "la-4/bcp")
    shutil.rmtree(sweeper.results / "la-4/bcp")
    recipe = sweeper.runs / "la-4/bcp/seed-0/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("labeled_cases: null", "labeled_cases: 1"))
    assert list(sweeper("masks", "la-4/bcp", dry_run=True).failures) == ["la-4/bcp, seed 0"]
    other = "its run was begun with other settings (batches.labeled_cases); name another --variant"
    assert sweeper.told[0].endswith(f", but would fail: {other}")


def test_nothing_is_trained_that_could_not_stand_beside_other_seeds(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = {"overrides": ["network.width=6"], "variant": "wide"}
    sweeper("masks", "la-4/bcp", **wide)
    monkeypatch.setattr(api, "train", refuse)
    other = {"overrides": ["network.width=4"], "variant": "wide", "seeds": 2}
    sibling = sweeper.results / "la-4/bcp/seed-0-wide"
    for dry_run in (True, False):
        failed = sweeper("masks", "la-4/bcp", dry_run=dry_run, **other).failures
        why = f"{sibling} has the same variant and other settings (network.width); name another --variant"
        assert list(failed) == ["la-4/bcp, seed 1, wide"] and why in failed["la-4/bcp, seed 1, wide"]
    assert not (sweeper.runs / "la-4/bcp/seed-1-wide").exists()
    (sibling / "recipe.yaml").write_text("{")
    failed = sweeper("masks", "la-4/bcp", **(wide | {"overrides": [*wide["overrides"], "seed=1"]})).failures
    assert f"record the run again, or remove {sibling}" in failed["la-4/bcp, seed 1, wide"]


@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ({"test": 3}, "not scored on the same cases as {sibling} (1 in one of the two only: test_002)"),
        ({"labeled": 3}, "nothing tells that it was scored against the same references as {sibling}"),
    ],
)
def test_nothing_is_trained_on_another_store_than_other_seeds(
    sweeper: Sweeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: dict[str, int], why: str
) -> None:
    sweeper("masks", "la-4/bcp")
    sibling = sweeper.results / "la-4/bcp/seed-0"
    scans = tiny.write_scans(tmp_path / "scans", **counts)
    other = prepare(read_layout(scans), tmp_path / "other", tiny.tiny_recipe().data)
    finding = f"what is trained on it could not be recorded beside other seeds ({why.format(sibling=sibling)})"
    words = f"{other.path}: {finding}; name another --variant, or the store of those seeds"
    rows = ("la-4/bcp", "la-8/bcp")
    foreseen = sweeper("masks", *rows, seeds=2, data={"la": other.path}, dry_run=True)
    assert foreseen.failures == {"la-4/bcp, seed 1": words}
    train, trained = api.train, list[str]()

    def counted(recipe: Recipe, *arguments: Any, **settings: Any) -> object:
        assert sweeper.told[0] == f"la-4/bcp, seed 1: failed: {words}"
        trained.append(f"{recipe.name}, seed {recipe.seed}")
        return train(recipe, *arguments, **settings)

    monkeypatch.setattr(api, "train", counted)
    swept = sweeper("masks", *rows, seeds=2, data={"la": other.path})
    assert (swept.failures, swept.recorded) == (foreseen.failures, ("la-8/bcp, seed 0", "la-8/bcp, seed 1"))
    assert trained == list(swept.recorded)
    assert "(1 of 2)" in sweeper.told[1]
    assert not (sweeper.runs / "la-4/bcp/seed-1").exists()


def test_a_dry_run_foresees_that_a_store_has_too_few_labels(sweeper: Sweeper) -> None:
    many = {"overrides": ["batches.labeled_cases=99"], "variant": "many"}
    foreseen = sweeper("masks", "la-4/bcp", dry_run=True, **many).failures
    why = "99 labeled and 0 validation cases are requested, but only 4 labeled cases are available"
    assert foreseen == {"la-4/bcp, seed 0, many": f"{sweeper.store.path}: {why}"}
    assert sweeper.told[-1] == "0 recorded before, 0 recorded now, 0 to do, 1 failed"
    (reason,) = sweeper("masks", "la-4/bcp", **many).failures.values()
    assert why in reason


@pytest.mark.parametrize(
    ("file", "finding"),
    [
        ("log.jsonl", "no whole line in it"),
        ("recipe.yaml", "not valid YAML"),
        ("model.safetensors", "the weights are not those that the run saved"),
        ("run.json", "not valid JSON"),
    ],
)
def test_a_dry_run_foresees_that_a_damaged_run_cannot_be_recorded(sweeper: Sweeper, file: str, finding: str) -> None:
    sweeper("masks", "la-4/bcp")
    shutil.rmtree(sweeper.results)
    shutil.rmtree(sweeper.runs / "la-4/bcp/seed-0/predictions")
    assert sweeper("masks", "la-4/bcp", dry_run=True).failures == {}
    path = sweeper.runs / "la-4/bcp/seed-0" / file
    path.write_bytes(b"{")
    (why,) = sweeper("masks", "la-4/bcp", dry_run=True).failures.values()
    assert why.startswith(f"{path}: ") and finding in why and sweeper.told[0].count(why) == 1
    assert sweeper.told[-1] == "0 recorded before, 0 recorded now, 0 to do, 1 failed"
    (reason,) = sweeper("masks", "la-4/bcp").failures.values()
    assert reason.startswith(f"{path}: ") and not sweeper.records()


def test_a_dry_run_asks_for_no_network_that_was_tested(sweeper: Sweeper) -> None:
    sweeper("masks", "la-4/bcp")
    shutil.rmtree(sweeper.results)
    (sweeper.runs / "la-4/bcp/seed-0/model.safetensors").write_bytes(b"{")
    assert sweeper("masks", "la-4/bcp", dry_run=True).failures == {}
    assert sweeper("masks", "la-4/bcp").failures == {}
