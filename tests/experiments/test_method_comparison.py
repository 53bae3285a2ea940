"""A comparison of methods: the same folds for all, one table, and a resume that keeps finished folds."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from tiny import tiny_recipe, write_scans

import graftseg
from graftseg import api
from graftseg.core.errors import Code, StoppedError
from graftseg.core.files import CHECKSUM
from graftseg.core.run_folder import RunFolder, held_out_by_fold
from graftseg.evaluation.scores import Evaluation, Row
from graftseg.evaluation.verdicts import dice_effect
from graftseg.experiments import method_comparison
from graftseg.experiments.method_comparison import MethodComparison, MethodResult
from graftseg.planning import method_shares
from graftseg.recipes.reading import CHECKSUM_LINE
from graftseg.recipes.recipe import load_recipe
from graftseg.training import learning_check
from graftseg.training import run as training
from graftseg.training.folds import train_folds
from user_errors import user_error

STAGE = {"optimizer": {"name": "adam", "learning_rate": 0.01}}
PLAN = tiny_recipe(
    stages=[{"method": "supervised", "steps": 10, **STAGE}, {"method": "bcp", "steps": 10, **STAGE}], baseline=True
)
METHODS = ("supervised", "bcp", "mean-teacher")


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scans(tmp_path_factory.mktemp("scans"), labeled=4, unlabeled=3, test=0)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow runs of two steps, and let each step take one second."""
    monkeypatch.setattr(method_shares, "MIN_UNLABELED_STEPS", 2)
    monkeypatch.setattr(method_shares, "seconds_per_step", lambda recipes, **_: [1.0] * len(recipes))


@pytest.fixture(scope="module")
def compared(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, MethodComparison]:
    out = tmp_path_factory.mktemp("runs") / "methods"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method_shares, "MIN_UNLABELED_STEPS", 2)
        patch.setattr(method_shares, "seconds_per_step", lambda recipes, **_: [1.0] * len(recipes))
        return RunFolder(out), graftseg.compare_methods(PLAN, scans, out, methods=METHODS, device="cpu")


def test_all_methods_have_the_same_folds_and_time(compared: tuple[RunFolder, MethodComparison]) -> None:
    """The plan takes 30 s: 10 s per method, 5 s per fold."""
    run, comparison = compared
    folders = [RunFolder(run.path / name) for name in METHODS]
    assert comparison.folds == 2
    assert len({tuple(held_out_by_fold(folder)) for folder in folders}) == 1
    manifests = [folder.fold(number).manifest() for folder in folders for number in range(2)]
    assert [manifest["steps"] for manifest in manifests] == [5] * 6
    assert len({manifest["store"]["identity"] for manifest in manifests}) == 1
    assert {manifest["store"]["path"] for manifest in manifests} == {str(run.store)}
    assert [path for path in run.path.rglob("store") if path.is_dir()] == [run.store]
    assert [folder.fold(0).manifest()["method"] for folder in folders] == list(METHODS)


def test_the_written_files(compared: tuple[RunFolder, MethodComparison]) -> None:
    run, comparison = compared
    saved = json.loads(run.compare_file.read_text())
    assert saved["methods"] == list(METHODS) and CHECKSUM in saved
    assert all(path.read_text().startswith(CHECKSUM_LINE) for path in (run.path / "recipes").iterdir())
    assert [row["method"] for row in saved["results"]] == list(METHODS)
    assert [row["dice"] for row in saved["results"]] == [one.effect.second for one in comparison.results]
    with (run.path / "compare.csv").open() as stream:
        lines = list(csv.DictReader(stream))
    assert [(line["method"], line["steps"]) for line in lines] == [(name, "5") for name in METHODS]
    page = (run.path / "report.html").read_text()
    for name in METHODS:
        assert f'href="{name}/report.html"' in page and (run.path / name / "report.html").is_file()
    assert api.info(run.path)["kind"] == "comparison"


def test_the_final_recipe_has_the_time_of_the_plan(compared: tuple[RunFolder, MethodComparison]) -> None:
    _, comparison = compared
    final = load_recipe(comparison.final_recipe)
    assert final.method == comparison.best.method
    # 12 + 9 steps, and 9 steps of the baseline
    assert (sum(stage.steps for stage in final.stages), final.folds, final.baseline) == (21, None, True)


def test_resume_trains_nothing_again(
    compared: tuple[RunFolder, MethodComparison], scans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, before = compared
    monkeypatch.setattr(training, "fit", None)
    monkeypatch.setattr(method_shares, "seconds_per_step", None)
    again = api.compare_methods(PLAN, scans, run.path, methods=METHODS, resume=True, device="cpu")
    assert again.table() == before.table()


@pytest.mark.slow
def test_resume_continues_a_stopped_method(
    scans: Path, tmp_path: Path, compared: tuple[RunFolder, MethodComparison], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"

    def stops(recipe: Any, *arguments: Any, **options: Any) -> Any:
        if recipe.method == "bcp":
            raise StoppedError(2, 3)
        return train_folds(recipe, *arguments, **options)

    monkeypatch.setattr(method_comparison, "train_folds", stops)
    with pytest.raises(StoppedError):
        api.compare_methods(PLAN, scans, out, methods=METHODS, device="cpu")
    assert [row["method"] for row in json.loads((out / "compare.json").read_text())["results"]] == ["supervised"]
    monkeypatch.setattr(method_comparison, "train_folds", train_folds)
    resumed = api.compare_methods(PLAN, scans, out, methods=METHODS, resume=True, device="cpu")
    assert [one.effect for one in resumed.results] == [one.effect for one in compared[1].results]


def test_resume_needs_the_same_plan_and_methods(compared: tuple[RunFolder, MethodComparison], scans: Path) -> None:
    run, _ = compared
    options: dict[str, Any] = {"device": "cpu", "resume": True}
    with user_error(Code.RUN_MISMATCH, run.compare_file, "bcp"):
        api.compare_methods(PLAN, scans, run.path, methods=("bcp",), **options)
    with user_error(Code.RUN_MISMATCH, run.recipe_file, "seed"):
        api.compare_methods(PLAN, scans, run.path, methods=METHODS, overrides=["seed=5"], **options)
    with user_error(Code.RUN_MISMATCH, run.compare_file, "2 folds"):
        api.compare_methods(PLAN, scans, run.path, methods=METHODS, folds=3, **options)
    with user_error(Code.TARGET_EXISTS, run.path, "--resume"):
        api.compare_methods(PLAN, scans, run.path, methods=METHODS, device="cpu")
    with user_error(Code.TARGET_EXISTS, run.path, "--compare"):
        api.train_folds(PLAN, scans, run.path, folds=2, device="cpu")


def test_a_plan_that_is_too_short_leaves_a_free_folder(
    scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method_shares, "MIN_UNLABELED_STEPS", 1000)
    with user_error(Code.BUDGET_TOO_SMALL, "recipe tiny", "--minutes 111"):
        api.compare_methods(PLAN, scans, tmp_path / "run", methods=METHODS, device="cpu")
    assert RunFolder(tmp_path / "run").is_free


def test_unlabeled_scans_are_needed(tmp_path: Path) -> None:
    data = write_scans(tmp_path / "data", labeled=4, unlabeled=0, test=0)
    with user_error(Code.TOO_FEW_CASES, data, "imagesUn"):
        api.compare_methods(PLAN, data, tmp_path / "run", device="cpu")


def result(method: str, *dice: float, supervised: tuple[float, ...] = (0.5, 0.6)) -> MethodResult:
    """Return a result with these values of Dice, one per case."""
    both = [
        Evaluation(tuple(Row(f"case{n}", 1, "ring", one, *[math.nan] * 11) for n, one in enumerate(values)), "standard")
        for values in (supervised, dice)
    ]
    return MethodResult(method, 100, 90.0, both[1], dice_effect(*both))


def test_the_best_method_and_the_table() -> None:
    results = (result("supervised", 0.5, 0.6), result("bcp", 0.75, 0.65), result("ua-mt", 0.4, 0.6))
    comparison = MethodComparison(RunFolder(Path("runs")), 2, results)
    assert comparison.best.method == "bcp"
    assert comparison.final_recipe == Path("runs/recipes/bcp-final.yaml")
    rows = comparison.table()[1]
    assert [row[:4] for row in rows] == [
        ("supervised", "100", "55.00", "-"),
        ("bcp", "100", "70.00", "+15.00"),
        ("ua-mt", "100", "50.00", "-5.00"),
    ]
    assert {row[-1] for row in rows} == {"1.5"}
    first, second, third = comparison.verdict()
    assert "bcp" in first and "+15.00 points" in second and "optimistic" in third


def test_supervised_training_wins_if_no_method_is_better() -> None:
    results = (result("supervised", 0.5, 0.6), result("bcp", 0.5, 0.6))
    comparison = MethodComparison(RunFolder(Path("runs")), 2, results)
    assert comparison.best.method == "supervised"
    (sentence,) = comparison.verdict()
    assert "no method" in sentence


def test_options_of_the_command(scans: Path, tmp_path: Path, cli: CommandLine) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.to_yaml())
    given = ("train", plan, "--data", scans, "--out", tmp_path / "run")
    for options in (["--seeds", 2], ["--baseline"], ["--no-baseline"], ["--folds", 0]):
        assert "--compare" in cli.fails(*given, "--compare", *options, code=Code.OPTION_CONFLICT)
    assert "--methods" in cli.fails(*given, "--methods", "bcp", code=Code.OPTION_CONFLICT)
    assert "dtc" in cli.fails(*given, "--compare", "--methods", "bcp,dtc", code=Code.UNKNOWN_NAME)


@pytest.mark.slow
def test_the_command_prints_table_and_next_command(
    scans: Path, tmp_path: Path, cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, out = tmp_path / "plan.yaml", tmp_path / "run"
    plan.write_text(PLAN.to_yaml())
    given = ("train", plan, "--data", scans, "--out", out, "--compare", "--methods", "bcp", "--device", "cpu")
    warning = learning_check.LearningWarning("class ring not learned", "train longer")
    monkeypatch.setattr(learning_check, "learning_warnings", lambda dice, log: [warning])
    printed = cli.works(*given)
    rows = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    assert rows[0][0] == "method" and [row[0] for row in rows[1:]] == ["supervised", "bcp"]
    assert rows[1][3:5] == ["-", "-"]
    best = api.info(out)["results"]
    name = max(best, key=lambda row: row["dice"])["method"]
    assert printed.splitlines()[-1].endswith(
        f"graftseg train {out}/recipes/{name}-final.yaml --data {scans} --out {out}/final"
    )
    status, _, error = cli(*given, "--resume", "--strict")
    assert status == 2 and f"[{Code.CLASS_NOT_LEARNED}]" in error and "supervised/fold-0" in error
