"""Several seeds: each is trained and tested once, and their mean is reported."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from command_line import contents

from graftseg import api
from graftseg.core.errors import Code, StoppedError, UserError
from graftseg.core.files import read_json
from graftseg.core.reading import sha256_of
from graftseg.core.run_folder import RunFolder
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, prepare
from graftseg.data.store import Store
from graftseg.evaluation.scores import read_csv
from graftseg.evaluation.table_metrics import mean_metrics
from graftseg.experiments import train_and_test
from graftseg.experiments.seeds import train_seeds
from graftseg.inference.predict import Predicted
from graftseg.recipes.recipe import Recipe
from graftseg.training import run as training
from sweep_fakes import forbid
from user_errors import user_error

RECIPE = tiny.tiny_recipe(stages=[{"method": "supervised", "steps": 2}], seed=5)


@pytest.fixture(scope="module")
def trained(store: Store, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Train two seeds, and return their folder and the printed lines."""
    out, told = tmp_path_factory.mktemp("seeds") / "out", list[str]()
    train_seeds(RECIPE, store.path, out, 2, device="cpu", tell=told.append)
    return out, told


def summary(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return content


def test_the_first_seed_is_that_of_the_recipe(trained: tuple[Path, list[str]]) -> None:
    out, _ = trained
    assert sorted(path.name for path in out.iterdir()) == ["seed-5", "seed-6", "summary.json"]
    assert [api.info(out / f"seed-{seed}")["seed"] for seed in (5, 6)] == [5, 6]


def test_the_summary_has_every_seed_their_mean_and_deviation(trained: tuple[Path, list[str]]) -> None:
    out, told = trained
    said = summary(out)
    found = [mean_metrics(read_csv(out / f"seed-{seed}" / "predictions" / "metrics.csv")) for seed in (5, 6)]
    assert [(one["seed"], one["checkpoint"]) for one in said["seeds"]] == [(5, "last"), (6, "last")]
    for name in ("dice", "jaccard", "hd95", "asd"):
        values = [one[name] for one in found]
        assert [one[name] for one in said["seeds"]] == values
        assert said["mean"][name] == pytest.approx(np.mean(values))
        assert said["std"][name] == pytest.approx(np.std(values, ddof=1))
    assert (said["recipe"], said["protocol"], said["untested"]) == ("tiny", "standard", None)
    assert [line.split("\t")[0] for line in told] == ["", "seed 5", "seed 6", "mean"]
    assert told[-1].split("\t")[1] == f"{said['mean']['dice']:.2f} ± {said['std']['dice']:.2f}"


def test_what_is_done_stays(trained: tuple[Path, list[str]], store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    out, told = trained
    forbid(monkeypatch)
    before, again = summary(out), list[str]()
    train_seeds(RECIPE, store.path, out, 2, device="cpu", tell=again.append)
    assert (summary(out), again) == (before, told)


def test_a_stopped_seed_is_resumed_and_an_untested_seed_is_tested(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, complete = tmp_path / "out", training.complete

    def stop(recipe: Recipe, store: Store, run: RunFolder, *settings: Any) -> None:
        complete(recipe, store, run, *settings)
        if recipe.seed == 6:
            run.update_manifest({"status": "stopped"})
            raise StoppedError(2, 1)

    with monkeypatch.context() as patched:
        patched.setattr(train_and_test, "complete", stop)
        with pytest.raises(StoppedError):
            train_seeds(RECIPE, store.path, out, 2, device="cpu")
    assert [one["seed"] for one in summary(out)["seeds"]] == [5]
    (out / "seed-5" / "predictions" / "metrics.csv").unlink()
    results = train_seeds(RECIPE, store.path, out, 2, device="cpu")
    assert [result.seed for result in results] == [5, 6] and all(result.figures for result in results)
    assert (out / "seed-5" / "predictions" / "metrics.csv").is_file()


@pytest.mark.parametrize("told", [True, False])
def test_truncated_scores_are_computed_again(store: Store, tmp_path: Path, told: bool) -> None:
    (before,) = train_seeds(RECIPE, store.path, tmp_path, 1, device="cpu")
    table = tmp_path / "seed-5" / "predictions" / "metrics.csv"
    described = table.with_suffix(".json")
    whole, about = table.read_text(), json.loads(described.read_text())
    assert about["rows"] == whole.count("\n") - 1 == 6
    if not told:
        del about["rows"]
        described.write_text(json.dumps(about))
    table.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    assert train_seeds(RECIPE, store.path, tmp_path, 1, device="cpu") == [before]
    assert table.read_text() == whole


def test_the_best_checkpoint_is_also_tested(store: Store, tmp_path: Path) -> None:
    run = tmp_path / "seed-5"
    (before,) = train_seeds(RECIPE, store.path, tmp_path, 1, device="cpu")
    weights = (run / "model.safetensors").read_bytes()
    (run / "best.safetensors").write_bytes(weights[:-4] + b"\0\0\0\0")
    best = {"on": "test", "step": 1, "dice": 0.5, "sha256": sha256_of(run / "best.safetensors")}
    (run / "run.json").write_text(json.dumps(read_json(run / "run.json") | {"best": best}))
    (after,) = train_seeds(RECIPE, store.path, tmp_path, 1, device="cpu")
    assert (after.figures, after.checkpoint) == (before.figures, before.checkpoint) and before.best is None
    assert after.best_checkpoint == "best on test, step 1 (oracle)" and after.best is not None
    assert after.line().endswith(f"; Dice {after.best['dice']:.2f} with the best on test, step 1 (oracle)")
    (told,) = json.loads((tmp_path / "summary.json").read_text())["seeds"]
    assert told["best"]["checkpoint"] == after.best_checkpoint and told["best"]["dice"] == after.best["dice"]
    said = json.loads((run / "predictions-best" / "manifest.json").read_text())
    assert said["checkpoint"] == "best on test, step 1 (oracle)"
    assert (run / "predictions-best" / "metrics.csv").is_file()


@pytest.mark.parametrize(
    ("settings", "limited", "why"),
    [
        ({"dimensions": 2}, True, "no labeled test case"),
        ({"dimensions": 2, "spacing": (0.7, 0.7)}, False, "were resampled"),
    ],
)
def test_without_test_labels_it_only_trains(
    scans: Path, tmp_path: Path, settings: dict[str, Any], limited: bool, why: str
) -> None:
    dataset = read_layout(scans)
    chosen = PrepareSettings.model_validate(settings)
    store = prepare(dataset.for_training(None, 0) if limited else dataset, tmp_path / "store", chosen)
    recipe, told = RECIPE.model_copy(update={"data": chosen}), list[str]()
    (result,) = train_seeds(recipe, store.path, tmp_path / "out", 1, device="cpu", tell=told.append)
    assert result.figures is None and told[0].startswith("training without a test: ") and why in told[0]
    assert told[-1] == "seed 5\t-\t-\t-\t-\tlast"
    assert why in summary(tmp_path / "out")["untested"] and summary(tmp_path / "out")["mean"] == {}
    assert not (tmp_path / "out" / "seed-5" / "predictions").exists()


def test_a_folder_of_scans_is_prepared_once(scans: Path, tmp_path: Path) -> None:
    results = train_seeds(RECIPE, scans, tmp_path, 2, device="cpu")
    assert (tmp_path / "store" / "manifest.json").is_file()
    assert not (tmp_path / "seed-5" / "store").exists()
    assert all(result.figures for result in results)


def test_runs_that_are_others_are_refused(
    trained: tuple[Path, list[str]], store: Store, scans: Path, tmp_path: Path
) -> None:
    out, _ = trained
    with user_error(Code.RUN_MISMATCH, "recipe.yaml", "network.width"):
        train_seeds(RECIPE, store.path, out, 2, overrides=["network.width=4"], device="cpu")
    other = prepare(read_layout(scans).for_training(2, 0), tmp_path / "other", RECIPE.data)
    with user_error(Code.RUN_MISMATCH, other.path, "seed-5"):
        train_seeds(RECIPE, other.path, out, 2, device="cpu")
    with user_error(Code.TARGET_EXISTS, "seed-5", "single run"):
        train_seeds(RECIPE, store.path, out / "seed-5", 2, device="cpu")


def test_a_case_that_fails_stops_the_test(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*arguments: Any, **settings: Any) -> Predicted:
        return Predicted(tmp_path, (), (UserError(Code.SCAN_DAMAGED, "test_000", "cannot be read", "replace it"),))

    monkeypatch.setattr(train_and_test, "predict_scans", fails)
    with user_error(Code.SCAN_DAMAGED, "test_000"):
        train_seeds(RECIPE, store.path, tmp_path / "out", 1, device="cpu")


def test_folders_and_numbers_that_are_refused_before_anything_is_trained(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(monkeypatch)
    with user_error(Code.UNSAFE_TARGET, store.path, "data"):
        train_seeds(RECIPE, store.path, store.path, 1, device="cpu")
    with user_error(Code.RECIPE_INVALID, "", "seed"):
        train_seeds(RECIPE, store.path, tmp_path / "out", 2, overrides=[f"seed={2**63 - 1}"], device="cpu")
    assert not (tmp_path / "out").exists()
    with user_error(Code.OPTION_INVALID, "--seeds 101", "100"):
        train_seeds(RECIPE, store.path, tmp_path / "out", 101, device="cpu")
    (tmp_path / "summary.json").write_text("mine")
    with user_error(Code.TARGET_EXISTS, tmp_path, "other files"):
        train_seeds(RECIPE, store.path, tmp_path, 1, device="cpu")
    assert (tmp_path / "summary.json").read_text() == "mine"


@pytest.fixture(scope="module")
def from_scans(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One seed, and the store that was made for it."""
    out = tmp_path_factory.mktemp("seeds") / "out"
    train_seeds(RECIPE, scans, out, 1, device="cpu")
    return out


def check_rejected(out: Path, data: Path, code: Code, keyword: str, *overrides: str) -> None:
    """Check that seeds raise an error and leave the folder unchanged."""
    before = contents(out)
    with user_error(code, "", keyword):
        train_seeds(RECIPE, data, out, 1, overrides=overrides, device="cpu")
    assert contents(out) == before


def test_a_folder_of_folds_is_rejected(scans: Path, tmp_path: Path) -> None:
    api.train_folds(RECIPE, scans, tmp_path / "out", folds=2, device="cpu")
    check_rejected(tmp_path / "out", scans, Code.TARGET_EXISTS, "folds")
    check_rejected(tmp_path / "out", scans, Code.TARGET_EXISTS, "folds", "data.intensity.rule=none")


def test_other_folders_are_not_changed(scans: Path, store: Store, from_scans: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copytree(scans, tmp_path / "scans"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("mine")
    (tmp_path / "foreign" / "seed-5").mkdir(parents=True)
    (tmp_path / "foreign" / "seed-5" / "thesis.txt").write_text("mine")
    (tmp_path / "shop" / "store").mkdir(parents=True)
    (tmp_path / "shop" / "store" / "apples.txt").write_text("mine")
    shutil.copytree(from_scans / "store", tmp_path / "beside" / "store")
    (tmp_path / "beside" / "thesis.txt").write_text("mine")
    places = [copied, copied / "imagesTr", *(tmp_path / name for name in ("notes", "foreign", "shop", "beside"))]
    for place in places:
        check_rejected(place, scans, Code.TARGET_EXISTS, "seeds")
    (tmp_path / "file").write_text("mine")
    with user_error(Code.TARGET_EXISTS, tmp_path / "file", "seeds"):
        train_seeds(RECIPE, store.path, tmp_path / "file", 1, device="cpu")


@pytest.mark.slow
def test_leftovers_of_a_failed_start_are_ignored(scans: Path, tmp_path: Path) -> None:
    leftovers = [
        ("seed-5/.run-lock",),
        (".run-lock",),
        (".run-lock", "store/.store-lock"),
        ("store/.store-lock", "store/cases/.partial-a"),
    ]
    for number, names in enumerate(leftovers):
        out = tmp_path / str(number)
        for name in names:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).touch()
        (result,) = train_seeds(RECIPE, scans, out, 1, device="cpu")
        assert result.figures, names


@pytest.mark.parametrize("named", ["store", "scans"])
def test_seeds_beside_a_store_that_was_prepared_beforehand(
    scans: Path, from_scans: Path, tmp_path: Path, named: str
) -> None:
    store = Path(shutil.copytree(from_scans / "store", tmp_path / "out" / "store"))
    before = contents(store)
    (result,) = train_seeds(RECIPE, store if named == "store" else scans, tmp_path / "out", 1, device="cpu")
    assert result.figures and contents(store) == before


def test_a_store_of_other_data_that_was_prepared_beforehand_is_kept(
    scans: Path, from_scans: Path, tmp_path: Path
) -> None:
    shutil.copytree(from_scans / "store", tmp_path / "out" / "store")
    other = Path(shutil.copytree(scans, tmp_path / "other"))
    for _ in range(2):
        check_rejected(tmp_path / "out", other, Code.TARGET_EXISTS, "not from")


def test_seeds_do_not_change_their_store(from_scans: Path, scans: Path, tmp_path: Path) -> None:
    out, data = (Path(shutil.copytree(of, tmp_path / of.name)) for of in (from_scans, scans))
    check_rejected(out, scans, Code.RUN_MISMATCH, "data.intensity.rule", "data.intensity.rule=none")
    run = out / "seed-5" / "run.json"
    run.write_text(json.dumps(read_json(run) | {"status": "stopped"}))
    check_rejected(out, scans, Code.STORE_MISMATCH, "data.intensity", "data.intensity.rule=none", "seed=9")
    check_rejected(out, data, Code.TARGET_EXISTS, "not from")
    notes = out / "notes.txt"
    notes.write_text("they may stand beside the runs")
    train_seeds(RECIPE, scans, out, 2, device="cpu")
    assert (out / "store" / "manifest.json").read_bytes() == (from_scans / "store" / "manifest.json").read_bytes()


def test_fewer_seeds_drop_none(
    trained: tuple[Path, list[str]], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, told, again = Path(shutil.copytree(trained[0], tmp_path / "out")), trained[1], list[str]()
    before = contents(out)
    with monkeypatch.context() as patched:
        forbid(patched)
        results = train_seeds(RECIPE, store.path, out, 1, device="cpu", tell=again.append)
    assert ([result.seed for result in results], again) == ([5, 6], told)
    assert contents(out) == before
    results = train_seeds(RECIPE, store.path, out, 1, overrides=["seed=3"], device="cpu")
    assert [result.seed for result in results] == [one["seed"] for one in summary(out)["seeds"]] == [3, 5, 6]
    dice = [one["dice"] for one in summary(out)["seeds"]]
    assert summary(out)["mean"]["dice"] == pytest.approx(np.mean(dice))


def test_a_stop_drops_no_seed_that_has_ended(
    trained: tuple[Path, list[str]], store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stops(*_: Any, **__: Any) -> None:
        raise StoppedError(2, 1)

    out = Path(shutil.copytree(trained[0], tmp_path / "out"))
    monkeypatch.setattr(train_and_test, "complete", stops)
    with pytest.raises(StoppedError):
        train_seeds(RECIPE, store.path, out, 1, overrides=["seed=3"], device="cpu")
    assert [one["seed"] for one in summary(out)["seeds"]] == [5, 6]


def test_seeds_of_other_settings_are_not_counted_together(
    trained: tuple[Path, list[str]], store: Store, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(trained[0], tmp_path / "out"))
    check_rejected(out, store.path, Code.RUN_MISMATCH, "network.width", "network.width=4", "seed=9")


@pytest.mark.parametrize("resume", [True, False])
def test_a_single_run_is_refused_in_a_folder_of_seeds(
    trained: tuple[Path, list[str]], store: Store, tmp_path: Path, resume: bool
) -> None:
    out = Path(shutil.copytree(trained[0], tmp_path / "out"))
    with user_error(Code.TARGET_EXISTS, out, "--seeds"):
        api.train(RECIPE, store.path, out, resume=resume, device="cpu")
    assert contents(out) == contents(trained[0])
