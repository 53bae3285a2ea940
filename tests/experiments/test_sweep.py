"""A sweep runs what is missing of a table, goes on after a failure or an interrupt, and does nothing twice."""

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import graftseg.experiments.sweep
from graftseg import api
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.experiments.sweep import Swept
from graftseg.recipes.recipe import Recipe
from sweep_fakes import Sweeper, refuse


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


@pytest.mark.parametrize(
    "error", [UserError(Code.OPTION_INVALID, "cuda", "the memory is full", "lower it"), RuntimeError("no\n kernel")]
)
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


@pytest.mark.parametrize("name", ["run.json", "metrics.json", "metrics.csv", "recipe.yaml", "log.jsonl"])
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


def test_a_full_disk_while_testing_is_told_as_such(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(stream: int) -> None:
        if "predictions" in Path(f"/proc/self/fd/{stream}").readlink().parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        (why,) = sweeper("masks", "la-4/bcp").failures.values()
    assert why.startswith(f"{sweeper.runs / 'la-4/bcp/seed-0/predictions'}/")
    assert why.endswith(": cannot be written (No space left on device); check free disk space and permissions.")
    assert sweeper("masks", "la-4/bcp").failures == {}


def test_a_full_disk_while_recording_leaves_no_part_of_a_record(
    sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(stream: int) -> None:
        if Path(f"/proc/self/fd/{stream}").readlink().is_relative_to(sweeper.results.resolve()):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        (why,) = sweeper("masks", "la-4/bcp").failures.values()
    finding = "cannot be written (No space left on device); check free disk space and permissions."
    assert why == f"{sweeper.results / 'la-4/bcp/seed-0/metrics.csv'}: {finding}"
    assert list((sweeper.results / "la-4/bcp").iterdir()) == []
    assert sweeper("masks", "la-4/bcp").failures == {}


def test_a_record_that_lost_its_facts_is_made_anew(sweeper: Sweeper) -> None:
    sweeper("masks", "la-4/bcp")
    (sweeper.results / "la-4/bcp/seed-0/run.json").unlink()
    sweeper("masks", "la-4/bcp", dry_run=True)
    state = "record damaged (run.json: missing from the record), trained, to be tested and recorded"
    assert sweeper.told[0] == f"la-4/bcp, seed 0: {state}"
    assert sweeper("masks", "la-4/bcp").recorded == ("la-4/bcp, seed 0",)
    assert sweeper.records() == ["la-4/bcp/seed-0"]


def test_what_a_training_left_on_a_gpu_is_given_back(sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    called = list[str]()
    monkeypatch.setattr(graftseg.experiments.sweep, "choose_device", lambda device: torch.device("cuda"))
    monkeypatch.setattr(torch.compiler, "reset", lambda: called.append("reset"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append("empty"))
    sweeper("masks", "la-4/bcp")
    assert called == ["reset", "empty"]
