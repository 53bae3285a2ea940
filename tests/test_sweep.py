"""A sweep runs what is missing of a table, goes on after a failure or an interrupt, and does nothing twice."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml

import graftseg.recipe
import graftseg.sweeps
from graftseg import api
from graftseg.data.store import Store
from graftseg.errors import StoppedError, UserError
from graftseg.recipe import Recipe
from graftseg.sweeps import Swept, sweep


def ship(folder: Path, name: str, steps: int = 2) -> None:
    tree = tiny.recipe_tree() | {"name": name, "stages": [{"method": "supervised", "steps": steps}]}
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tree))


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that ships two rows of the masks' table and a recipe of LA that is in no table."""
    folder = tmp_path / "recipes"
    monkeypatch.setattr(graftseg.recipe, "SHIPPED", folder)
    for name in ("la-4/bcp", "la-8/bcp", "la-4/extra", "acdc-3/bcp"):
        ship(folder, name)
    return folder


class Sweeper:
    """Sweeps with a tiny store for every data set."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.runs, self.results, self.store = folder / "runs", folder / "results", store
        self.told: list[str] = []

    def __call__(self, name: str = "masks", *only: str, **settings: Any) -> Swept:
        self.told.clear()
        given: dict[str, Any] = {"data": self.store.path, "only": only or ("la-*/bcp",)} | settings
        return sweep(name, out=self.runs, results=self.results, device="cpu", tell=self.told.append, **given)

    def records(self) -> list[str]:
        return sorted(path.parent.relative_to(self.results).as_posix() for path in self.results.rglob("run.json"))


@pytest.fixture
def sweeper(tmp_path: Path, store: Store, shipped: Path) -> Sweeper:
    return Sweeper(tmp_path, store)


def refuse(*arguments: Any, **settings: Any) -> None:
    raise AssertionError("nothing may be done again")


def test_rows_are_trained_tested_and_recorded_once(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = sweeper(seeds=2)
    names = [f"{recipe}, seed {seed}" for recipe in ("la-4/bcp", "la-8/bcp") for seed in (0, 1)]
    assert swept == Swept((), tuple(names), {})
    assert sweeper.records() == ["la-4/bcp/seed-0", "la-4/bcp/seed-1", "la-8/bcp/seed-0", "la-8/bcp/seed-1"]
    assert sweeper.told[0] == "la-4/bcp, seed 0 (1 of 4): to be trained"
    assert sweeper.told[1].startswith("la-4/bcp, seed 0: Dice ") and ", ASD " in sweeper.told[1]
    assert sweeper.told[-1] == "0 recorded before, 4 recorded now, 0 to do, 0 failed"
    for verb in ("train", "predict", "evaluate", "record"):
        monkeypatch.setattr(api, verb, refuse)
    assert sweeper(seeds=2, data=None) == Swept(tuple(names), (), {})
    assert sweeper.told == ["4 recorded before, 0 recorded now, 0 to do, 0 failed"]
    assert api.table("masks", sweeper.results).count("| 0, 1 | last |") == 2


def test_each_step_that_is_done_is_passed_over(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper("masks", "la-4/bcp")
    shutil.rmtree(sweeper.results)
    for verb in ("train", "predict", "evaluate"):
        monkeypatch.setattr(api, verb, refuse)
    sweeper("masks", "la-4/bcp")
    assert sweeper.told[0] == "la-4/bcp, seed 0 (1 of 1): trained, to be tested and recorded"
    assert sweeper.records() == ["la-4/bcp/seed-0"]


def test_an_interrupt_ends_the_sweep_and_the_same_call_goes_on(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, resumed = api.train, list[bool]()

    def stops(recipe: Recipe, data: Path, out: Path, *, resume: bool, device: str) -> object:
        resumed.append(resume)
        outcome = train(recipe, data, out, resume=resume, device=device)
        if not resume:
            (out / "run.json").write_text(
                json.dumps(json.loads((out / "run.json").read_text()) | {"status": "stopped"})
            )
            raise StoppedError(2, 1)
        return outcome

    monkeypatch.setattr(api, "train", stops)
    with pytest.raises(StoppedError):
        sweeper("masks", "la-4/bcp")
    assert sweeper.records() == []
    sweeper("masks", "la-4/bcp")
    assert (resumed, sweeper.records()) == ([False, True], ["la-4/bcp/seed-0"])
    assert sweeper.told[0].endswith("begun, to go on")


@pytest.mark.parametrize("error", [UserError("cuda", "the memory is full", "lower it"), RuntimeError("no\n kernel")])
def test_a_row_that_fails_does_not_stop_the_others(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    train = api.train

    def fails(recipe: Recipe, *arguments: Any, **settings: Any) -> object:
        if recipe.name == "la-4/bcp":
            raise error
        return train(recipe, *arguments, **settings)

    monkeypatch.setattr(api, "train", fails)
    swept = sweeper()
    words = "cuda: the memory is full; lower it." if isinstance(error, UserError) else "RuntimeError: no kernel"
    assert swept.failures == {"la-4/bcp, seed 0": words}
    assert f"la-4/bcp, seed 0: failed: {words}" in sweeper.told
    assert sweeper.records() == ["la-8/bcp/seed-0"]


def test_rows_without_a_recipe_fail_and_the_others_go_on(sweeper: Sweeper) -> None:
    swept = sweeper("masks", "la-4/*")
    assert sorted(swept.failures) == ["la-4/bcp-contact", "la-4/bcp-random"]
    assert "neither a file nor a shipped recipe" in swept.failures["la-4/bcp-random"]
    assert swept.recorded == ("la-4/bcp, seed 0",)


def test_a_change_needs_a_variant_and_has_its_own_place(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"recipe la-4/bcp: .*\(stages\.0\.steps\); name the difference with --variant"):
        sweeper(overrides=["stages.0.steps=1"])
    assert not sweeper.runs.exists()
    short = {"overrides": ["stages.0.steps=1"], "variant": "short"}
    swept = sweeper("masks", "la-4/bcp", **short)
    assert swept.recorded == ("la-4/bcp, seed 0, short",)
    assert sweeper.records() == ["la-4/bcp/seed-0-short"]
    assert (sweeper.runs / "la-4/bcp/seed-0-short/model.safetensors").is_file()
    monkeypatch.setattr(api, "train", refuse)
    again = sweeper("masks", "la-4/bcp", overrides=["network.width=4"], variant="short")
    assert (again.before, again.otherwise) == ((), ("la-4/bcp, seed 0, short",))
    words = "la-4/bcp, seed 0, short: recorded with other settings (network.width, stages.0.steps)"
    remedy = f"; name another --variant, or remove {sweeper.results}/la-4/bcp/seed-0-short"
    counts = "0 recorded before, 0 recorded now, 0 to do, 0 failed, 1 recorded with other settings"
    assert sweeper.told == [words + remedy, counts]
    sweeper("masks", "la-4/bcp", overrides=["network.width=4"], variant="short", dry_run=True)
    assert sweeper.told == [words, counts]


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
    assert sweeper(dry_run=True, data={"acdc": other}).failures == {}
    sweeper("masks", "la-4/bcp")
    shutil.rmtree(sweeper.results)
    run = sweeper.runs / "la-4/bcp/seed-0/run.json"
    run.write_text(run.read_text().replace(sweeper.store.identity, "f00"))
    (why,) = sweeper("masks", "la-4/bcp", dry_run=True).failures.values()
    assert why == f"{sweeper.store.path}: the store is not the one that the run began with"


def test_recipes_without_a_row_are_run_where_they_are_named(sweeper: Sweeper) -> None:
    assert sweeper("la", "la-4/extra").recorded == ("la-4/extra, seed 0",)
    told = sweeper("la", "la-4/extra", "la-8/bcp", dry_run=True)
    assert told.before == ("la-4/extra, seed 0",)
    lines = list[str]()
    sweep("la", dry_run=True, results=sweeper.results, device="cpu", tell=lines.append)
    assert "la-8/bcp, seed 0: to be trained" in lines and not any("extra" in line for line in lines)


def test_every_recipe_is_run_once_of_all_tables(sweeper: Sweeper) -> None:
    sweeper("all", "*/bcp", dry_run=True)
    trials = [line for line in sweeper.told if line.endswith("to be trained")]
    assert trials == [f"{name}/bcp, seed 0: to be trained" for name in ("la-4", "la-8", "acdc-3")]


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
    monkeypatch.setattr("graftseg.permissions.os.access", lambda path, mode: Path(path) != sweeper.results)
    with pytest.raises(UserError, match=r"/results: the folder cannot be written into"):
        sweeper("masks", "la-4/bcp")
    assert not sweeper.runs.exists()


@pytest.mark.parametrize("name", ["run.json", "metrics.json", "metrics.csv", "recipe.yaml"])
def test_a_damaged_record_is_made_anew_from_its_run(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sweeper("masks", "la-4/bcp")
    folder = sweeper.results / "la-4/bcp/seed-0"
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:20])
    for verb in ("train", "predict", "evaluate"):
        monkeypatch.setattr(api, verb, refuse)
    sweeper("masks", "la-4/bcp", dry_run=True)
    assert sweeper.told[0].startswith(f"la-4/bcp, seed 0: record damaged ({name}: ")
    assert sweeper.told[1] == "0 recorded before, 0 recorded now, 1 to do, 0 failed"
    assert sweeper("masks", "la-4/bcp").recorded == ("la-4/bcp, seed 0",)
    assert (folder / name).read_bytes() == whole
    (folder / name).write_bytes(b"")
    shutil.rmtree(sweeper.runs)
    with pytest.raises(
        UserError, match=rf"seed-0: the record is damaged \({name}: .*, and its run is not in .*/seed-0; "
    ):
        sweeper("masks", "la-4/bcp")
    assert list(sweeper("masks", "la-4/bcp", dry_run=True).failures) == ["la-4/bcp, seed 0"]
    assert sweeper.told[0].endswith(f", but would fail: its run is not in {sweeper.runs / 'la-4/bcp/seed-0'}")
    assert sweeper.told[1] == "0 recorded before, 0 recorded now, 0 to do, 1 failed"


@pytest.mark.parametrize(
    ("name", "content"),
    [("manifest.json", None), ("manifest.json", "{"), ("manifest.json", "[]"), ("metrics.json", "{")],
)
def test_label_maps_that_cannot_be_gone_on_with_can_be_made_anew(
    sweeper: Sweeper, name: str, content: str | None
) -> None:
    sweeper("masks", "la-4/bcp")
    shutil.rmtree(sweeper.results)
    predictions = sweeper.runs / "la-4/bcp/seed-0/predictions"
    if content is None:
        (predictions / name).unlink()
    else:
        (predictions / name).write_text(content)
    (why,) = sweeper("masks", "la-4/bcp").failures.values()
    assert why.startswith(f"{predictions}/")
    assert why.endswith(f"; move {predictions} elsewhere and run the same command again.")
    predictions.rename(sweeper.runs / "moved")
    assert sweeper("masks", "la-4/bcp").failures == {}


def test_more_seeds_than_anybody_trains_are_refused(sweeper: Sweeper) -> None:
    with pytest.raises(UserError, match=r"--seeds 1000000000: more than 100 seeds of each row; name fewer"):
        sweeper(seeds=10**9, dry_run=True)


def test_a_setting_that_no_row_can_have_is_told_once(sweeper: Sweeper) -> None:
    with pytest.raises(UserError, match=r"--set foo=1: foo: .*, in every one of the 2 rows; correct the setting"):
        sweeper(overrides=["foo=1"], variant="odd")
    assert sweeper.told == []
    swept = sweeper("masks", "la-4/*", overrides=["seed=1"], dry_run=True)
    assert sorted(swept.failures) == ["la-4/bcp-contact", "la-4/bcp-random"]


def test_names_that_no_row_has(sweeper: Sweeper) -> None:
    with pytest.raises(
        UserError, match=r"--only bcp: no row of table masks; choose among la-4/bcp-random, la-4/bcp-co"
    ):
        sweeper("masks", "bcp")
    with pytest.raises(UserError, match="table liver: unknown; choose one of la, acdc"):
        sweeper("liver")


def test_every_data_set_has_its_store(sweeper: Sweeper, store: Store, tmp_path: Path) -> None:
    only = ("la-4/bcp", "acdc-3/bcp")
    for data in (None, store.path, {"la": store.path}):
        with pytest.raises(
            UserError, match=r"store of (acdc and la|acdc) is not named; name it: --data acdc=STORE --d"
        ):
            sweeper("directions", *only, data=data)
    with pytest.raises(UserError, match=r"nothing: not a prepared store; make it with graftseg prepare --benchmark la"):
        sweeper("directions", *only, data={"la": tmp_path / "nothing", "acdc": store.path})
    assert not sweeper.runs.exists()
    assert len(sweeper("directions", *only, data={"la": store.path, "acdc": str(store.path)}).recorded) == 2


def test_what_a_training_left_on_a_gpu_is_given_back(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    called = list[str]()
    monkeypatch.setattr(graftseg.sweeps, "choose_device", lambda device: torch.device("cuda"))
    monkeypatch.setattr(torch.compiler, "reset", lambda: called.append("reset"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append("empty"))
    sweeper("masks", "la-4/bcp")
    assert called == ["reset", "empty"]


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


def test_a_variant_is_a_name_that_folders_can_have(sweeper: Sweeper) -> None:
    with pytest.raises(UserError, match=r"^--variant vvvvv.*: more than 100 letters; name a shorter one"):
        sweeper("masks", "la-4/bcp", dry_run=True, variant="v" * 300)
