"""Sweeps: rows are trained, tested and recorded once; a sweep continues after a failure and can be resumed."""

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny

import graftseg.experiments.sweep
from graftseg import api
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.data import benchmarks
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store
from graftseg.experiments import train_and_test
from graftseg.experiments.sweep import Swept, sweep
from graftseg.recipes.recipe import Recipe
from graftseg.training import run as training
from sweep_fakes import Sweeper, forbid
from user_errors import user_error

ROW = "la-4/bcp"


def test_rows_are_trained_tested_and_recorded_once(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    swept = sweeper(seeds=2)
    names = [f"{recipe}, seed {seed}" for recipe in ("la-4/bcp", "la-8/bcp") for seed in (0, 1)]
    assert swept == Swept((), tuple(names), {})
    assert sweeper.records() == ["la-4/bcp/seed-0", "la-4/bcp/seed-1", "la-8/bcp/seed-0", "la-8/bcp/seed-1"]
    assert sweeper.told[0] == "la-4/bcp, seed 0 (1 of 4): to be trained"
    assert sweeper.told[1].startswith("la-4/bcp, seed 0: Dice ") and ", ASD " in sweeper.told[1]
    assert sweeper.told[-1] == "0 recorded before, 4 recorded now, 0 to do, 0 failed"
    forbid(monkeypatch)
    assert sweeper(seeds=2, data=None) == Swept(tuple(names), (), {})
    assert sweeper.told == ["4 recorded before, 0 recorded now, 0 to do, 0 failed"]
    assert api.table("masks", sweeper.results).count("| 0, 1 | last |") == 2


def test_finished_steps_are_reused(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper("masks", ROW)
    shutil.rmtree(sweeper.results)
    forbid(monkeypatch)
    sweeper("masks", ROW)
    assert sweeper.told[0] == "la-4/bcp, seed 0 (1 of 1): trained, to be tested and recorded"
    assert sweeper.records() == ["la-4/bcp/seed-0"]


def test_an_interrupted_sweep_is_resumed_by_the_same_call(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = training.complete

    def stop(recipe: Recipe, store: Store, run: RunFolder, *settings: Any) -> None:
        complete(recipe, store, run, *settings)
        run.update_manifest({"status": "stopped"})
        raise StoppedError(2, 1)

    with monkeypatch.context() as patched:
        patched.setattr(train_and_test, "complete", stop)
        with pytest.raises(StoppedError):
            sweeper("masks", ROW)
    assert sweeper.records() == []
    sweeper("masks", ROW)
    assert sweeper.records() == ["la-4/bcp/seed-0"]
    assert sweeper.told[0].endswith("started, to be resumed")


def test_a_failing_row_does_not_stop_the_other_rows(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    complete = training.complete
    for error, words in (
        (UserError(Code.OUT_OF_MEMORY, "cuda", "out of memory", "use smaller batches"), "cuda: out of memory; "),
        (RuntimeError("no\n kernel"), "RuntimeError: no kernel"),
    ):

        def fail(recipe: Recipe, *arguments: Any, raised: Exception = error) -> None:
            if recipe.name == ROW:
                raise raised
            complete(recipe, *arguments)

        monkeypatch.setattr(train_and_test, "complete", fail)
        (reason,) = sweeper().failures.values()
        assert reason.startswith(words) and f"la-4/bcp, seed 0: failed: {reason}" in sweeper.told
        assert sweeper.records() == ["la-8/bcp/seed-0"]


def test_a_change_needs_a_variant(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    with user_error(Code.VARIANT_NEEDED, "recipe la-4/bcp", "stages.0.steps"):
        sweeper(overrides=["stages.0.steps=1"])
    with user_error(Code.OPTION_INVALID, "--variant vvv"):
        sweeper("masks", ROW, dry_run=True, variant="v" * 300)
    assert not sweeper.runs.exists()
    swept = sweeper("masks", ROW, overrides=["stages.0.steps=1"], variant="short")
    assert swept.recorded == ("la-4/bcp, seed 0, short",)
    assert sweeper.records() == ["la-4/bcp/seed-0-short"]
    assert (sweeper.runs / "la-4/bcp/seed-0-short/model.safetensors").is_file()
    forbid(monkeypatch)
    again = sweeper("masks", ROW, overrides=["network.width=4"], variant="short")
    assert (again.before, again.other_settings) == ((), ("la-4/bcp, seed 0, short",))
    state = "la-4/bcp, seed 0, short: recorded with other settings (network.width, stages.0.steps)"
    remedy = f"; pass another --variant, or remove {sweeper.results}/la-4/bcp/seed-0-short"
    counts = "0 recorded before, 0 recorded now, 0 to do, 0 failed, 1 recorded with other settings"
    assert sweeper.told == [state + remedy, counts]
    sweeper("masks", ROW, overrides=["network.width=4"], variant="short", dry_run=True)
    assert sweeper.told == [state, counts]


def test_a_damaged_record_stops_the_sweep(sweeper: Sweeper) -> None:
    sweeper("masks", ROW)
    file = sweeper.results / "la-4/bcp/seed-0/record.json"
    file.write_text("{")
    with user_error(Code.DAMAGED_FILE, file, "graftseg record"):
        sweeper("masks", ROW)
    api.record(sweeper.runs / "la-4/bcp/seed-0", results=sweeper.results)
    assert sweeper("masks", ROW).before == ("la-4/bcp, seed 0",)


def test_damaged_predictions_can_be_moved_away(sweeper: Sweeper) -> None:
    sweeper("masks", ROW)
    predictions = sweeper.runs / "la-4/bcp/seed-0/predictions"
    for number, (name, content) in enumerate([("manifest.json", None), ("manifest.json", "{"), ("metrics.json", "{")]):
        shutil.rmtree(sweeper.results)
        if content is None:
            (predictions / name).unlink()
        else:
            (predictions / name).write_text(content)
        (reason,) = sweeper("masks", ROW).failures.values()
        assert reason.startswith(f"{predictions}/")
        predictions.rename(sweeper.runs / f"moved-{number}")
        assert sweeper("masks", ROW).failures == {}


def test_a_full_disk_leaves_no_partial_files(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in (sweeper.runs / "la-4/bcp/seed-0/predictions", sweeper.results):

        def full(stream: int, place: Path = place) -> None:
            if Path(f"/proc/self/fd/{stream}").readlink().is_relative_to(place.resolve()):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            (reason,) = sweeper("masks", ROW).failures.values()
        assert reason.startswith(f"{place}/") and "No space left on device" in reason
        assert sweeper.records() == [] and not list(sweeper.results.rglob(".partial*"))
    assert sweeper("masks", ROW).failures == {}


def test_gpu_memory_is_freed_after_each_training(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    called = list[str]()
    monkeypatch.setattr(graftseg.experiments.sweep, "choose_device", lambda device: torch.device("cuda"))
    monkeypatch.setattr(torch.compiler, "reset", lambda: called.append("reset"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append("empty"))
    sweeper("masks", ROW)
    assert called == ["reset", "empty"]


def test_a_dry_run_only_prints(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper("masks", ROW)
    forbid(monkeypatch)
    swept = sweeper(dry_run=True, data=None)
    assert sweeper.told == [
        "la-4/bcp, seed 0: recorded",
        "la-8/bcp, seed 0: to be trained",
        "1 recorded before, 0 recorded now, 1 to do, 0 failed",
    ]
    assert swept.recorded == ()


def test_a_store_that_fits_no_row_is_rejected(
    sweeper: Sweeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(sweeper.store, path=Path(shutil.copytree(sweeper.store.path, tmp_path / "other")))
    replace(other, settings=other.settings | {"spacing": [3.0, 3.0]}).save()
    for data in (other.path, {"la": other.path, "acdc": sweeper.store.path}):
        with user_error(Code.STORE_MISMATCH, other.path, "data.spacing"):
            sweeper(data=data)
    swept = sweeper(data={"la": other.path}, dry_run=True)
    assert sorted(swept.failures) == ["la-4/bcp, seed 0", "la-8/bcp, seed 0"]
    assert sweeper.told[0].startswith(f"la-4/bcp, seed 0: to be trained, but would fail: {other.path}: ")
    assert sweeper.told[-1] == "0 recorded before, 0 recorded now, 0 to do, 2 failed"
    monkeypatch.setattr(graftseg.experiments.sweep, "classes_of", benchmarks.classes_of)
    with user_error(Code.STORE_MISMATCH, sweeper.store.path, "crescent, ring, core"):
        sweeper("masks", ROW)
    assert not sweeper.runs.exists()


def test_a_store_without_test_labels_is_rejected(sweeper: Sweeper, tmp_path: Path) -> None:
    copied = replace(sweeper.store, path=Path(shutil.copytree(sweeper.store.path, tmp_path / "copied")))
    replace(copied, cases=tuple(case for case in copied.cases if case.split != "test")).save()
    with pytest.raises(UserError) as caught:
        sweeper("masks", ROW, data=copied.path)
    assert str(copied.path) in caught.value.where and not sweeper.runs.exists()


def test_a_store_with_too_few_labels_is_rejected(sweeper: Sweeper) -> None:
    many = {"overrides": ["batches.labeled_cases=99"], "variant": "many"}
    (reason,) = sweeper("masks", ROW, dry_run=True, **many).failures.values()
    assert "99" in reason and sweeper.told[-1] == "0 recorded before, 0 recorded now, 0 to do, 1 failed"
    with pytest.raises(UserError, match="99"):
        sweeper("masks", ROW, **many)


def test_every_data_set_needs_a_store(sweeper: Sweeper, store: Store, tmp_path: Path) -> None:
    only = (ROW, "acdc-3/bcp")
    for data in (None, store.path, {"la": store.path}):
        with user_error(Code.STORE_MISSING, "--data", "--data acdc=STORE --data la=STORE"):
            sweeper("directions", *only, data=data)
    for dry_run in (False, True):
        with user_error(Code.STORE_MISSING, "--data", "--data la=STORE"):
            sweeper("masks", ROW, dry_run=dry_run, data={"acdc": store.path})
    with user_error(Code.STORE_MISSING, tmp_path / "nothing", "graftseg prepare --benchmark la"):
        sweeper("directions", *only, data={"la": tmp_path / "nothing", "acdc": store.path})
    assert not sweeper.runs.exists()
    assert len(sweeper("directions", *only, data={"la": store.path, "acdc": str(store.path)}).recorded) == 2


def test_a_record_never_overwrites_a_run(sweeper: Sweeper, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(sweeper.runs, target_is_directory=True)
    sweeper.results = tmp_path / "link"
    with user_error(Code.UNSAFE_TARGET, "seed-0"):
        sweeper("masks", ROW)
    assert not sweeper.runs.exists()
    sweeper.results = tmp_path / "results"
    sweeper("masks", ROW)
    runs, sweeper.results, sweeper.runs = sweeper.runs, sweeper.runs, tmp_path / "others"
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    with user_error(Code.UNSAFE_TARGET, "la-4/bcp/seed-0"):
        sweeper("masks", ROW)
    assert not sweeper.runs.exists()
    assert before == {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}


def test_unwritable_results_are_rejected_before_training(
    sweeper: Sweeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    sweeper.results = tmp_path / "file"
    with user_error(Code.NOT_A_FOLDER, tmp_path / "file"):
        sweeper("masks", ROW)
    sweeper.results = tmp_path / "results"
    sweeper.results.mkdir()
    with monkeypatch.context() as patched:
        # the tests may run as a user who may write everywhere
        patched.setattr("graftseg.core.files.os.access", lambda path, mode: Path(path) != sweeper.results)
        with user_error(Code.PERMISSION_DENIED, sweeper.results):
            sweeper("masks", ROW)
    assert not sweeper.runs.exists()
    sweeper.runs = tmp_path / "file"
    with pytest.raises(UserError) as caught:
        sweeper("masks", ROW)
    assert caught.value.where == str(tmp_path / "file")


def test_seeds_with_other_settings_are_reported_and_skipped(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    sweeper("masks", ROW, overrides=["network.width=6"], variant="wide")
    forbid(monkeypatch)
    other = {"overrides": ["network.width=4"], "variant": "wide", "seeds": 2}
    assert list(sweeper("masks", ROW, dry_run=True, **other).failures) == ["la-4/bcp, seed 1, wide"]
    with user_error(Code.VARIANT_NEEDED, "seed-1-wide", "network.width"):
        sweeper("masks", ROW, **other)
    assert not (sweeper.runs / "la-4/bcp/seed-1-wide").exists()


def test_seeds_on_another_store_are_reported_and_skipped(sweeper: Sweeper, tmp_path: Path) -> None:
    sweeper("masks", ROW)
    scans = tiny.write_scans(tmp_path / "scans", labeled=3)
    other = prepare(read_layout(scans), tmp_path / "other", tiny.tiny_recipe().data)
    rows = (ROW, "la-8/bcp")
    expected = sweeper("masks", *rows, seeds=2, data={"la": other.path}, dry_run=True)
    assert list(expected.failures) == ["la-4/bcp, seed 1"]
    swept = sweeper("masks", *rows, seeds=2, data={"la": other.path})
    assert (swept.failures, swept.recorded) == (expected.failures, ("la-8/bcp, seed 0", "la-8/bcp, seed 1"))
    assert sweeper.told[0].startswith("la-4/bcp, seed 1: failed: ") and "(1 of 2)" in sweeper.told[1]
    assert not (sweeper.runs / "la-4/bcp/seed-1").exists()


def test_recipes_outside_the_paper_are_run_if_they_are_named(sweeper: Sweeper) -> None:
    assert sweeper("la", "la-4/extra").recorded == ("la-4/extra, seed 0",)
    assert sweeper("la", "la-4/extra", "la-8/bcp", dry_run=True).before == ("la-4/extra, seed 0",)
    lines = list[str]()
    sweep("la", dry_run=True, results=sweeper.results, device="cpu", tell=lines.append)
    assert "la-8/bcp, seed 0: to be trained" in lines and not any("extra" in line for line in lines)


def test_a_recipe_of_several_tables_is_run_once(sweeper: Sweeper) -> None:
    sweeper("all", "*/bcp", dry_run=True, data=None)
    trials = [line for line in sweeper.told if line.endswith("to be trained")]
    assert trials == [f"{name}/bcp, seed 0: to be trained" for name in ("la-4", "la-8", "acdc-3")]


def test_settings_that_no_row_can_have(sweeper: Sweeper) -> None:
    with user_error(Code.SETTING_INVALID, "--set foo=1", "foo"):
        sweeper(overrides=["foo=1"], variant="odd")
    for setting in ("name=la-8/bcp", "published=null", "published.dice=99", " name=la-8/bcp"):
        with user_error(Code.OPTION_INVALID, f"--set {setting}", "row"):
            sweeper("masks", ROW, overrides=["seed=1", setting], variant="odd")
    assert sweeper.told == [] and not sweeper.runs.exists() and not sweeper.results.exists()


def test_names_that_no_row_has(sweeper: Sweeper) -> None:
    with user_error(Code.UNKNOWN_NAME, "--only bcp", "la-4/bcp-random"):
        sweeper("masks", "bcp")
    with user_error(Code.UNKNOWN_NAME, "table liver", "la, acdc"):
        sweeper("liver")


def test_rows_without_a_recipe_fail_and_the_others_are_run(sweeper: Sweeper) -> None:
    swept = sweeper("masks", "la-4/*")
    assert sorted(swept.failures) == ["la-4/bcp-contact", "la-4/bcp-random"]
    assert swept.recorded == ("la-4/bcp, seed 0",)
