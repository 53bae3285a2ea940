"""LA: synthetic volumes in the published layout."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from graftseg import api
from graftseg.cli.app import app
from graftseg.core.errors import Code
from graftseg.data.benchmarks import BENCHMARKS, read_benchmark
from graftseg.data.benchmarks.case_lists import PUBLISHED, read_list
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.recipes.recipe import load_recipe
from user_errors import user_error

TRAIN, TEST = ["ZED", "ALF", "MID"], ["TWO", "ONE"]


def volume(number: int) -> NDArray[np.float32]:
    return np.random.default_rng(number).normal(size=(4, 5, 3)).astype(np.float32)


def write(path: Path, **arrays: NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip")


def scan(root: Path, name: str) -> Path:
    return root / "2018LA_Seg_Training Set" / name / "mri_norm2.h5"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "LA"
    for number, name in enumerate(TRAIN + TEST):
        image = volume(number)
        write(scan(folder, name), image=image, label=(image > 0).astype(np.uint8))
    (folder / "train.list").write_text("\n".join(TRAIN) + "\n")
    (folder / "test.list").write_text("".join(f"{name}/mri_norm2.h5\r\n" for name in TEST) + "\n")
    return folder


def test_lists_give_splits_and_order(root: Path) -> None:
    dataset = read_layout(root)
    assert (dataset.layout, dataset.classes) == ("la", {0: "background", 1: "left atrium"})
    assert [(case.name, case.split) for case in dataset.cases] == [
        ("ZED", "labeled"),
        ("ALF", "labeled"),
        ("MID", "labeled"),
        ("TWO", "test"),
        ("ONE", "test"),
    ]
    assert dataset.problems == ()


def test_the_store_contains_the_original_voxels(root: Path, tmp_path: Path) -> None:
    store = api.prepare(root, tmp_path / "store", benchmark="la")
    assert store.classes == ("background", "left atrium")
    assert [case.name for case in store.of("labeled")] == TRAIN
    for number, case in enumerate(store.cases):
        np.testing.assert_array_equal(store.image(case), volume(number)[None].astype(np.float16))
        np.testing.assert_array_equal(store.label(case), volume(number) > 0)
        assert case.geometry.spacing == (1.0, 1.0, 1.0)
    assert api.info(tmp_path / "store")["cases"] == {"labeled": 3, "unlabeled": 0, "validation": 0, "test": 2}


def test_a_hidden_label_is_not_read(root: Path, tmp_path: Path) -> None:
    with h5py.File(scan(root, "MID"), "a") as file:
        del file["label"]
    dataset = read_layout(root).for_training(2, 0)
    store = prepare(dataset, tmp_path / "store", load_recipe("default-3d/bcp").data)
    assert [(case.name, case.split, case.label) for case in store.cases][2] == ("MID", "unlabeled", None)


@pytest.mark.parametrize("place", [".", "..", "2018LA_Seg_Training Set"])
def test_parent_and_case_folders_are_accepted(root: Path, place: str) -> None:
    dataset = read_benchmark("la", root / place)
    assert [case.name for case in dataset.cases] == TRAIN + TEST


def test_lists_in_a_subfolder(root: Path) -> None:
    (root / "data_lists").mkdir()
    for name in ("train.list", "test.list"):
        (root / name).rename(root / "data_lists" / name)
    assert [case.name for case in read_layout(root).cases] == TRAIN + TEST
    (root / "more_lists").mkdir()
    (root / "more_lists" / "train.list").write_text("ZED\n")
    with user_error(Code.BENCHMARK_MISMATCH, keyword="data_lists"):
        read_layout(root)


def test_published_lists_replace_missing_lists(root: Path) -> None:
    first, second = read_list(PUBLISHED / "la-train.list")[:2]
    for old, new in zip(TRAIN, (first, second), strict=False):
        scan(root, old).parent.rename(scan(root, new).parent)
    (root / "train.list").unlink()
    dataset = read_layout(root)
    assert [case.name for case in dataset.of("labeled")] == [first, second]
    assert len(dataset.problems) == 78
    assert "1D7CUD1955YZPGK8XHJX is in the published list" in dataset.problems[0].finding


def test_published_lists_are_complete() -> None:
    train, test = (read_list(PUBLISHED / f"la-{name}.list") for name in ("train", "test"))
    assert (len(train), len(test), len(set(train + test))) == (80, 20, 100)
    assert train[:4] == ["06SR5RBREL16DQ6M8LWS", "0RZDK210BSMWAA6467LU", "1D7CUD1955YZPGK8XHJX", "1GU15S0GJ6PFNARO469W"]
    assert test[-1] == "ZQPMJ4XEC5A4BISD45P1"


def test_a_missing_listed_case_is_a_problem(root: Path, tmp_path: Path) -> None:
    scan(root, "ALF").unlink()
    with user_error(Code.FILE_MISSING, "train.list", "ALF/mri_norm2.h5"):
        api.prepare(root, tmp_path / "store")
    (error,) = [finding for finding in api.check(root) if finding.severity == "error"]
    assert "ALF/mri_norm2.h5" in error.what
    assert not (tmp_path / "store").exists()


def test_a_case_in_both_lists_is_a_problem(root: Path) -> None:
    (root / "test.list").write_text("ONE\nZED\nONE\n")
    problems = read_layout(root).problems
    assert [(problem.code, problem.where) for problem in problems] == [(Code.CASE_DUPLICATE, str(root))] * 2
    assert "ZED" in problems[0].finding and "ONE" in problems[1].finding


def test_an_empty_list_and_a_list_of_missing_cases(root: Path) -> None:
    (root / "train.list").write_text("\n\n")
    with user_error(Code.BENCHMARK_MISMATCH, "train.list", "empty"):
        read_layout(root)
    (root / "train.list").write_text("NOBODY\n")
    with user_error(Code.FILE_MISSING, keyword="NOBODY/mri_norm2.h5"):
        read_layout(root)
    (root / "train.list").write_bytes(b"\xff\xfe")
    with user_error(Code.READ_FAILED, keyword="cannot be read"):
        read_layout(root)


def test_a_list_with_windows_line_ends(root: Path) -> None:
    names = [case.name for case in read_layout(root).of("labeled")]
    (root / "train.list").write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(names).encode() + b"\r\n")
    assert [case.name for case in read_layout(root).of("labeled")] == names


@pytest.mark.parametrize("entry", ["../ONE", "/ONE", "..", "ONE/TWO"])
def test_an_entry_outside_of_the_folder(root: Path, entry: str) -> None:
    (root / "train.list").write_text(f"{entry}\n")
    with user_error(Code.BENCHMARK_MISMATCH, "train.list"):
        read_layout(root)


def test_a_list_that_is_a_broken_link_is_not_replaced_by_the_published_one(root: Path) -> None:
    (root / "train.list").unlink()
    (root / "train.list").symlink_to("train.list")
    with user_error(Code.READ_FAILED, "train.list", "cannot be read"):
        read_layout(root)


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:900])


def without_label(path: Path) -> None:
    write(path, image=volume(0))


def flat(path: Path) -> None:
    write(path, image=volume(0)[0], label=volume(0)[0])


def with_text(path: Path) -> None:
    write(path, image=np.full((2, 2, 2), b"a"), label=np.zeros((2, 2, 2)))


def with_nan(path: Path) -> None:
    write(path, image=np.full((2, 2, 2), np.nan), label=np.zeros((2, 2, 2)))


def with_halves(path: Path) -> None:
    write(path, image=volume(0), label=np.full((4, 5, 3), 0.5))


def with_another_class(path: Path) -> None:
    write(path, image=volume(0), label=np.full((4, 5, 3), 2))


def of_two_sizes(path: Path) -> None:
    write(path, image=volume(0), label=np.zeros((5, 5, 3), np.uint8))


def huge(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("image", (2**20, 2**20, 2**10), "f4", chunks=(16, 16, 16))


@pytest.mark.parametrize(
    ("spoil", "code", "keyword"),
    [
        (damaged, Code.SCAN_DAMAGED, "h5 file"),
        (without_label, Code.BENCHMARK_MISMATCH, "'label'"),
        (flat, Code.BENCHMARK_MISMATCH, "(5, 3)"),
        (with_text, Code.BENCHMARK_MISMATCH, "|S1"),
        (with_nan, Code.SCAN_DAMAGED, "8 of 8 voxels"),
        (with_halves, Code.LABEL_INVALID, "0.5"),
        (with_another_class, Code.LABEL_INVALID, "value 2"),
        (of_two_sizes, Code.GEOMETRY_MISMATCH, "4x5x3"),
        (huge, Code.SCAN_TOO_LARGE, "4503599627370496 bytes"),
    ],
)
def test_invalid_files_are_refused(root: Path, tmp_path: Path, spoil: Any, code: Code, keyword: str) -> None:
    spoil(scan(root, "ALF"))
    with user_error(code, "ALF", keyword):
        api.prepare(root, tmp_path / "store", benchmark="la")
    assert not (tmp_path / "store" / "manifest.json").exists()


def test_a_file_that_vanishes_between_listing_and_reading(root: Path) -> None:
    dataset = read_layout(root)
    scan(root, "ZED").unlink()
    with user_error(Code.FILE_MISSING, keyword="does not exist"):
        dataset.reader.image(dataset.cases[0])


def test_h5py_missing_names_the_install_command(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = read_layout(root)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with user_error(Code.PACKAGE_MISSING, keyword="pip install h5py"):
        dataset.reader.image(dataset.cases[0])


@pytest.mark.slow
def test_h5py_is_not_imported_at_the_start() -> None:
    code = "import sys, graftseg.data.benchmarks; sys.exit('h5py' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_wrong_folders_and_names(root: Path, tmp_path: Path) -> None:
    with user_error(Code.UNKNOWN_NAME, "--benchmark brats", "la, acdc, pancreas, pancreas-62"):
        read_benchmark("brats", root)
    with user_error(Code.BENCHMARK_MISMATCH, keyword="benchmark"):
        read_benchmark("acdc", root)
    with user_error(Code.FOLDER_MISSING, keyword="does not exist"):
        read_benchmark("la", tmp_path / "absent")
    with user_error(Code.NOT_A_FOLDER, keyword="file, not a folder"):
        read_benchmark("la", root / "train.list")


def test_the_command_line(root: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    result = CliRunner().invoke(app, ["prepare", str(root.parent), "--benchmark", "la", "--out", str(store)])
    assert result.exit_code == 0
    assert result.stdout == f"{store}: 5 cases, classes background, left atrium\n"
    counts = CliRunner().invoke(app, ["check", str(root)]).stdout.splitlines()[-1]
    assert counts.startswith("3 labeled, 0 unlabeled, 2 test scans;")


def test_two_data_sets_in_one_folder(root: Path) -> None:
    write(root.parent / "LA2" / "2018LA_Seg_Training Set" / "A" / "mri_norm2.h5", image=volume(0))
    for read in (read_layout, lambda folder: read_benchmark("la", folder)):
        with user_error(Code.BENCHMARK_MISMATCH, keyword="LA and LA2"):
            read(root.parent)


def test_overrides_need_a_recipe(root: Path, tmp_path: Path) -> None:
    with user_error(Code.OPTION_INVALID, "--set", "benchmark la"):
        api.prepare(root, tmp_path / "store", overrides=["data.spacing=[1, 1, 1]"])


def test_a_recipe_can_be_planned_and_prepared_for_it(root: Path, tmp_path: Path) -> None:
    assert load_recipe(api.plan(root, tmp_path / "plan.yaml")).data.dimensions in (2, 3)
    store = api.prepare(root, tmp_path / "store", recipe="default-3d/bcp", benchmark="la")
    assert store.settings == load_recipe("default-3d/bcp").data.model_dump(mode="json")


def test_every_benchmark_describes_its_layout() -> None:
    assert {name: benchmark.dimensions for name, benchmark in BENCHMARKS.items()} == {
        "la": 3,
        "acdc": 2,
        "pancreas": 3,
        "pancreas-62": 3,
    }


def test_arrays_of_a_benchmark_have_no_orientation(root: Path, tmp_path: Path) -> None:
    store = prepare(read_layout(root), tmp_path / "store", load_recipe("default-3d/bcp").data)
    assert [case.geometry.is_placed for case in store.cases] == [False] * 5
