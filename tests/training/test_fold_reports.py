"""The page of folds: its headline, its facts, and numbers that equal those of the table."""

import json
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import pytest
from command_line import CommandLine, contents
from tiny import DEEP_2D, tiny_recipe, write_scans

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json, write_checked
from graftseg.core.run_folder import RunFolder, Shipped
from graftseg.core.teacher_checks import TeacherCheck
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.evaluation.scores import Evaluation
from graftseg.evaluation.table_metrics import mean_metrics
from graftseg.reporting.results import case_dice
from graftseg.reporting.text import typeset
from graftseg.reporting.viewer.collection import collect
from graftseg.reporting.viewer.view import report_of
from graftseg.training.cross_validation import CrossValidation
from user_errors import user_error


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, CrossValidation]:
    scans = write_scans(tmp_path_factory.mktemp("scans"), labeled=4, unlabeled=3, test=0)
    out = tmp_path_factory.mktemp("runs") / "run"
    recipe = tiny_recipe(network=DEEP_2D)
    return RunFolder(out), api.train_folds(recipe, scans, out, folds=2, baseline=True, device="cpu")


@pytest.fixture(scope="module")
def page(trained: tuple[RunFolder, CrossValidation], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of the trained folds."""
    return api.report(trained[0].path, tmp_path_factory.mktemp("pages") / "page.html").read_text()


def test_the_report_of_folds(trained: tuple[RunFolder, CrossValidation], page: str) -> None:
    run, result = trained
    assert all(name in page for part in result.parts for name in part)
    assert "4 labeled cases in 2 folds, 3 unlabeled cases, seed 0" in page
    assert "neither the label nor the image" in page and typeset(result.table()[1][1][-2]) in page
    assert str(run.path.parents[1]) not in page
    assert '<section id="test"' not in page
    with pytest.raises(UserError, match=r"one of its runs, such as .*fold-0"):
        api.record(run.path)


def most_varied(evaluation: Evaluation) -> tuple[str, list[float]]:
    """Return the class whose distances differ most between cases, and these distances."""
    found = {name: [row.hd95 for row in evaluation.rows if row.name == name] for name in ("crescent", "ring", "core")}
    name = max(found, key=lambda name: stdev(found[name]))
    assert stdev(found[name]) > 0.1
    return name, found[name]


def test_deviations_are_the_same_everywhere(trained: tuple[RunFolder, CrossValidation], page: str) -> None:
    run, result = trained
    name, distances = most_varied(result.evaluation)
    written = f"{fmean(distances):.2f} ± {stdev(distances):.2f}"
    _, lines = result.table()
    assert ("95HD voxel", name, "4", written) in [line[:4] for line in lines]
    # in the table of classes and in the comparison with the baseline
    assert page.replace("<small>", "").count(written) == 2
    assert page.count("sample standard deviation over cases") >= 3
    assert result.caption().endswith("; ± is the sample standard deviation over cases")
    (kept,) = (one for one in json.loads((run.path / "metrics.json").read_text())["classes"] if one["name"] == name)
    assert kept["hd95"]["std"] == pytest.approx(stdev(distances))


def test_facts_are_of_one_fold_or_of_all_folds(trained: tuple[RunFolder, CrossValidation], tmp_path: Path) -> None:
    run = RunFolder(Path(shutil.copytree(trained[0].path, tmp_path / "run")))
    for number, seconds in enumerate((30.0, 90.0)):
        run.fold(number).update_manifest({"wall_seconds": seconds, "steps": 9 + number})
    page = api.report(run.path).read_text()
    facts = dict(re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td></tr>', page))
    assert facts["Time of all folds"] == "2 min 0 s" and facts["Time of a fold"] == "30.0 s to 1 min 30 s"
    assert facts["Labeled cases in all folds"] == "4" and facts["Labeled training cases in each fold"] == "2"
    assert facts["Steps in each fold"] == "9 to 10" and "Time" not in facts and "Labeled cases" not in facts
    assert "each fold trained with 2 labeled and 3 unlabeled cases, seed 0." in page
    assert ">30.0 s</td></tr>" in page and ">1 min 30 s</td></tr>" in page


def part_of(page: str, identity: str) -> str:
    part = page[page.index(f'<section id="{identity}"') :]
    return part[: part.index("</section>")]


def test_folds_show_cases_that_their_networks_never_saw(trained: tuple[RunFolder, CrossValidation], page: str) -> None:
    _, result = trained
    part = part_of(page, "cases")
    scores = r"Dice [0-9.]+ % \(baseline [0-9.]+ %\)"
    shown = re.findall(rf"<b>([^<]*)</b> ([^,]*), {scores}, held out of fold ([0-9])</figcaption>", part)
    dice: dict[str, list[float]] = {}
    for row in result.evaluation.rows:
        dice.setdefault(row.case, []).append(row.dice)
    ranking = sorted(dice, key=lambda case: (fmean(dice[case]), case))
    ranks = ["worst", "median", "third worst", "best"]
    folds = {case: number for number, held_out in enumerate(result.parts) for case in held_out}
    assert shown == [(case, rank, str(folds[case])) for case, rank in zip(ranking, ranks, strict=True)]
    assert part.count('class="picture"') == 3 * 4 and "No picture" not in part


def test_a_map_of_a_case_that_a_fold_trained_on_is_not_shown(
    trained: tuple[RunFolder, CrossValidation], tmp_path: Path
) -> None:
    run = RunFolder(Path(shutil.copytree(trained[0].path, tmp_path / "run")))
    kept, case = trained[1].parts[0][0], trained[1].parts[1][0]
    manifest = run.fold(0).predictions / "manifest.json"
    content = read_json(manifest)
    entry = next(one for one in content["cases"] if one["case"] == kept)
    content["cases"].append({**entry, "case": case, "output": f"{case}.nii.gz"})
    manifest.write_text(json.dumps(content))
    (run.fold(1).predictions / "manifest.json").unlink()
    part = part_of(api.report(run.path).read_text(), "cases")
    assert part.count("held out of fold 0") == 2 and part.count("does not list this case") == 2


@pytest.mark.slow
def test_folds_of_a_store_have_pictures(tmp_path: Path) -> None:
    scans, store = write_scans(tmp_path / "scans", labeled=4, unlabeled=2, test=0), tmp_path / "store"
    prepare(read_layout(scans), store, tiny_recipe().data)
    api.train_folds(tiny_recipe(), store, tmp_path / "run", folds=2, device="cpu")
    part = part_of(api.report(tmp_path / "run").read_text(), "cases")
    assert part.count('class="picture"') == 3 * 4 and "No picture" not in part


def test_the_viewer_shows_the_held_out_cases_of_all_folds(trained: tuple[RunFolder, CrossValidation]) -> None:
    run, result = trained
    cases = collect(run.path).cases
    splits = {case: f"held out of fold {number}" for number, held_out in enumerate(result.parts) for case in held_out}
    tested, others = cases[:4], cases[4:]
    assert {case.name: case.split for case in tested} == splits
    assert [case.split for case in others] == ["unlabeled"] * 3
    dice = case_dice(result.evaluation)
    assert {case.name: case.dice for case in tested} == dice
    assert [case.dice for case in tested] == sorted(dice.values())
    assert {tuple(case.layers) for case in tested} == {("reference", "prediction", "difference")}
    render = report_of(run)
    assert render is not None
    assert set(re.findall(r'<a href="/\?case=([^"]*)"', render())) == set(splits)


def test_every_fold_has_its_curve(page: str) -> None:
    part = part_of(page, "training")
    assert re.findall(r'class="name"[^>]*>([^<]*)<', part) == ["Fold 0: total loss", "Fold 1: total loss"]
    assert "Stages: bcp-pretrain, steps " in part and '<a href="#training">Training</a>' in page


def test_the_table_of_folds_speaks_as_the_page_does(trained: tuple[RunFolder, CrossValidation], page: str) -> None:
    _, result = trained
    part = part_of(page, "comparison")
    assert ">with unlabeled scans<" in part and ">labeled scans only<" in part and "voxel" not in part
    cells = [cell for line in result.table()[1] for cell in line[3:]]
    assert any("-" in cell for cell in cells) and not re.search(r"[> ]-", part) and "95HD pixel" in part
    data = dict(re.findall(r'<th scope="row">([^<]*)</th><td>([^<]*)</td></tr>', page))["Data"]
    assert data.startswith("scans") and "/" not in data


def test_what_folds_found_stands_under_the_title(page: str) -> None:
    assert re.search(r'</h1>\s*<p class="verdict">Held-out labeled cases: ', page)
    assert "This run has a Dice of 0 for core in all 4 cases, so the distances of this class say little." in page


def test_training_and_report_have_the_same_verdict(trained: tuple[RunFolder, CrossValidation], page: str) -> None:
    *_, last = trained[1].verdict()
    assert last.endswith("neither network is good enough for a meaningful comparison.")
    assert f'<p class="verdict">{typeset(last)}</p>' in page


def test_folds_that_skipped_self_training_draw_no_conclusion(
    trained: tuple[RunFolder, CrossValidation], tmp_path: Path
) -> None:
    run = RunFolder(Path(shutil.copytree(trained[0].path, tmp_path / "run")))
    check = TeacherCheck(1, 3, dict.fromkeys(("a", "b"), "no foreground"), "skip").to_json()
    write_checked(run.fold(1).teacher_file, {"checks": [check]})
    *_, said = replace(trained[1], folder=run.path).verdict()
    assert said.endswith("; the unlabeled scans were not used in 1 of 2 folds.")
    write_checked(run.fold(0).teacher_file, {"checks": [check]})
    *_, said = replace(trained[1], folder=run.path).verdict()
    assert "of its baseline" in said and said.endswith("were plausible for self-training.")
    run.ship(Shipped("baseline", "a reason"))
    page = api.report(run.path).read_text()
    assert f'<p class="verdict">{typeset(said)}</p>' in page
    assert "labeled scans only</th>" not in page and "with unlabeled scans</th>" not in page
    assert trained[1].baseline is not None
    dice = mean_metrics(trained[1].baseline)["dice"]
    assert f"predict uses the supervised baseline, which has a mean Dice of {dice:.2f} % on the same cases." in page


def test_a_class_that_no_fold_finds_is_reported(trained: tuple[RunFolder, CrossValidation]) -> None:
    run, result = trained
    rows = tuple(replace(row, dice=0.0 if row.name == "ring" else 0.9) for row in result.evaluation.rows)
    alone = CrossValidation(run.path, result.parts, Evaluation(rows, "standard"))
    finding = "has a Dice of 0 for ring in all 4 cases, so the distances of this class say little"
    assert list(alone.verdict()) == [f"{run.path} {finding}"]
    found = tuple(replace(row, dice=0.9) for row in rows)
    beside = CrossValidation(run.path, result.parts, Evaluation(found, "standard"), alone.evaluation)
    assert list(beside.verdict())[:-1] == [f"{run.baseline.path} {finding}"]


def test_the_test_of_all_folds_is_in_their_report(trained: tuple[RunFolder, CrossValidation], tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained[0].path, tmp_path / "run"))
    data = write_scans(tmp_path / "data", labeled=1, unlabeled=0, test=3)
    examined = api.test(run, data, device="cpu")
    page = examined.report.read_text()
    assert "ensemble of all 2 folds" in page and '<a href="#test">Test scans</a>' in page
    part = page[page.index('<section id="test"') : page.index('<section id="run"')]
    _, distances = most_varied(examined.scores[run])
    written = f"{fmean(distances):.2f} ± {stdev(distances):.2f}"
    assert part.replace("<small>", "").count(written) == 2 and "Mean over 3 cases and then over 3 classes" in part
    assert '<p class="verdict">Test scans: mean Dice ' in page and not examined.warnings


def test_a_test_without_test_scans_refers_to_the_report(
    trained: tuple[RunFolder, CrossValidation], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(trained[0].path, tmp_path / "my run"))
    for path in (run, run / "fold-1"):
        with user_error(Code.NO_TEST_CASES, "", "graftseg report") as refused:
            api.test(path, device="cpu")
        assert "my run'" in refused.value.remedy and "--folds" not in str(refused.value)


@pytest.mark.slow
def test_folds_without_a_baseline_say_how_to_add_one(tmp_path: Path) -> None:
    scans, run = write_scans(tmp_path / "scans", labeled=4, unlabeled=2, test=0), tmp_path / "run"
    train = partial(api.train_folds, tiny_recipe(), scans, run, folds=2, device="cpu")
    train()
    command = "<code>graftseg train RECIPE --data DATA --out run --folds 2 --resume --baseline</code>"
    page = api.report(run).read_text()
    assert command in page and "no supervised baseline" in page
    (run / "baseline").mkdir()
    shutil.copy(run / "folds.json", run / "baseline")
    page = api.report(run).read_text()
    assert command in page and "has not finished training" in page and "benefit of the unlabeled" not in page
    shutil.rmtree(run / "baseline")
    train(resume=True, baseline=True)
    assert "To fill this section" not in api.report(run).read_text()


def test_folds_that_have_not_ended_have_no_report(tmp_path: Path) -> None:
    (tmp_path / "folds.json").write_text('{"folds": []}')
    with user_error(Code.RUN_UNFINISHED, tmp_path):
        api.report(tmp_path)


def test_a_missing_fold_is_reported(trained: tuple[RunFolder, CrossValidation], tmp_path: Path) -> None:
    copied = Path(shutil.copytree(trained[0].path, tmp_path / "run"))
    shutil.rmtree(copied / "fold-1")
    with user_error(Code.RUN_UNFINISHED, "fold-1", "--resume"):
        api.report(copied)


@pytest.mark.parametrize("more", [(), ("--resume",), ("--baseline",)])
def test_training_into_a_folder_of_folds_names_the_command_to_resume(
    cli: CommandLine, trained: tuple[RunFolder, CrossValidation], tmp_path: Path, more: tuple[str, ...]
) -> None:
    run = Path(shutil.copytree(trained[0].path, tmp_path / "run"))
    before = contents(run)
    (tmp_path / "tiny.yaml").write_text(tiny_recipe(network=DEEP_2D).to_yaml())
    scans = json.loads((run / "store" / "manifest.json").read_text())["root"]
    words = ("train", tmp_path / "tiny.yaml", "--data", scans, "--out", run, "--device", "cpu")
    assert "--folds 2 --resume" in cli.fails(*words, *more, code=Code.TARGET_EXISTS)
    assert contents(run) == before
    cli.works(*words, "--folds", "2", "--resume")
