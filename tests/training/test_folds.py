"""Honest splits: every labeled case is scored once, by a network that never saw it."""

import csv
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_recipe, write_scans
from typer.testing import CliRunner

from graftseg import api
from graftseg.cli.app import app
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import CHECKSUM
from graftseg.core.run_folder import RunFolder, ensemble_members
from graftseg.data.batches import BatchSettings, training_cases
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store
from graftseg.evaluation.scores import Evaluation, read_csv
from graftseg.training import folds
from graftseg.training.cross_validation import CrossValidation
from graftseg.training.folds import divide, fold_recipe, suggested_folds
from graftseg.training.recorder import ProgressLabel
from graftseg.training.run import complete
from graftseg.training.shipping import shipped_after_folds
from user_errors import user_error

RECIPE = tiny_recipe()
LABELED = [f"labeled_{number:03d}" for number in range(4)]


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scans(tmp_path_factory.mktemp("scans"), labeled=4, unlabeled=3, test=0)


@pytest.fixture(scope="module")
def store(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return prepare(read_layout(scans), tmp_path_factory.mktemp("stores") / "store", RECIPE.data)


@pytest.fixture(scope="module")
def trained(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, CrossValidation]:
    out = tmp_path_factory.mktemp("runs") / "run"
    return RunFolder(out), api.train_folds(RECIPE, scans, out, folds=2, baseline=True, device="cpu")


def test_the_better_network_of_the_folds_is_shipped(trained: tuple[RunFolder, CrossValidation]) -> None:
    run, result = trained
    assert result.baseline is not None
    assert run.shipped() == shipped_after_folds(result.evaluation, result.baseline)
    assert run.shipped() != shipped_after_folds(result.baseline, result.evaluation)


def plain(evaluation: Evaluation, cases: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return rows in a form in which NaN equals NaN."""
    rows = [asdict(row).values() for row in evaluation.rows if row.case in cases]
    return [tuple(None if value != value else value for value in row) for row in rows]


names = st.lists(st.text("abc0123_", min_size=1), min_size=2, max_size=40, unique=True)


@given(names, st.data(), st.integers(0, 2**40))
def test_every_case_is_in_one_part(cases: list[str], data: st.DataObject, seed: int) -> None:
    count = data.draw(st.integers(2, len(cases)))
    parts = divide(cases, count, seed)
    assert sorted(name for part in parts for name in part) == sorted(cases)
    assert {len(part) for part in parts} <= {len(cases) // count, -(-len(cases) // count)}
    assert parts == divide(data.draw(st.permutations(cases)), count, seed)


def test_the_seed_shuffles() -> None:
    assert len({str(divide(LABELED * 1, 2, seed)) for seed in range(20)}) > 1


@pytest.mark.parametrize(
    ("cases", "count", "remedy"),
    [
        (1, 2, "--folds 0"),
        (2, 3, "2 to 2"),
        (4, 5, "2 to 4"),
        (4, 1, "2 to 4"),
    ],
)
def test_folds_that_cannot_be_made(cases: int, count: int, remedy: str) -> None:
    with user_error(Code.TOO_FEW_CASES, f"--folds {count}", remedy):
        divide(LABELED[:cases], count, 0)


def test_how_many_are_suggested() -> None:
    assert [suggested_folds(labeled, has_test=False) for labeled in (0, 1, 2, 4, 5, 300)] == [None, None, 2, 4, 5, 5]
    assert suggested_folds(300, has_test=True) is None


def test_a_case_that_is_held_out_is_in_no_list(store: Store) -> None:
    settings = BatchSettings(patch=(16, 16), held_out=("labeled_001",), validation_cases=1, labeled_cases=1)
    cases = training_cases(store, settings)
    assert [case.name for case in cases.labeled] == ["labeled_000"]
    assert [case.name for case in cases.unlabeled] == ["labeled_002", *(f"unlabeled_{n:03d}" for n in range(3))]
    assert [case.name for case in cases.validation] == ["labeled_003"]


def test_scans_are_divided_as_the_store_is(scans: Path, tmp_path: Path) -> None:
    seen = read_layout(scans).for_training(1, 1, ("labeled_001",))
    assert {case.name for case in seen.of("labeled")} == {"labeled_000", "labeled_001", "labeled_003"}
    settings = BatchSettings(patch=(16, 16), held_out=("labeled_001",), validation_cases=1, labeled_cases=1)
    cases = training_cases(prepare(seen, tmp_path / "store", RECIPE.data), settings)
    assert [case.name for case in cases.labeled] == ["labeled_000"]
    assert "labeled_002" in [case.name for case in cases.unlabeled]
    assert [case.name for case in cases.validation] == ["labeled_003"]


def test_a_name_that_is_no_labeled_case_is_refused(store: Store, scans: Path) -> None:
    wrong = ("labeled_001", "unlabeled_000")
    with user_error(Code.UNKNOWN_NAME, store.path, "unlabeled_000"):
        training_cases(store, BatchSettings(patch=(16, 16), held_out=wrong))
    with user_error(Code.UNKNOWN_NAME, scans, "unlabeled_000"):
        read_layout(scans).for_training(None, 0, wrong)
    with user_error(Code.TOO_FEW_CASES, store.path, "4 labeled and 0 validation"):
        training_cases(store, BatchSettings(patch=(16, 16), held_out=("labeled_001",), labeled_cases=4))


def test_the_recipe_of_a_fold() -> None:
    batches = RECIPE.batches.model_copy(update={"labeled_cases": 4, "held_out": ("x",)})
    whole = RECIPE.model_copy(update={"batches": batches, "folds": 2, "baseline": True})
    fold = fold_recipe(whole, ["a", "b"])
    assert (fold.batches.held_out, fold.batches.labeled_cases) == (("x", "a", "b"), 2)
    assert (fold.folds, fold.baseline, fold.name) == (None, False, whole.name)
    assert fold_recipe(RECIPE, ["a"]).batches.labeled_cases is None


def test_each_case_is_scored_by_the_network_that_never_saw_it(trained: tuple[RunFolder, CrossValidation]) -> None:
    run, result = trained
    assert sorted(name for part in result.parts for name in part) == LABELED
    for folder in (run, run.baseline):
        for number, part in enumerate(result.parts):
            facts = folder.fold(number).manifest()["store"]
            assert facts["held_out"] == list(part)
            assert sorted([*facts["labeled"], *part]) == LABELED
            assert not set(part) & set(facts["unlabeled"])
            table = read_csv(folder.fold(number).predictions / "metrics.csv")
            assert {row.case for row in table.rows} == set(part)
        assert [row.case for row in read_csv(folder.path / "metrics.csv").rows] == [
            n for n in LABELED for _ in range(3)
        ]
    assert len(run.fold(0).manifest()["store"]["unlabeled"]) == 3
    assert run.baseline.fold(0).manifest()["method"] == "supervised"
    assert [one.path for one in ensemble_members(run)] == [run.fold(0).path, run.fold(1).path]


def test_scores_are_those_of_predict_and_evaluate(
    trained: tuple[RunFolder, CrossValidation], scans: Path, tmp_path: Path
) -> None:
    run, result = trained
    predicted = api.predict(run.fold(1).path, scans / "imagesTr", tmp_path / "maps", device="cpu")
    expected = api.evaluate(predicted.folder, scans / "labelsTr", allow_missing=True)
    ours, theirs = (plain(one, result.parts[1]) for one in (result.evaluation, expected))
    assert len(ours) == 6 and ours == theirs


def test_a_fold_is_scored_on_the_scans_themselves(trained: tuple[RunFolder, CrossValidation], tmp_path: Path) -> None:
    run, result = trained
    manifest = json.loads((run.fold(0).predictions / "manifest.json").read_text())
    assert [Path(case["images"][0]).parent.name for case in manifest["cases"]] == ["imagesTr"] * 2
    assert [case["case"] for case in manifest["cases"]] == list(result.parts[0])
    assert "No picture" not in api.report(run.fold(0).path, tmp_path / "page.html").read_text()


def test_a_store_is_scored_on_its_own_images(store: Store, scans: Path, tmp_path: Path) -> None:
    recipe, run = tiny_recipe(stages=[{"method": "supervised", "steps": 1}]), RunFolder(tmp_path / "run")
    result = api.train_folds(recipe, store.path, run.path, folds=2, device="cpu")
    assert {row.case for row in result.evaluation.rows} == set(LABELED)
    expected = api.evaluate(run.fold(1).predictions, scans / "labelsTr", tmp_path / "metrics.csv", allow_missing=True)
    assert plain(result.evaluation, result.parts[1]) == plain(expected, LABELED)


def test_what_is_written_and_printed(trained: tuple[RunFolder, CrossValidation]) -> None:
    run, result = trained
    told = json.loads(run.folds_file.read_text())
    assert CHECKSUM in told
    assert [fold["held_out"] for fold in told["folds"]] == [list(part) for part in result.parts]
    assert told["cases"] == 4 and "neither the labels nor the images" in told["rule"]
    dice = [100 * row.dice for row in result.evaluation.rows if row.label == 2]
    assert told["figures"]["dice"]["ring"]["mean"] == pytest.approx(sum(dice) / 4)
    theirs = [100 * row.dice for row in read_csv(run.baseline.path / "metrics.csv").rows if row.label == 2]
    difference = told["beside_baseline"]["dice"]["ring"]["difference"]
    assert difference == pytest.approx((sum(dice) - sum(theirs)) / 4)
    head, lines = result.table()
    assert [line[:3] for line in lines[:4]] == [("Dice %", n, "4") for n in ("crescent", "ring", "core", "mean")]
    assert head[-4:] == ("baseline", "difference", "95 % interval", "better/worse/equal")
    assert float(lines[1][-3]) == pytest.approx(difference, abs=0.006)
    _, alone = CrossValidation(run.path, result.parts, result.evaluation).table()
    assert alone == [line[:4] for line in lines]
    with (run.path / "metrics.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == 12


def test_folds_stand_beside_their_baseline(trained: tuple[RunFolder, CrossValidation]) -> None:
    run, _ = trained
    (beside,) = api.compare(run.baseline.path, run.path)
    assert beside.second.checkpoint == "last of each of 2 folds"
    assert "tiny-supervised (labeled scans only)" in api.report(run.fold(1).path, run.path / "page.html").read_text()


def test_info_describes_folds(trained: tuple[RunFolder, CrossValidation]) -> None:
    run, _ = trained
    said = yaml.safe_load(CliRunner().invoke(app, ["info", str(run.path)]).stdout)
    assert (said["kind"], said["folds"], said["held_out_by_fold"]) == ("folds", 2, [2, 2])
    assert said["state"] == {"fold-0": "finished", "fold-1": "finished"}
    assert said["dice_difference"].keys() == said["dice_percent"].keys() == {"crescent", "ring", "core", "mean"}
    one = CliRunner().invoke(app, ["info", str(run.fold(0).path)]).stdout
    assert "labeled_0" not in one and yaml.safe_load(one)["store"]["labeled"] == 2
    whole = json.loads(CliRunner().invoke(app, ["info", str(run.fold(0).path), "--json"]).stdout)
    assert len(whole["store"]["labeled"]) == 2


def test_resume_keeps_finished_folds(
    trained: tuple[RunFolder, CrossValidation], scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, before = trained
    again, began = RunFolder(tmp_path / "again"), list[str]()
    shutil.copytree(run.path, again.path)
    shutil.rmtree(again.baseline.fold(1).path)
    (again.fold(1).predictions / "metrics.csv").unlink()

    def note(recipe: Any, store: Any, at: RunFolder, *options: Any) -> None:
        began.append(at.path.relative_to(again.path).as_posix() if not at.exists else "")
        complete(recipe, store, at, *options)

    monkeypatch.setattr(folds, "complete", note)
    with user_error(Code.TARGET_EXISTS, again.path, "--resume"):
        api.train_folds(RECIPE, scans, again.path, folds=2, baseline=True, device="cpu")
    result = api.train_folds(RECIPE, scans, again.path, folds=2, baseline=True, device="cpu", resume=True)
    assert [name for name in began if name] == ["baseline/fold-1"]
    assert result.baseline is not None and before.baseline is not None
    for one, two in ((result.evaluation, before.evaluation), (result.baseline, before.baseline)):
        assert plain(one, LABELED) == plain(two, LABELED)
    assert again.folds_file.read_text() == run.folds_file.read_text()


def test_resume_refuses_other_folds_and_recipes(
    trained: tuple[RunFolder, CrossValidation], scans: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again"
    shutil.copytree(trained[0].path, again)
    with user_error(Code.RUN_MISMATCH, again, "seed"):
        api.train_folds(RECIPE, scans, again, folds="loo", device="cpu", resume=True)
    with user_error(Code.RUN_MISMATCH, again, "(network.width)"):
        api.train_folds(RECIPE, scans, again, folds=2, overrides=["network.width=4"], device="cpu", resume=True)


def test_a_stop_leaves_what_was_done(
    cli: CommandLine, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(recipe: Any, store: Any, at: Any, device: Any, label: ProgressLabel, *options: Any) -> None:
        raise StoppedError(2, 3, where=label.name)

    monkeypatch.setattr(folds, "complete", stops)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(tiny_recipe(folds=2).to_yaml())
    asked = ["train", str(recipe), "--data", str(scans), "--out", str(tmp_path / "run"), "--device", "cpu"]
    status, _, error = cli(*asked)
    assert status == 130 and "stopped in fold 0, after step 3" in error and "--resume. [interrupted]\n" in error
    assert "figures" not in json.loads((tmp_path / "run" / "folds.json").read_text())


def test_refused_before_anything_is_written(scans: Path, store: Store, tmp_path: Path) -> None:
    def refused(code: Code, out: Path, **changes: Any) -> None:
        data, recipe = changes.pop("data", scans), changes.pop("recipe", RECIPE)
        with user_error(code):
            api.train_folds(recipe, data, out, device="cpu", **changes)

    new = tmp_path / "new"
    refused(Code.RUN_UNFINISHED, new, folds=2, resume=True)
    refused(Code.OPTION_INVALID, new)
    refused(Code.UNSAFE_TARGET, store.path, folds=2, data=store.path)
    refused(Code.TOO_FEW_CASES, new, folds=5)
    refused(Code.TOO_FEW_CASES, new, data=store.path, folds=5)
    refused(Code.RECIPE_MISMATCH, new, folds=2, overrides=["selection.every=2", "selection.oracle=true"])
    assert not new.exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    refused(Code.TARGET_EXISTS, tmp_path / "full", folds=2)


def test_a_labeled_scan_among_the_unlabeled_ones_is_refused(tmp_path: Path) -> None:
    scans = write_scans(tmp_path / "scans", labeled=2, unlabeled=1, test=0)
    twin = next((scans / "imagesTr").glob("labeled_001*"))
    shutil.copy(twin, scans / "imagesUn" / twin.name.replace("labeled_001", "copied"))
    with user_error(Code.CASE_DUPLICATE, "", "labeled_001"):
        api.train_folds(RECIPE, scans, tmp_path / "run", folds="loo", device="cpu")


def test_labels_that_were_resampled_are_no_references(scans: Path, tmp_path: Path) -> None:
    recipe = tiny_recipe(data={"dimensions": 2, "spacing": [2.0, 2.0]})
    store = prepare(read_layout(scans), tmp_path / "store", recipe.data)
    with user_error(Code.GEOMETRY_MISMATCH, store.path, "resampled"):
        api.train_folds(recipe, store.path, tmp_path / "run", folds=2, device="cpu")


def test_one_labeled_case_and_no_unlabeled_one(tmp_path: Path) -> None:
    scans = write_scans(tmp_path / "scans", labeled=1, unlabeled=1, test=0)
    with user_error(Code.TOO_FEW_CASES, "--folds 2"):
        api.train_folds(RECIPE, scans, tmp_path / "run", folds=2, device="cpu")
    few = write_scans(tmp_path / "few", labeled=2, unlabeled=0, test=0)
    recipe = tiny_recipe(baseline=True)
    result = api.train_folds(recipe, few, tmp_path / "few-run", folds="loo", device="cpu")
    assert result.baseline is None and len(result.parts) == 2
    assert RunFolder(tmp_path / "few-run").fold(0).manifest()["method"] == "supervised"


def command(*asked: str) -> tuple[int, str]:
    said = CliRunner().invoke(app, ["train", *asked, "--device", "cpu"])
    return said.exit_code, str(said.exception) if isinstance(said.exception, UserError) else said.stdout


@pytest.mark.slow
def test_the_command(scans: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(tiny_recipe(folds=2, baseline=True).to_yaml())
    given = [str(recipe), "--data", str(scans), "--out"]
    code, text = command(*given, str(tmp_path / "two"), "--no-baseline")
    assert code == 0 and "4 labeled cases, each scored once by a network that never saw it" in text
    assert not (tmp_path / "two" / "baseline").exists()
    assert "Held-out labeled cases" not in text
    code, text = command(*given, str(tmp_path / "both"))
    assert code == 0 and re.search(
        r"^Held-out labeled cases: .*mean Dice .* points .*\.\nnext: graftseg report", text, re.M
    )
    code, text = command(*given, str(tmp_path / "one"), "--folds", "0", "--no-baseline")
    assert code == 0 and RunFolder(tmp_path / "one").exists


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ([], 3),
        (["--folds", "2"], 2),
        (["--folds", "loo"], "loo"),
        (["--leave-one-out"], "loo"),
        (["--folds", "0"], None),
    ],
)
def test_what_the_command_asks_for(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], count: int | str | None
) -> None:
    asked: list[Any] = []

    def note(*_: Any, folds: Any = None, **__: Any) -> None:
        asked.append(folds)
        raise UserError(Code.OPTION_INVALID, "here", "noted", "nothing")

    monkeypatch.setattr(api, "train", note)
    monkeypatch.setattr(api, "train_folds", note)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(tiny_recipe(folds=3).to_yaml())
    command(str(recipe), "--data", str(scans), "--out", str(tmp_path / "run"), *options)
    assert asked == [count]


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        (["--folds", "1"], "number of folds"),
        (["--folds", "many"], "number of folds"),
        (["--folds", "3", "--leave-one-out"], "--leave-one-out"),
        (["--folds", "2", "--seeds", "2"], "cannot be combined"),
        (["--baseline", "--seeds", "2"], "cannot be combined"),
    ],
)
def test_what_the_command_refuses(scans: Path, tmp_path: Path, options: list[str], finding: str) -> None:
    given = ["demo-2d/bcp", "--data", str(scans), "--out", str(tmp_path / "run")]
    assert finding in command(*given, *options)[1]
    assert not (tmp_path / "run").exists()
