"""Bad scans and folders on the command line: each is one error, and nothing is damaged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tiny
import yaml
from command_line import CommandLine, contents, entries

from graftseg import api
from graftseg.core.errors import Code
from graftseg.core.files import read_json
from graftseg.core.types import Geometry
from graftseg.data.scans import read_label, read_scan, write_label, write_scan
from graftseg.recipes.recipe import load_recipe

FEW_STEPS = ("--set", "stages.0.steps=2", "--set", "stages.1.steps=2")
FIRST = {"imagesTr": "labeled_000_0000", "labelsTr": "labeled_000", "imagesUn": "unlabeled_000_0000"}
FIRST |= {"imagesTs": "test_000_0000", "labelsTs": "test_000"}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe_tree()))
    return path


@pytest.fixture
def data(scans: Path, tmp_path: Path) -> Path:
    """Return a copy of the phantoms that a test may damage."""
    return Path(shutil.copytree(scans, tmp_path / "data"))


@pytest.fixture(scope="module")
def trained(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    api.train(tiny.tiny_recipe(), scans, run)
    api.predict(run, scans / "imagesTs")
    return run


def first(data: Path, folder: str) -> Path:
    """Return the first scan or label map of a folder."""
    return data / folder / f"{FIRST[folder]}.nii.gz"


def cropped(path: Path, shape: tuple[int, ...]) -> None:
    """Keep the first voxels of a scan or label map."""
    scan = read_scan(path)
    window = (slice(None), *(slice(size) for size in shape))
    write_scan(path, scan.array[window], Geometry(shape, scan.geometry.affine))


def cut(path: Path) -> None:
    """Truncate a file."""
    path.write_bytes(path.read_bytes()[:-60])


def fails_until_fixed(cli: CommandLine, data: Path, sound: Path, recipe: Path, code: Code, where: Path) -> None:
    """Check that prepare and train fail, leave no manifest and no network, and work with the original data."""
    out = recipe.parent
    prepare = ("prepare", data, "--out", out / "store", "--recipe", recipe)
    train = ("train", recipe, "--data", data, "--out", out / "run", *FEW_STEPS)
    for words in (prepare, train):
        assert f"{where}: " in cli.fails(*words, code=code)
    assert not {"store/manifest.json", "run/store/manifest.json", "run/run.json", "run/recipe.yaml"} & entries(out)
    shutil.rmtree(data)
    shutil.copytree(sound, data)
    for words in (prepare, train):
        cli.works(*words)
    assert {"store/manifest.json", "run/store/manifest.json", "run/model.safetensors"} <= entries(out)


def test_an_empty_folder(cli: CommandLine, trained: Path, recipe: Path, tmp_path: Path) -> None:
    empty, out = tmp_path / "empty", tmp_path / "out"
    empty.mkdir()
    words: tuple[object, ...]
    for words in (
        ("check", empty, "--out", out / "check.html"),
        ("check", empty, "--fix", out / "mended"),
        ("plan", empty, "--out", out / "plan.yaml"),
        ("prepare", empty, "--out", out / "store", "--recipe", recipe),
        ("train", recipe, "--data", empty, "--out", out / "run"),
        ("train", recipe, "--data", empty, "--out", out / "run", "--folds", "2", "--baseline"),
        ("rank", trained, "--data", empty, "--out", out / "rank.csv"),
        ("export", "nnunet", trained, "--data", empty, "--out", out / "Dataset501_X"),
    ):
        assert f"{empty}: " in cli.fails(*words, code=Code.LAYOUT_UNKNOWN)
    assert f"{empty}: " in cli.fails("predict", trained, empty, "--out", out, code=Code.NOT_A_SCAN)
    words = ("evaluate", empty, "--reference", empty, "--out", out / "metrics.csv")
    assert f"{empty}: " in cli.fails(*words, code=Code.FILE_MISSING)
    for words in (
        ("predict", empty, empty, "--out", out),
        ("report", empty, "--out", out / "report.html"),
        ("rank", empty, "--out", out / "rank.csv"),
        *(("export", kind, empty, "--out", out / f"x{end}") for kind, end in {"onnx": "", "monai": ""}.items()),
        ("export", "weights", empty, "--out", out / "x.safetensors"),
    ):
        assert f"{empty}: " in cli.fails(*words, code=Code.NOT_A_RUN)
    cli.fails("compare", empty, trained, "--out", out, code=Code.NOT_TESTED)
    assert not out.exists() and entries(empty) == set()


@pytest.mark.slow
def test_one_labeled_case(cli: CommandLine, recipe: Path, tmp_path: Path) -> None:
    data = tiny.write_scans(tmp_path / "data", labeled=1)
    assert "Too few scans to compare" in cli.works("check", data)
    plan = cli.works("plan", data, "--out", tmp_path / "plan.yaml", "--minutes", "30")
    assert "Warning: one labeled scan is very little." in plan
    few_steps = (*FEW_STEPS, "--set", "stages.1.check_teacher=false")  # a skipped stage gives its time to more steps
    out = cli.works("train", tmp_path / "plan.yaml", "--data", data, "--out", tmp_path / "run", *few_steps)
    assert out.startswith(
        f"{tmp_path / 'run'}: finished after 4 steps; baseline: {tmp_path / 'run' / 'baseline'}\nnext: "
    )
    words = ("train", recipe, "--data", data, "--out", tmp_path / "folds", "--folds", "2")
    cli.fails(*words, code=Code.TOO_FEW_CASES)
    assert not (tmp_path / "folds").exists()
    cli.works("predict", tmp_path / "run", data / "imagesTs", "--out", tmp_path / "labels")
    cli.works("evaluate", tmp_path / "labels", "--reference", data / "labelsTs")
    cli.works("report", tmp_path / "run")
    assert "unlabeled_004" in cli.works("rank", tmp_path / "run")


def test_no_unlabeled_case(cli: CommandLine, recipe: Path, tmp_path: Path) -> None:
    data = tiny.write_scans(tmp_path / "data", unlabeled=0)
    assert "4 labeled, 0 unlabeled, 2 test scans; 0 findings" in cli.works("check", data)
    plan = cli.works("plan", data, "--out", tmp_path / "plan.yaml", "--minutes", "0.01")
    assert "Warning: " in plan and "supervised" in plan
    planned = load_recipe(tmp_path / "plan.yaml")
    assert planned.method == "supervised" and not planned.baseline
    words = ("train", tmp_path / "plan.yaml", "--data", data, "--out", tmp_path / "run", "--set", "stages.0.steps=2")
    assert cli.works(*words).startswith(f"{tmp_path / 'run'}: finished after 2 steps\nnext: ")
    assert "no unlabeled" in cli.fails("rank", tmp_path / "run", "--out", tmp_path / "rank.csv")
    cli.works("prepare", data, "--out", tmp_path / "store", "--recipe", recipe)
    for given in (data, tmp_path / "store"):
        for more in ((), ("--folds", "2")):
            words = ("train", recipe, "--data", given, "--out", tmp_path / "no", *more)
            assert f"{given}: " in (sentence := cli.fails(*words)) and "imagesUn" in sentence
            assert not (tmp_path / "no" / "store").exists()


def test_label_values_with_gaps(cli: CommandLine, data: Path, trained: Path, recipe: Path, tmp_path: Path) -> None:
    (data / "dataset.json").unlink()
    for path in (*(data / "labelsTr").iterdir(), *(data / "labelsTs").iterdir()):
        label = read_label(path)
        write_label(path, np.where(label.array == 2, 9, label.array), label.geometry)
    assert "warning\tthe label values have gaps\tlabeled_000 and 3 more\t0, 1, 3, 9 occur" in cli.works("check", data)
    before = (trained / "predictions" / "manifest.json").read_bytes()
    words = ("evaluate", trained / "predictions", "--reference", data / "labelsTs")
    assert "value 9" in cli.fails(*words, code=Code.LABEL_INVALID)
    assert not (trained / "predictions" / "metrics.csv").exists()
    assert (trained / "predictions" / "manifest.json").read_bytes() == before
    cli.works("check", data, "--fix", tmp_path / "mended")
    assert "0 findings" in cli.works("check", tmp_path / "mended")
    assert "4 classes" not in cli.works("plan", tmp_path / "mended", "--out", tmp_path / "p.yaml", "--minutes", "0.01")
    cli.works("train", recipe, "--data", tmp_path / "mended", "--out", tmp_path / "run")
    assert api.info(tmp_path / "run")["store"]["classes"] == ["background", "label 1", "label 3", "label 9"]


def test_values_with_gaps_in_a_list_of_classes(cli: CommandLine, data: Path, scans: Path, recipe: Path) -> None:
    content = json.loads((data / "dataset.json").read_text())
    content["labels"] = {"background": 0, "crescent": 1, "ring": 2, "core": 7}
    (data / "dataset.json").write_text(json.dumps(content))
    fails_until_fixed(cli, data, scans, recipe, Code.LABEL_INVALID, data / "dataset.json")


def series(path: Path, volumes: int = 5) -> None:
    """Turn a scan into a time series."""
    scan = read_scan(path)
    write_scan(path, np.repeat(scan.array, volumes, axis=0), scan.geometry)


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    return tiny.write_scans(tmp_path / "volumes", 3)


@pytest.mark.slow
def test_one_time_series_among_volumes(cli: CommandLine, volumes: Path, recipe: Path, tmp_path: Path) -> None:
    sound = Path(shutil.copytree(volumes, tmp_path / "sound"))
    recipe.write_text(yaml.safe_dump(tiny.recipe_tree(3)))
    api.train(recipe, sound, tmp_path / "trained")
    series(first(volumes, "imagesTr"))
    code, out, _ = cli("check", volumes)
    assert code == 2 and "labeled_000\t5 channels" in out
    cli.fails("plan", volumes, "--out", tmp_path / "plan.yaml", code=Code.CHANNELS_MISMATCH)
    assert not (tmp_path / "plan.yaml").exists()
    code, out, error = cli("predict", tmp_path / "trained", volumes / "imagesTr", "--out", tmp_path / "maps")
    assert code == 2 and out.endswith("3 label maps, 1 scan failed\n") and "channels" in error
    assert "labeled_000.nii.gz" not in entries(tmp_path / "maps")
    code, out, error = cli("rank", tmp_path / "trained", "--data", volumes)
    assert code == 2 and "unlabeled_004" in out and "labeled_000: " in error and "channels" in error
    fails_until_fixed(cli, volumes, sound, recipe, Code.CHANNELS_MISMATCH, first(volumes, "imagesTr"))


def test_a_folder_of_time_series(cli: CommandLine, volumes: Path) -> None:
    for path in volumes.glob("images*/*"):
        series(path, 9)
    out = cli.works("check", volumes)
    assert "\tlabeled_000 and 10 more\t9 channels" in out and "time series" in out


@pytest.mark.slow
def test_scans_smaller_than_the_patch(
    cli: CommandLine, data: Path, trained: Path, recipe: Path, tmp_path: Path
) -> None:
    for path in data.glob("*/*.nii.gz"):
        cropped(path, (9, 7))
    assert "\tlabeled_000 and 10 more\t9x7 voxels" in cli.works("check", data)
    cli.works("plan", data, "--out", tmp_path / "plan.yaml", "--minutes", "30")
    run = tmp_path / "run"
    cli.works("train", tmp_path / "plan.yaml", "--data", data, "--out", run, "--no-baseline", *FEW_STEPS)
    cli.works("train", recipe, "--data", data, "--out", tmp_path / "tiny")
    for network in (run, tmp_path / "tiny", trained):
        maps = tmp_path / f"maps-{network.name}-{network.parent.name}"
        cli.works("predict", network, data / "imagesTs", "--out", maps, "--probabilities", "--uncertainty")
        assert read_label(maps / "test_000.nii.gz").array.shape == (9, 7)
        cli.works("evaluate", maps, "--reference", data / "labelsTs")
        assert "unlabeled_004" in cli.works("rank", network, "--data", data)


def test_a_constant_image(cli: CommandLine, data: Path, trained: Path, recipe: Path, tmp_path: Path) -> None:
    for value, folder in enumerate(("imagesTr", "imagesUn", "imagesTs"), start=5):
        scan = read_scan(first(data, folder))
        write_scan(first(data, folder), np.full_like(scan.array, value), scan.geometry)
    out = cli.works("check", data)
    assert out.count("warning\tevery voxel of the scan has the same value") == 3
    cli.works("plan", data, "--out", tmp_path / "plan.yaml", "--minutes", "0.01")
    cli.works("train", recipe, "--data", data, "--out", tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert len(log) == 9 and all(np.isfinite(line["total"]) for line in log)
    cli.works("predict", trained, data / "imagesTs", "--out", tmp_path / "maps", "--uncertainty")
    assert "unlabeled_000" in cli.works("rank", trained, "--data", data)


def test_a_label_of_another_size(cli: CommandLine, data: Path, scans: Path, trained: Path, recipe: Path) -> None:
    cropped(first(data, "labelsTr"), (10, 16))
    cropped(first(data, "labelsTs"), (10, 16))
    code, out, _ = cli("check", data)
    assert code == 2 and out.count("error\timage and label") == 2
    label = first(data, "labelsTr")
    plan = recipe.parent / "plan.yaml"
    assert f"{label}: " in cli.fails("plan", data, "--out", plan, code=Code.GEOMETRY_MISMATCH)
    assert not plan.exists()
    words = ("evaluate", trained / "predictions", "--reference", data / "labelsTs", "--out", plan.with_suffix(".csv"))
    assert "test_000.nii.gz" in cli.fails(*words, code=Code.GEOMETRY_MISMATCH)
    assert not plan.with_suffix(".csv").exists()
    fails_until_fixed(cli, data, scans, recipe, Code.GEOMETRY_MISMATCH, label)


def test_a_truncated_gzip(cli: CommandLine, data: Path, scans: Path, trained: Path, recipe: Path) -> None:
    for folder in ("imagesTr", "imagesUn", "imagesTs", "labelsTs"):
        cut(first(data, folder))
    out = recipe.parent / "out"
    words: tuple[object, ...]
    code, said, _ = cli("check", data)
    assert code == 2 and said.count("truncated") == 3
    damaged = Code.SCAN_DAMAGED
    assert f"{first(data, 'imagesTr')}: " in cli.fails("plan", data, "--out", out / "plan.yaml", code=damaged)
    words = ("predict", trained, data / "imagesTs", "--out", out)
    assert f"{first(data, 'imagesTs')}: " in cli.fails(*words, code=damaged)
    assert entries(out) == {"cases.jsonl", "classes.json", "manifest.json", "test_001.nii.gz"}
    manifest = json.loads((out / "manifest.json").read_text())
    assert [*manifest["failures"]] == ["test_000"] and [case["case"] for case in manifest["cases"]] == ["test_001"]
    words = ("evaluate", trained / "predictions", "--reference", data / "labelsTs", "--out", out / "scores.csv")
    assert f"{first(data, 'labelsTs')}: " in cli.fails(*words, code=damaged)
    code, said, error = cli("rank", trained, "--data", data)
    assert code == 2 and "unlabeled_001" in said and error.count(f"[{damaged}]") == 2
    words = ("export", "onnx", trained, "--out", out / "onnx", "--check", first(data, "imagesTs"))
    assert f"{first(data, 'imagesTs')}: " in cli.fails(*words, code=damaged)
    assert entries(out) == {"cases.jsonl", "classes.json", "manifest.json", "test_001.nii.gz"}
    fails_until_fixed(cli, data, scans, recipe, damaged, first(data, "imagesTr"))
    cli.works("predict", trained, data / "imagesTs", "--out", out)
    assert {"test_000.nii.gz", "test_001.nii.gz"} <= entries(out)


def test_a_wrong_path_keeps_the_scores(cli: CommandLine, scans: Path, trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    cli.works("evaluate", run / "predictions", "--reference", scans / "labelsTs")
    before = contents(run)
    cli.fails("predict", run, run / "recipe.yaml", code=Code.NOT_A_SCAN)
    assert contents(run) == before


def test_label_maps_are_never_written_among_scans(cli: CommandLine, data: Path, trained: Path) -> None:
    before = contents(data)
    for folder in ("imagesTs", "imagesUn"):
        words = ("predict", trained, data / folder, "--out", data / "labelsTr" / ".." / folder)
        cli.fails(*words, code=Code.UNSAFE_TARGET)
    assert contents(data) == before


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"folds": [1, 2]}', '{"folds": [{"fold": 0}]}'])
@pytest.mark.slow
def test_a_damaged_list_of_folds(cli: CommandLine, scans: Path, tmp_path: Path, recipe: Path, content: str) -> None:
    run = tmp_path / "run"
    cli.works("train", recipe, "--data", scans, "--out", run, "--folds", "2")
    saved = read_json(run / "folds.json")
    (run / "folds.json").write_text(content)
    for words in (
        ("report", run),
        ("predict", run, scans / "imagesTs"),
        ("info", run),
        ("train", recipe, "--data", scans, "--out", run, "--folds", "2", "--resume"),
    ):
        assert f"{run / 'folds.json'}: damaged or edited" in cli.fails(*words, code=Code.DAMAGED_FILE)
    assert not {"report.html", "predictions"} & entries(run)
    (run / "folds.json").write_text(json.dumps({"folds": saved["folds"]}))
    assert "2 folds" in Path(cli.works("report", run).strip()).read_text()


@pytest.mark.parametrize("rename", [lambda name: f"Ärztin Nr {name}", lambda name: f"日本 (1) [x] %d {{}} {name}"])
@pytest.mark.slow
def test_names_with_spaces_and_other_letters(
    cli: CommandLine, scans: Path, tmp_path: Path, rename: Callable[[str], str]
) -> None:
    place = tmp_path / rename("Ort")
    data = Path(shutil.copytree(scans, place / rename("Daten")))
    for path in data.glob("*/*.nii.gz"):
        path.rename(path.with_name(rename(path.name)))
    run, page, plan = place / rename("Lauf"), place / rename("x.html"), place / rename("plan.yaml")
    assert "0 findings" in cli.works("check", data, "--out", page)
    assert page.read_text().startswith("<!doctype html>")
    cli.works("plan", data, "--out", plan, "--minutes", "30")
    cli.works("prepare", data, "--out", place / rename("Speicher"), "--recipe", plan)
    cli.works("train", plan, "--data", place / rename("Speicher"), "--out", run, *FEW_STEPS)
    cli.works("predict", run, data / "imagesTs", "--probabilities", "--out", run / "predictions")
    name = rename("test_000")
    assert {f"{name}.nii.gz", f"{name}_probabilities.nii.gz"} <= entries(run / "predictions")
    cli.works("evaluate", run / "predictions", "--reference", data / "labelsTs")
    assert name in Path(cli.works("report", run).removesuffix("\n")).read_text()
    assert rename("unlabeled_003") in cli.works("rank", run, "--out", place / rename("rank.csv"))
    cli.works("predict", run, data / "imagesUn", "--out", place / rename("maps"))
    words = ("export", "nnunet", run, "--data", data, "--predictions", place / rename("maps"))
    cli.works(*words, "--out", place / "Dataset501_X")
    assert f"{rename('unlabeled_003')}.nii.gz" in entries(place / "Dataset501_X" / "labelsTr")
    cli.works("export", "weights", run, "--out", place / rename("x.safetensors"))
    cli.works("export", "monai", run, "--out", place / rename("monai"))


@pytest.mark.parametrize("folds", ["0", "2"])
def test_a_failed_start_does_not_block_its_folder(
    cli: CommandLine, scans: Path, data: Path, recipe: Path, tmp_path: Path, folds: str
) -> None:
    """No run was started with the store of the failed attempt."""
    cut(first(data, "imagesUn"))
    run = tmp_path / "run"
    cli.fails("train", recipe, "--data", data, "--out", run, "--folds", folds)
    assert entries(run) >= {".run-lock"} and list((run / "store" / "cases").glob("*.json"))
    cli.works("train", recipe, "--data", scans, "--out", run, "--folds", folds, *FEW_STEPS)
    assert json.loads((run / "store" / "manifest.json").read_text())["root"] == str(scans.resolve())


def test_a_started_training_keeps_its_store(
    cli: CommandLine, scans: Path, data: Path, recipe: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    cli.works("train", recipe, "--data", scans, "--out", run, *FEW_STEPS)
    before = contents(run / "store")
    cli.fails("train", recipe, "--data", data, "--out", run)
    assert contents(run / "store") == before


def test_info_of_a_single_scan(cli: CommandLine, scans: Path) -> None:
    path = first(scans, "imagesTr")
    assert "single scan" in cli.fails("info", path, code=Code.NOT_A_FOLDER)
