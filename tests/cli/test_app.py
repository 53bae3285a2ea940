"""The command line, as a person uses it: the whole way, and one sentence for every mistake."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import tiny
import typer
import yaml
from command_line import CommandLine

from graftseg import api
from graftseg.cli.app import app
from graftseg.core.errors import Code, in_one_line
from graftseg.data.store import Store
from graftseg.evaluation.scores import read_csv
from graftseg.experiments.description import brief, machine_lines
from graftseg.recipes.reading import shipped_recipes
from graftseg.recipes.recipe import load_recipe


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe_tree()))
    return path


@pytest.fixture(scope="module")
def trained(scans: Path, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(), store.path, run)
    api.predict(run, scans / "imagesTs")
    api.evaluate(run / "predictions", scans / "labelsTs")
    return run


def test_all_commands_in_order(cli: CommandLine, scans: Path, recipe: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code, out, _ = cli("check", scans)
    assert code == 0 and "4 labeled, 5 unlabeled, 2 test scans; 0 findings" in out
    assert cli("prepare", scans, "--out", tmp_path / "store", "--recipe", recipe)[0] == 0
    code, out, _ = cli("train", recipe, "--data", tmp_path / "store", "--out", run)
    assert code == 0 and out.startswith(f"{run}: finished after 9 steps\nnext: graftseg test {run}, or")
    code, out, _ = cli("predict", run, scans / "imagesTs")
    assert code == 0 and out.splitlines()[0] == f"{run / 'predictions'}: 2 label maps"
    code, out, _ = cli("evaluate", run / "predictions", "--reference", scans / "labelsTs")
    assert code == 0 and "crescent" in out and "protocol: standard" in out
    code, out, _ = cli("report", run)
    assert code == 0 and Path(out.strip()).read_text().lower().startswith("<!doctype html>")
    for name in ("test_000", "test_001"):
        predicted = nibabel.load(run / "predictions" / f"{name}.nii.gz")
        scan = nibabel.load(scans / "imagesTs" / f"{name}_0000.nii.gz")
        assert np.array_equal(predicted.affine, scan.affine) and predicted.shape == scan.shape
        assert predicted.get_data_dtype() == np.uint8


@pytest.mark.parametrize("folds", [0, 2])
def test_the_next_command_can_be_copied(
    cli: CommandLine, scans: Path, recipe: Path, tmp_path: Path, folds: int
) -> None:
    run = tmp_path / "my $HOME run; it's"
    out = cli.works("train", recipe, "--data", scans, "--out", run, "--folds", folds, "--set", "stages.1.steps=1")
    (line,) = (line.removeprefix("next: ") for line in out.splitlines() if line.startswith("next: "))
    words = [shlex.split(command)[:3] for command in line.split(", or ")]
    assert words == [["graftseg", verb, str(run)] for verb in (["report"] if folds else ["test", "predict"])]


def test_train_prepares_scans(cli: CommandLine, scans: Path, recipe: Path, tmp_path: Path) -> None:
    assert cli("train", recipe, "--data", scans, "--out", tmp_path / "run")[0] == 0
    assert (tmp_path / "run" / "store" / "manifest.json").is_file()


@pytest.mark.parametrize("dimensions", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_volumes(dimensions: int, tmp_path: Path) -> None:
    """A 3-D network on volumes, and a 2-D network on their slices."""
    scans = tiny.write_scans(tmp_path / "scans", 3)
    tree = tiny.recipe_tree(dimensions)
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(yaml.safe_dump(tree))
    api.train(recipe, scans, tmp_path / "run")
    predicted = api.predict(tmp_path / "run", scans / "imagesTs")
    assert [case.case for case in predicted.cases] == ["test_000", "test_001"]
    assert nibabel.load(predicted.folder / "test_000.nii.gz").shape == (16, 16, 16)


def test_validation_on_held_out_cases(store: Store, tmp_path: Path) -> None:
    tree = tiny.recipe_tree()
    tree["batches"] |= {"validation_cases": 1}
    tree["selection"] = {"every": 3}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tree))
    api.train(tmp_path / "tiny.yaml", store.path, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    scores = [line["validation"] for line in lines if "validation" in line]
    assert len(scores) == 3
    assert set(scores[0]) == {"dice", "dice crescent", "dice ring", "dice core"}
    assert api.info(tmp_path / "run")["store"]["labeled"] == ["labeled_000", "labeled_001", "labeled_002"]


def test_labels_of_unlabeled_cases_are_never_opened(scans: Path, recipe: Path, tmp_path: Path) -> None:
    """Training is the same, bit for bit, when labels that it must not see are garbage."""
    tree = tiny.recipe_tree()
    tree["batches"] |= {"labeled_cases": 2}
    recipe.write_text(yaml.safe_dump(tree))
    stores = [tmp_path / "intact", tmp_path / "spoiled"]
    for path in stores:
        api.prepare(scans, path, recipe=recipe)
    for case in ("labeled_002", "labeled_003"):
        (stores[1] / "cases" / f"{case}.label.npy").write_bytes(b"not a label")
    (stores[1] / "cases" / "test_000.label.npy").unlink()
    (stores[1] / "cases" / "unlabeled_000.label.npy").write_bytes(b"not a label")
    weights = []
    for path in stores:
        api.train(recipe, path, tmp_path / f"run-{path.name}")
        weights.append((tmp_path / f"run-{path.name}" / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    assert "labeled_002" in api.info(tmp_path / "run-spoiled")["store"]["unlabeled"]


def test_classes_without_names_are_left_out() -> None:
    assert brief({"kind": "scans", "classes": {}}) == {"kind": "scans"}
    assert brief({"kind": "scans", "classes": {0: "background"}})["classes"] == {0: "background"}


def test_the_dice_of_training_scans_is_named_as_such(cli: CommandLine, trained: Path) -> None:
    facts, short = json.loads(cli.works("info", trained, "--json")), yaml.safe_load(cli.works("info", trained))
    assert short["dice_on_labeled_training_scans"] == facts["labeled_dice"] and "labeled_dice" not in short


def test_describe(cli: CommandLine, trained: Path, scans: Path, store: Store) -> None:
    facts = json.loads(cli("info", trained, "--json")[1])
    assert facts["kind"] == "run" and facts["status"] == "finished" and facts["steps"] == 9
    facts = json.loads(cli("info", store.path, "--json")[1])
    assert facts["kind"] == "store" and facts["cases"] == {"labeled": 4, "unlabeled": 5, "validation": 0, "test": 2}
    facts = json.loads(cli("info", scans, "--json")[1])
    assert facts["kind"] == "scans" and facts["cases"]["unlabeled"] == 5
    facts = json.loads(cli("info", "demo-2d/bcp", "--json")[1])
    assert facts["kind"] == "recipe" and facts["network"]["width"] == 8
    facts = json.loads(cli("doctor", "--json")[1])
    assert facts["versions"]["torch"] and facts["devices"][-1].startswith("cpu") and facts["disk_free_gib"] > 0


def test_the_machine_fits_on_one_screen(cli: CommandLine) -> None:
    lines = cli.works("doctor").splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    assert "devices: cpu with 1 thread" in machine_lines(api.doctor() | {"devices": ["cpu with 1 threads"]})
    names = cli.works("doctor", "--recipes").splitlines()
    counts = "".join(lines[[line.startswith("recipes: ") for line in lines].index(True) :])
    assert names == shipped_recipes() == json.loads(cli.works("doctor", "--recipes", "--json"))["recipes"]
    assert sum(int(count) for count in re.findall(r"\((\d+)\)", counts)) == len(names)


def test_a_machine_with_many_devices_fits_on_one_screen() -> None:
    gpus = [f"cuda:{index} NVIDIA GeForce RTX 4090 Laptop GPU" for index in range(8)]
    lines = machine_lines(api.doctor() | {"devices": [*gpus, "cpu with 128 threads"]})
    assert len(lines) < 24 and max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", ["demo-2d/bcp", "la-8/bcp", "acdc-3/sassnet", "pancreas-12/coranet", "default-3d/bcp"])
def test_a_recipe_that_is_described_can_be_saved_and_trained(cli: CommandLine, tmp_path: Path, name: str) -> None:
    saved = tmp_path / "my.yaml"
    saved.write_text(cli.works("info", name))
    assert load_recipe(saved) == load_recipe(name)


def test_plan_says_why(cli: CommandLine, scans: Path, tmp_path: Path) -> None:
    code, out, _ = cli("plan", scans, "--out", tmp_path / "plan.yaml")
    assert code == 0 and out.startswith("A plan by graftseg") and f"\nplan: {tmp_path / 'plan.yaml'}\nnext: " in out
    assert "dimensions: 2  # the scans are 2-D" in (tmp_path / "plan.yaml").read_text()
    again = cli.fails("plan", scans, "--out", tmp_path / "plan.yaml", code=Code.TARGET_EXISTS)
    assert f"`rm {tmp_path / 'plan.yaml'}` and plan again" in " ".join(again.split())
    assert "name a file" in cli.fails("plan", scans, "--out", tmp_path, code=Code.TARGET_EXISTS)
    assert api.info(tmp_path / "plan.yaml")["network"]["name"] == "unet-2d"


def test_a_bad_scan_does_not_stop_the_others(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("test_000", "test_001"):
        (folder / f"{name}_0000.nii.gz").write_bytes((scans / "imagesTs" / f"{name}_0000.nii.gz").read_bytes())
    (folder / "test_000_0000.nii.gz").write_bytes(b"rubbish")
    code, out, error = cli("predict", trained, folder, "--out", tmp_path / "out")
    assert (
        code == 2
        and "1 label map, 1 scan failed\n" in out.replace(", 1 of them empty", "")
        and "test_000_0000.nii.gz" in error
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "cases.jsonl",
        "classes.json",
        "manifest.json",
        "test_001.nii.gz",
    }


def test_predictions_do_not_depend_on_other_scans(trained: Path, scans: Path, tmp_path: Path) -> None:
    api.predict(trained, scans / "imagesTs" / "test_001_0000.nii.gz", tmp_path)
    alone = (tmp_path / "test_001.nii.gz").read_bytes()
    assert alone == (trained / "predictions" / "test_001.nii.gz").read_bytes()


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, contextlib, io\nfrom graftseg.cli.app import app\n"
        "with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n    app(['--help'])\n"
        "heavy = {'torch', 'monai', 'numpy', 'scipy', 'nibabel', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(len(heavy))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).returncode == 0


def mistakes(scans: Path, store: Store, trained: Path, tmp: Path) -> dict[str, tuple[list[Any], Code]]:
    full = tmp / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("precious")
    train = ["train", "demo-2d/bcp", "--data", store.path, "--out"]
    maps = ["evaluate", trained / "predictions", "--reference"]
    return {
        "check nothing": (["check", tmp / "absent"], Code.FOLDER_MISSING),
        "check a file": (["check", full / "thesis.txt"], Code.NOT_A_FOLDER),
        "check no layout": (["check", full], Code.LAYOUT_UNKNOWN),
        "prepare into something else": (["prepare", scans, "--out", full], Code.TARGET_EXISTS),
        "train no recipe": (["train", "la-9/bcp", "--data", scans, "--out", tmp / "r"], Code.RECIPE_MISSING),
        "train into something else": ([*train, full], Code.TARGET_EXISTS),
        "train over a run": ([*train, trained], Code.TARGET_EXISTS),
        "resume with other settings": ([*train, trained, "--resume"], Code.RUN_MISMATCH),
        "resume nothing": ([*train, tmp / "r", "--resume"], Code.RUN_UNFINISHED),
        "another preparation": ([*train, tmp / "r", "--set", "data.intensity.rule=minmax"], Code.STORE_MISMATCH),
        "too many labeled cases": ([*train, tmp / "r", "--set", "batches.labeled_cases=9"], Code.TOO_FEW_CASES),
        "no such device": ([*train, tmp / "r", "--device", "cuda:99"], Code.DEVICE_UNAVAILABLE),
        "no kind of device": ([*train, tmp / "r", "--device", "abacus"], Code.DEVICE_UNAVAILABLE),
        "unknown option": ([*train, tmp / "r", "--faster"], Code.OPTION_INVALID),
        "missing option": (train[:-1], Code.OPTION_INVALID),
        "unknown verb": (["segment"], Code.OPTION_INVALID),
        "predict without a run": (["predict", full, scans / "imagesTs"], Code.NOT_A_RUN),
        "predict nothing": (["predict", trained, tmp / "absent"], Code.FILE_MISSING),
        "predict no scans": (["predict", trained, full, "--out", tmp / "o"], Code.NOT_A_SCAN),
        "predict unknown checkpoint": (["predict", trained, store.path, "--checkpoint", "first"], Code.OPTION_INVALID),
        "evaluate unknown protocol": ([*maps, scans / "labelsTs", "--protocol", "kind"], Code.OPTION_INVALID),
        "evaluate other cases": ([*maps, scans / "labelsTr"], Code.FILE_MISSING),
        "report without a run": (["report", full], Code.NOT_A_RUN),
        "info about nothing": (["info", tmp / "absent"], Code.RECIPE_MISSING),
        "demo into something else": (["demo", "--out", full], Code.TARGET_EXISTS),
    }


def test_an_unknown_choice_is_an_option_error(cli: CommandLine) -> None:
    error = cli.fails("rank", "RUN", "--by", "size", code=Code.OPTION_INVALID)
    assert "Invalid value for '--by': 'size' is not one of" in error


def test_mistakes_get_one_sentence_and_leave_nothing(
    cli: CommandLine, scans: Path, store: Store, trained: Path, tmp_path: Path
) -> None:
    """The sentence and the JSON object have the same fields."""
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    failures = []
    for name, (words, code) in mistakes(scans, store, trained, tmp_path).items():
        status, out, error = cli(*words, "--json")
        fields = json.loads(error)
        sentence = f"graftseg: {fields['where']}: {fields['finding']}; {fields['remedy']}.\n"
        if (status, out, fields["code"]) != (2, "", code) or in_one_line(cli.fails(*words)[:-1]) != sentence[:-1]:
            failures.append((name, status, out, error))
    assert not failures, failures
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["thesis.txt"]
    assert before == {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}


def test_damaged_weights(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("run.json", "recipe.yaml"):
        (run / name).write_bytes((trained / name).read_bytes())
    cli.fails("predict", run, scans / "imagesTs", code=Code.WEIGHTS_MISSING)
    (run / "model.safetensors").write_bytes((trained / "model.safetensors").read_bytes()[:-100])
    cli.fails("predict", run, scans / "imagesTs", code=Code.WEIGHTS_DAMAGED)
    (run / "run.json").write_text('{"format": 99}')
    cli.fails("predict", run, scans / "imagesTs", code=Code.NOT_A_RUN)


def test_a_label_map_never_replaces_a_scan(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    scan = tmp_path / "scan.nii.gz"
    scan.write_bytes((scans / "imagesTs" / "test_000_0000.nii.gz").read_bytes())
    before = scan.read_bytes()
    cli.fails("predict", trained, scan, "--out", tmp_path, code=Code.UNSAFE_TARGET)
    assert scan.read_bytes() == before


def test_hidden_labels_of_scans_are_never_opened(cli: CommandLine, scans: Path, recipe: Path, tmp_path: Path) -> None:
    """Training from scans is the same, bit for bit, when label files that it must not see are garbage."""
    spoiled = Path(shutil.copytree(scans, tmp_path / "spoiled"))
    for path in (spoiled / "labelsTr" / "labeled_001.nii.gz", *(spoiled / "labelsTs").iterdir()):
        path.write_bytes(b"not a label")
    limits = [f"--set={limit}" for limit in ("batches.labeled_cases=1", "batches.validation_cases=2")]
    limits += ["--set=batches.labeled=2", "--set=selection.every=5"]
    weights = []
    for data, run in ((scans, tmp_path / "run"), (spoiled, tmp_path / "spoiled-run")):
        assert cli("train", recipe, "--data", data, "--out", run, *limits)[0] == 0
        weights.append((run / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]
    facts = api.info(tmp_path / "spoiled-run")["store"]
    assert facts["labeled"] == ["labeled_000"] and facts["unlabeled"][:2] == ["labeled_001", "unlabeled_000"]
    assert not list((tmp_path / "run" / "store" / "cases").glob("test*"))
    words = ("train", recipe, "--data", scans, "--out", tmp_path / "no", "--set", "batches.labeled_cases=9")
    assert "9 labeled" in cli.fails(*words, code=Code.TOO_FEW_CASES)
    assert not (tmp_path / "no").exists()


def test_predict_with_other_settings(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    words = ("predict", trained, scans / "imagesTs", "--out", tmp_path / "out")
    assert cli(*words, "--set", "inference.overlap=0.75")[0] == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["inference"]["overlap"] == 0.75
    assert "inference" in cli.fails(*words, "--set", "seed=1")


def test_predict_more_than_labels(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    words = ("predict", trained, scans / "imagesTs" / "test_000_0000.nii.gz", "--out", tmp_path / "out")
    assert cli(*words, "--tta", "--probabilities", "--uncertainty")[0] == 0
    names = {f"test_000{end}.nii.gz" for end in ("", "_probabilities", "_uncertainty")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names | {
        "cases.jsonl",
        "classes.json",
        "manifest.json",
    }
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["inference"]["flips"] is True
    cli.fails(*words, "--fold", "0", code=Code.NO_SUCH_FOLD)


def test_evaluate_without_some_label_maps(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    api.predict(trained, scans / "imagesTs" / "test_001_0000.nii.gz", out)
    words = ("evaluate", out, "--reference", scans / "labelsTs")
    assert "--allow-missing" in cli.fails(*words, code=Code.FILE_MISSING)
    assert cli(*words, "--allow-missing")[0] == 0
    assert {row.case for row in read_csv(out / "metrics.csv").rows} == {"test_001"}


@pytest.mark.parametrize("content", ["{}", "[]", '{"classes": "abc"}', '{"classes": [1, 2]}', '{"classes": []}'])
def test_evaluate_ignores_other_manifests(cli: CommandLine, scans: Path, tmp_path: Path, content: str) -> None:
    folder = Path(shutil.copytree(scans / "labelsTs", tmp_path / "labels"))
    (folder / "manifest.json").write_text(content)
    code, out, _ = cli("evaluate", folder, "--reference", scans / "labelsTs")
    assert code == 0 and "class 3" in out and "100.00" in out


def test_evaluate_overwrites_nothing(cli: CommandLine, trained: Path, scans: Path, tmp_path: Path) -> None:
    words = ("evaluate", trained / "predictions", "--reference", scans / "labelsTs", "--out")
    assert ".csv" in cli.fails(*words, tmp_path / "x.json", code=Code.OPTION_INVALID)
    before = (trained / "predictions" / "manifest.json").read_bytes()
    cli.fails(*words, trained / "predictions" / "manifest.csv", code=Code.UNSAFE_TARGET)
    assert (trained / "predictions" / "manifest.json").read_bytes() == before
    assert not list(tmp_path.iterdir())


def test_check_prints_file_finding_and_remedy(cli: CommandLine, scans: Path, tmp_path: Path) -> None:
    folder = tmp_path / "scans"
    for path in scans.rglob("*.*"):
        target = folder / path.relative_to(scans)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (folder / "imagesUn" / "unlabeled_001_0000.nii.gz").write_bytes(b"rubbish")
    twin = (folder / "imagesUn" / "unlabeled_000_0000.nii.gz").read_bytes()
    (folder / "imagesTs" / "twin_0000.nii.gz").write_bytes(twin)
    code, out, _ = cli("check", folder)
    assert code == 2
    assert "error\tnot a NIfTI file\timagesUn/unlabeled_001_0000.nii.gz\t1 file\tconvert the scan to NIfTI" in out
    assert "identical voxels in test and unlabeled cases\tunlabeled_000, twin\t2 cases\tkeep one of them" in out
    assert out.endswith("4 labeled, 5 unlabeled (1 broken), 3 test scans; 3 findings, 2 of them errors\n")


def test_a_report_never_replaces_something_else(cli: CommandLine, trained: Path) -> None:
    before = (trained / "model.safetensors").read_bytes()
    cli.fails("report", trained, "--out", trained / "model.safetensors", code=Code.OPTION_INVALID)
    assert (trained / "model.safetensors").read_bytes() == before


def test_a_folder_with_a_recipe_is_not_free(cli: CommandLine, recipe: Path, scans: Path, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "recipe.yaml").write_text("# mine\n")
    cli.fails("train", recipe, "--data", scans, "--out", own, code=Code.TARGET_EXISTS)
    assert (own / "recipe.yaml").read_text() == "# mine\n"


@pytest.mark.parametrize("name", sorted(vars(typer.main.get_command(app))["commands"]))
def test_a_deleted_working_directory(
    cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    assert cli.fails(name, tmp_path / "any", code=Code.FOLDER_MISSING).startswith("graftseg: .: ")


def test_the_version_does_not_need_a_working_directory(tmp_path: Path) -> None:
    words = f"cd {tmp_path} && rmdir {tmp_path} && exec {sys.executable} -m graftseg"
    done = subprocess.run(["sh", "-c", f"{words} --version"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    done = subprocess.run(["sh", "-c", f"mkdir {tmp_path} && {words} doctor"], capture_output=True, check=False)
    assert done.returncode == 2 and done.stderr.endswith(b"[folder-missing]\n") and done.stderr.count(b"\n") == 1
