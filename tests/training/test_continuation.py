"""Continued training: start, steps, new labels, resuming, gain, and runs that are refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import CommandLine, contents
from safetensors.torch import load_file
from tiny import recipe_tree, tiny_recipe, write_scans

import graftseg
from graftseg.core.errors import Code
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.data.scans import read_label, write_label
from graftseg.evaluation.statistics import Pairs, effect_of
from graftseg.recipes.recipe import load_recipe
from graftseg.training import warm_start
from graftseg.training.checkpoint import checkpoints_in, load_checkpoint, save_checkpoint
from graftseg.training.continuation import continued_recipe
from graftseg.training.gain import gain_sentence
from restored import Restored
from user_errors import user_error

NEW = "unlabeled_000"
EVERY_STEP = {"loop": recipe_tree()["loop"] | {"checkpoint_every": 1}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """Return a folder with scans and a finished run, after which one more scan was labeled."""
    root = tmp_path_factory.mktemp("continuation") / "root"
    write_scans(root / "data", labeled=3, unlabeled=4, test=2)
    graftseg.train(tiny_recipe(**EVERY_STEP), root / "data", root / "run", device="cpu")
    annotate(root / "data")
    return Restored(root)


@pytest.fixture
def root(trained: Restored) -> Path:
    return trained.again()


def annotate(data: Path, number: int = 0) -> None:
    """Label a scan in imagesUn like the first labeled scan."""
    shutil.copy(data / "labelsTr" / "labeled_000.nii.gz", data / "labelsTr" / f"unlabeled_{number:03d}.nii.gz")


def start_of(out: Path) -> dict[str, Any]:
    """Return the checkpoint before the first step."""
    return load_checkpoint(out / "start.ckpt")


@pytest.fixture
def kept_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the checkpoint before the first step, which later checkpoints replace."""

    def save_and_keep(folder: Path, step: int, state: Any) -> Path:
        path = save_checkpoint(folder, step, state)
        shutil.copy(path, folder.parent / "start.ckpt")
        return path

    monkeypatch.setattr(warm_start, "save_checkpoint", save_and_keep)


@pytest.mark.usefixtures("kept_start")
def test_continued_run(root: Path) -> None:
    images = contents(root / "data")
    result = graftseg.continue_training(root / "run", root / "new", fraction=0.5, device="cpu")
    run, new = RunFolder(root / "run"), RunFolder(root / "new")
    assert result.new_labels == (NEW,)
    facts, before = new.manifest(), run.manifest()
    # the weights of student and teacher before the first step are those of the earlier run
    state, weights = start_of(root / "new")["method"], load_file(run.weights_file)
    student = {key.removeprefix("student."): value for key, value in state.items() if key.startswith("student.")}
    assert student.keys() == weights.keys() and all(torch.equal(student[key], weights[key]) for key in weights)
    # half of 4 and of 5 steps, with a decaying rate
    assert [stage.steps for stage in load_recipe(new.recipe_file).stages] == [2, 2]
    assert result.outcome.steps == facts["steps"] == 4
    # the new label is used
    assert facts["store"]["labeled"] == [*before["store"]["labeled"], NEW]
    assert NEW in before["store"]["unlabeled"] and NEW not in facts["store"]["unlabeled"]
    assert facts["continued_from"] == {
        "run": "run", "weights": before["weights"], "fraction": 0.5, "new_labels": [NEW]
    }  # fmt: skip
    assert not any("loss did not fall" in warning["finding"] for warning in facts["warnings"])
    assert facts["recipe"] == "tiny-continued" and facts["weights"] != before["weights"]
    # test scans have labels, so both networks are scored on them
    assert result.gain is not None and facts["gain"] == result.gain.to_json()
    assert (result.gain.on, result.gain.cases) == ("test", 2) and "fewer than 6" in result.gain.sentence
    assert contents(root / "data") == images


def test_gain_equals_the_test_scores(root: Path) -> None:
    result = graftseg.continue_training(root / "run", root / "new", device="cpu")
    assert result.gain is not None
    for out, value in (("run", result.gain.before), ("new", result.gain.after)):
        rows = graftseg.test(root / out, device="cpu").scores[root / out].rows
        assert value == pytest.approx(100 * np.mean([row.dice for row in rows]))
    page = (root / "new" / "report.html").read_text()
    assert "Started from the network of run, with 1 new label." in page and "2 test scans" in page


def test_unchanged_cases_are_reused(root: Path) -> None:
    before = contents(root / "run" / "store")
    graftseg.continue_training(root / "run", root / "new", device="cpu")
    old, new = (root / folder / "store" / "cases" for folder in ("run", "new"))
    shared = {path.name for path in new.iterdir() if (old / path.name).exists() and path.samefile(old / path.name)}
    assert shared == {path.name for path in old.iterdir() if not path.name.startswith(f"{NEW}.")}
    assert contents(root / "run" / "store") == before


def test_teacher_starts_from_the_same_weights(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(warm_start, "save_checkpoint", lambda folder, step, state: seen.append(state))
    stages = [f"stages=[{json.dumps(recipe_tree()['stages'][1])}]"]
    graftseg.continue_training(root / "run", root / "new", overrides=stages, device="cpu")
    (state,) = seen
    weights = load_file(root / "run" / "model.safetensors")
    for part in ("student", "teacher"):
        assert all(torch.equal(state["method"][f"{part}.{key}"], value) for key, value in weights.items())


def test_resume_after_a_stop_is_exact(root: Path) -> None:
    graftseg.continue_training(root / "run", root / "whole", fraction=0.8, device="cpu")
    shutil.copytree(root / "whole", root / "cut")
    cut = RunFolder(root / "cut")
    cut.weights_file.unlink()
    checkpoints_in(cut.checkpoints)[-1].unlink()
    facts = {key: value for key, value in cut.manifest().items() if key != "gain"}
    cut.manifest_file.write_text(json.dumps(facts | {"status": "stopped"}))
    annotate(root / "data", 1)
    result = graftseg.continue_training(root / "run", root / "cut", resume=True, device="cpu")
    assert cut.weights_file.read_bytes() == RunFolder(root / "whole").weights_file.read_bytes()
    assert cut.manifest()["gain"] == RunFolder(root / "whole").manifest()["gain"] == result.gain.to_json()  # type: ignore[union-attr]


def test_resume_without_any_checkpoint_starts_again_from_the_run(root: Path) -> None:
    graftseg.continue_training(root / "run", root / "whole", device="cpu")
    shutil.copytree(root / "whole", root / "cut")
    cut = RunFolder(root / "cut")
    shutil.rmtree(cut.checkpoints)
    cut.weights_file.unlink()
    cut.update_manifest({"status": "running"})
    with user_error(Code.RUN_UNFINISHED, cut.path, "--continue-from"):
        graftseg.train(cut.recipe_file, cut.store, cut.path, resume=True, device="cpu")
    graftseg.continue_training(root / "run", cut.path, resume=True, device="cpu")
    assert cut.weights_file.read_bytes() == RunFolder(root / "whole").weights_file.read_bytes()


def test_resume_with_another_start_is_refused(root: Path) -> None:
    graftseg.continue_training(root / "run", root / "new", device="cpu")
    RunFolder(root / "new").update_manifest({"status": "stopped"})
    with user_error(Code.RUN_MISMATCH, root / "new", "--fraction"):
        graftseg.continue_training(root / "run", root / "new", fraction=0.7, resume=True, device="cpu")
    with user_error(Code.RUN_MISMATCH, root / "run"):
        graftseg.continue_training(root / "run", root / "run", resume=True, device="cpu")
    with user_error(Code.TARGET_EXISTS, root / "new", "--resume"):
        graftseg.continue_training(root / "run", root / "new", device="cpu")


def test_second_continuation_counts_steps_of_the_complete_training(root: Path) -> None:
    graftseg.continue_training(root / "run", root / "second", fraction=0.5, device="cpu")
    with user_error(Code.TOO_FEW_CASES, root / "data", "no label"):
        graftseg.continue_training(root / "second", root / "third", fraction=0.5, device="cpu")
    annotate(root / "data", 1)
    result = graftseg.continue_training(root / "second", root / "third", fraction=0.5, device="cpu")
    assert len(result.new_labels) == 1 and result.outcome.steps == 4
    assert RunFolder(root / "third").manifest()["recipe"] == "tiny-continued"
    assert graftseg.rank(root / "third", device="cpu").rows


def test_changed_label_counts_as_new(root: Path) -> None:
    graftseg.continue_training(root / "run", root / "second", device="cpu")
    path = sorted((root / "data" / "labelsTr").iterdir())[0]
    label = read_label(path)
    array = label.array.copy()
    array[0, 0] = 1 - array[0, 0]
    write_label(path, array, label.geometry)
    result = graftseg.continue_training(root / "second", root / "third", device="cpu")
    assert result.new_labels == (path.name.removesuffix(".nii.gz"),)


def test_without_test_scans_no_gain_is_claimed(root: Path) -> None:
    for folder in ("imagesTs", "labelsTs"):
        shutil.rmtree(root / "data" / folder)
    gain = graftseg.continue_training(root / "run", root / "new", device="cpu").gain
    assert gain is not None and (gain.on, gain.cases, gain.after) == ("new", 1, None)
    assert "unknown without test scans" in gain.sentence


def test_all_scans_labeled_trains_supervised(root: Path) -> None:
    for number in range(1, 4):
        annotate(root / "data", number)
    graftseg.continue_training(root / "run", root / "new", device="cpu")
    assert {stage.method for stage in load_recipe(root / "new" / "recipe.yaml").stages} == {"supervised"}


def test_shipped_baseline_is_continued(root: Path) -> None:
    recipe = tiny_recipe(**EVERY_STEP)
    graftseg.train(recipe, root / "data", root / "both", device="cpu", baseline=True)
    annotate(root / "data", 1)
    both = RunFolder(root / "both")
    both.ship(Shipped("baseline", "a test"))
    graftseg.continue_training(both.path, root / "new", device="cpu")
    facts = RunFolder(root / "new").manifest()
    assert facts["continued_from"]["weights"] == both.baseline.manifest()["weights"] != both.manifest()["weights"]
    assert not (root / "new" / "baseline").exists()


@pytest.mark.parametrize(
    ("change", "code", "keyword"),
    [
        (lambda run: run.update_manifest({"status": "stopped"}), Code.RUN_UNFINISHED, "stopped"),
        (lambda run: (run.path / "recipe.yaml").unlink(), Code.NOT_A_RUN, "not a run"),
        (lambda run: run.weights_file.write_bytes(b"x"), Code.WEIGHTS_DAMAGED, "damaged"),
    ],
    ids=["unfinished", "no run", "damaged"],
)
def test_refused_runs(root: Path, change: Callable[[RunFolder], None], code: Code, keyword: str) -> None:
    change(RunFolder(root / "run"))
    if code is Code.NOT_A_RUN:
        RunFolder(root / "run").manifest_file.unlink()
    with user_error(code, root / "run", keyword):
        graftseg.continue_training(root / "run", root / "new", device="cpu")


@pytest.mark.parametrize(
    ("file", "keyword"), [("folds.json", "fold-0"), ("compare.json", "final"), ("seed-3/run.json", "seed-3")]
)
def test_folders_of_several_runs_are_refused(tmp_path: Path, file: str, keyword: str) -> None:
    path = tmp_path / "runs" / file
    path.parent.mkdir(parents=True)
    path.write_text('{"format": 1, "folds": []}')
    (path.parent / "recipe.yaml").write_text("") if file.startswith("seed") else None
    with user_error(Code.NOT_A_RUN, tmp_path / "runs", keyword):
        graftseg.continue_training(tmp_path / "runs", tmp_path / "new", device="cpu")


def test_other_classes_are_refused(root: Path) -> None:
    path = root / "data" / "labelsTr" / f"{NEW}.nii.gz"
    label = read_label(path)
    array = label.array.copy()
    array[:2, :2] = 4
    write_label(path, array, label.geometry)
    classes = root / "data" / "dataset.json"
    content = json.loads(classes.read_text())
    content["labels"]["other"] = 4
    classes.write_text(json.dumps(content))
    with user_error(Code.RUN_MISMATCH, root / "new", "classes"):
        graftseg.continue_training(root / "run", root / "new", device="cpu")
    assert not RunFolder(root / "new").exists


def test_other_settings_of_network_or_data_are_refused(root: Path) -> None:
    with user_error(Code.RUN_MISMATCH, root / "run", "network"):
        graftseg.continue_training(root / "run", root / "new", overrides=["network.width=4"], device="cpu")


def test_limited_labels_are_refused(root: Path) -> None:
    with user_error(Code.RECIPE_MISMATCH, root / "data", "batches.labeled_cases=null"):
        graftseg.continue_training(root / "run", root / "new", overrides=["batches.labeled_cases=3"], device="cpu")


def test_data_that_is_not_recorded(root: Path) -> None:
    shutil.move(root / "data", root / "moved")
    with user_error(Code.FOLDER_MISSING, root / "data", "--data"):
        graftseg.continue_training(root / "run", root / "new", device="cpu")
    found = graftseg.continue_training(root / "run", root / "moved-data", data=root / "moved", device="cpu")
    assert found.new_labels == (NEW,) and found.gain is not None and found.gain.on == "test"
    shutil.rmtree(root / "run" / "store")
    with user_error(Code.STORE_MISSING, root / "run", "--data"):
        graftseg.continue_training(root / "run", root / "new", device="cpu")
    assert graftseg.continue_training(root / "run", root / "new", data=root / "moved", device="cpu").new_labels


def test_test_scan_that_cannot_be_scored_is_a_warning(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = sorted((root / "data" / "labelsTs").iterdir())[0]
    label = read_label(path)
    write_label(path, np.full_like(label.array, 9), label.geometry)
    assert graftseg.continue_training(root / "run", root / "new", device="cpu").gain is None
    assert any("the gain was not measured" in message for message in caplog.messages)
    assert RunFolder(root / "new").manifest()["status"] == "finished"


def test_held_out_scans_of_a_fold_measure_the_gain(root: Path) -> None:
    for folder in ("imagesTs", "labelsTs"):
        shutil.rmtree(root / "data" / folder)
    graftseg.train_folds(tiny_recipe(), root / "data", root / "folds", folds=2, device="cpu", tell=lambda line: None)
    annotate(root / "data", 1)
    gain = graftseg.continue_training(root / "folds" / "fold-0", root / "new", device="cpu").gain
    assert gain is not None and gain.on == "held-out" and gain.after is not None and gain.cases == 2


def test_constant_rate_decays_in_the_last_stage() -> None:
    recipe = tiny_recipe(stages=[{"method": "supervised", "steps": 10}])
    result = continued_recipe(recipe, 0.3, has_unlabeled=True)
    assert [(stage.steps, stage.optimizer.schedule.name) for stage in result.stages] == [(3, "poly")]


def test_command_line(root: Path, cli: CommandLine) -> None:
    new = root / "new"
    out = cli.works("train", "--continue-from", root / "run", "--out", new, "--device", "cpu", "--fraction", 0.5)
    assert "finished after 4 steps, with 1 new label" in out and "gain: mean Dice on 2 test scans" in out
    assert f"next: graftseg rank {new}" in out
    for option in (["tiny"], ["--folds", 2], ["--seeds", 2], ["--baseline"], ["--compare"], ["--shorter", 2]):
        cli.fails("train", *option, "--continue-from", root / "run", "--out", root / "x", code=Code.OPTION_CONFLICT)
    cli.fails("train", "tiny", "--data", "d", "--out", root / "x", "--fraction", 0.5, code=Code.OPTION_CONFLICT)
    cli.fails("train", "--data", root / "data", "--out", root / "x", code=Code.OPTION_INVALID)
    cli.fails("train", "tiny", "--out", root / "x", code=Code.OPTION_INVALID)
    for number in (0, 1.5, "nan"):
        cli.fails("train", "--continue-from", new, "--out", root / "x", "--fraction", number, code=Code.OPTION_INVALID)
    assert not (root / "x").exists()


@pytest.mark.parametrize(
    ("difference", "meaning"), [(2.0, "is better"), (-2.0, "is worse"), (0.1, "too small"), (0.0, "do not show")]
)
def test_gain_sentence(difference: float, meaning: str) -> None:
    first = np.linspace(70, 80, 12)
    second = first + difference + np.linspace(-0.05, 0.0503, 12)  # no ties, which need many permutations
    pairs = Pairs("dice", None, "mean", tuple(map(str, range(12))), first, second)
    sentence = gain_sentence(effect_of(pairs), "test")
    assert meaning in sentence and sentence.startswith("mean Dice on 12 test scans: 75.00 % before and ")


def test_label_of_a_scan_in_the_unlabeled_folder_is_used_everywhere(root: Path) -> None:
    sources = {f"imagesUn/{NEW}_0000.nii.gz", f"labelsTr/{NEW}.nii.gz"}
    assert graftseg.info(root / "data")["cases"] == {"labeled": 4, "unlabeled": 3, "validation": 0, "test": 2}
    checked = graftseg.check(root / "data")
    assert [case.split for case in checked.fingerprint.cases if case.name == NEW] == ["labeled"]
    assert "4 2-D scans with labels and 3 without" in graftseg.plan(root / "data", root / "plan.yaml").read_text()
    graftseg.train(tiny_recipe(), root / "data", root / "new", device="cpu")
    case = json.loads((root / "new" / "store" / "cases" / f"{NEW}.json").read_text())["case"]
    assert case["split"] == "labeled" and set(case["sources"]) == sources
    assert RunFolder(root / "new").manifest()["store"]["labeled"][-1] == NEW


def test_prepared_store_as_data(root: Path) -> None:
    store = graftseg.prepare(root / "data", root / "store", recipe=root / "run" / "recipe.yaml")
    result = graftseg.continue_training(root / "run", root / "new", data=store.path, device="cpu")
    assert result.new_labels == (NEW,) and result.gain is not None and result.gain.on == "test"
    assert not (root / "new" / "store").exists()
    with user_error(Code.TOO_FEW_CASES, store.path, "no label"):
        graftseg.continue_training(root / "new", root / "next", data=store.path, device="cpu")


def test_validation_case_that_was_a_training_case_is_refused(root: Path) -> None:
    scored = {"selection": {"every": 2}, "batches": recipe_tree()["batches"] | {"validation_cases": 1}}
    labels, images = root / "data" / "labelsTr", root / "data" / "imagesUn"
    (labels / f"{NEW}.nii.gz").unlink()
    graftseg.train(tiny_recipe(**scored), root / "data", root / "scored", device="cpu")
    # with a new first case and without the last case, a former training case becomes the validation case
    shutil.copy(images / f"{NEW}_0000.nii.gz", images / "a_0000.nii.gz")
    shutil.move(labels / "labeled_002.nii.gz", labels / "a.nii.gz")
    with user_error(Code.RUN_MISMATCH, root / "new", "validation case labeled_001"):
        graftseg.continue_training(root / "scored", root / "new", device="cpu")
