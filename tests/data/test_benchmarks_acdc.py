"""Read synthetic volumes and slices in the published layout of ACDC."""

from itertools import chain
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.benchmarks import read_benchmark
from graftseg.data.benchmarks.case_lists import PUBLISHED, read_list
from graftseg.data.layouts import read_layout
from user_errors import user_error

SLICES = {"patient099": 11, "patient038": 2, "patient028": 1, "patient011": 3}
TRAIN = ["patient099_frame01", "patient099_frame02", "patient038_frame01", "patient038_frame02"]
VALIDATION = ["patient028_frame01", "patient028_frame02"]
TEST = ["patient011_frame01", "patient011_frame02"]
NAMES = TRAIN + VALIDATION + TEST


def volume(name: str) -> NDArray[np.float64]:
    """Return a volume ``(slices, rows, columns)``."""
    return np.random.default_rng(NAMES.index(name)).random((SLICES[name[:10]], 4, 5))


def label(name: str) -> NDArray[np.uint8]:
    return (4 * volume(name)).astype(np.uint8)


def write(path: Path, image: NDArray[np.float64], labels: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["image"], file["label"] = image, labels


def write_volume(root: Path, name: str) -> None:
    write(root / "data" / f"{name}.h5", volume(name), label(name))


def write_slices(root: Path, name: str, first: int = 1) -> None:
    for number, (image, labels) in enumerate(zip(volume(name), label(name), strict=True), first):
        write(root / "data" / "slices" / f"{name}_slice_{number}.h5", image, labels)


def slice_entries(names: list[str]) -> list[str]:
    """Return the lines of a list of slices, shuffled within each volume as in the published list."""
    return [
        f"{name}_slice_{n}" for name in names for n in sorted(range(1, SLICES[name[:10]] + 1), key=str, reverse=True)
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "ACDC"
    for name in NAMES:
        write_volume(folder, name)
    for file, names in {"train": TRAIN, "val": VALIDATION, "test": TEST}.items():
        (folder / f"{file}.list").write_text("\n".join(names) + "\n")
    return folder


def only_slices(root: Path) -> None:
    for name in NAMES:
        (root / "data" / f"{name}.h5").unlink()
        write_slices(root, name)


def check_store(data: Path, out: Path) -> None:
    store = api.prepare(data, out)
    assert (store.dimensions, store.classes[1:]) == (2, ("right ventricle", "myocardium", "left ventricle"))
    assert [[case.name for case in store.of(split)] for split in ("labeled", "validation", "test")] == [
        TRAIN,
        VALIDATION,
        TEST,
    ]
    for case in store.cases:
        expected = np.moveaxis(volume(case.name), 0, -1).astype(np.float32).astype(np.float16)
        np.testing.assert_array_equal(store.image(case), expected[None])
        np.testing.assert_array_equal(store.label(case), np.moveaxis(label(case.name), 0, -1))


def test_slices_become_the_last_axis(root: Path, tmp_path: Path) -> None:
    check_store(root, tmp_path / "store")


def test_volumes_are_assembled_from_slices_by_number(root: Path, tmp_path: Path) -> None:
    only_slices(root)
    check_store(root, tmp_path / "store")
    assert [path.stem[-8:] for path in read_layout(root).cases[0].images][8:] == ["_slice_9", "slice_10", "slice_11"]


def test_a_list_of_slices_names_its_volumes_in_order(root: Path, tmp_path: Path) -> None:
    (root / "train.list").unlink()
    (root / "train_slices.list").write_text("\n".join(slice_entries(TRAIN)) + "\n")
    check_store(root, tmp_path / "store")


def test_frames_of_a_patient_are_grouped_and_ordered(root: Path) -> None:
    (root / "train.list").write_text("".join(f"{TRAIN[place]}.h5\n" for place in (1, 2, 0, 3)))
    assert [case.name for case in read_layout(root).of("labeled")] == TRAIN


def test_whole_volumes_are_preferred_to_slices(root: Path) -> None:
    write_slices(root, TRAIN[0])
    assert read_layout(root).cases[0].images == (root / "data" / f"{TRAIN[0]}.h5",)


@pytest.mark.parametrize("place", [".", "..", "data"])
def test_parent_and_data_folders_are_accepted(root: Path, place: str) -> None:
    assert [case.name for case in read_benchmark("acdc", root / place).cases] == NAMES


def test_published_lists_replace_missing_lists(root: Path) -> None:
    for path in root.glob("*.list"):
        path.unlink()
    dataset = read_layout(root)
    assert [case.name for case in dataset.cases] == NAMES
    assert len(dataset.problems) == 200 - len(NAMES)


def test_published_lists_are_complete() -> None:
    train, validation, test = (read_list(PUBLISHED / f"acdc-{name}.list") for name in ("train", "val", "test"))
    assert (len(train), len(validation), len(test)) == (140, 20, 40)
    assert len(set(chain(train, validation, test))) == 200
    patients = [name.partition("_")[0] for name in train[::2]]
    assert train == [f"{patient}_frame0{frame}" for patient in patients for frame in (1, 2)]
    assert patients[:7] == [f"patient{n}" for n in ("099", "038", "050", "100", "058", "021", "049")]


def test_a_missing_slice_is_a_problem(root: Path, tmp_path: Path) -> None:
    only_slices(root)
    (root / "data" / "slices" / f"{TRAIN[0]}_slice_7.h5").unlink()
    (root / "data" / "slices" / f"{TEST[1]}_slice_1.h5").unlink()
    findings = [problem.finding for problem in read_layout(root).problems]
    assert findings == ["slice 7 of the volume is missing", "slice 1 of the volume is missing"]
    with user_error(Code.FILE_MISSING, keyword="slice 7"):
        api.prepare(root, tmp_path / "store")


def test_slices_may_be_counted_from_zero(root: Path, tmp_path: Path) -> None:
    for name in NAMES:
        (root / "data" / f"{name}.h5").unlink()
        write_slices(root, name, first=0)
    check_store(root, tmp_path / "store")


def test_slices_of_two_sizes(root: Path, tmp_path: Path) -> None:
    only_slices(root)
    path = root / "data" / "slices" / f"{TRAIN[2]}_slice_2.h5"
    write(path, np.zeros((3, 5)), np.zeros((3, 5), np.uint8))
    with user_error(Code.BENCHMARK_MISMATCH, "slice_2.h5", "patient038_frame01_slice_1.h5"):
        api.prepare(root, tmp_path / "store")


def test_a_slice_with_two_files(root: Path) -> None:
    only_slices(root)
    slices = root / "data" / "slices"
    (slices / f"{TRAIN[2]}_slice_02.h5").write_bytes((slices / f"{TRAIN[2]}_slice_2.h5").read_bytes())
    (problem,) = read_layout(root).problems
    assert (problem.code, "slice 2" in problem.finding) == (Code.BENCHMARK_MISMATCH, True)


def test_invalid_and_missing_list_entries(root: Path) -> None:
    (root / "val.list").write_text("patient028_frame01\npatient400_frame01\n")
    (problem,) = read_layout(root).problems
    assert (problem.code, problem.where) == (Code.FILE_MISSING, str(root / "val.list"))
    assert "data/patient400_frame01.h5" in problem.finding
    (root / "val.list").write_text("somebody\n")
    with user_error(Code.BENCHMARK_MISMATCH, "val.list", "'somebody'"):
        read_layout(root)


def test_a_volume_in_two_lists_is_a_problem(root: Path) -> None:
    (root / "test.list").write_text("\n".join([*TEST, TRAIN[0]]) + "\n")
    problem = read_layout(root).problems[0]
    assert (problem.code, "patient099_frame01" in problem.finding) == (Code.CASE_DUPLICATE, True)


def test_check_counts_validation_cases(root: Path) -> None:
    assert api.info(root)["cases"] == {"labeled": 4, "unlabeled": 0, "validation": 2, "test": 2}
    assert [finding for finding in api.check(root) if finding.severity == "error"] == []


def test_a_patient_in_two_lists_is_a_problem(root: Path) -> None:
    (root / "test.list").write_text("\n".join([*TEST, "patient038_frame02"]))
    (root / "train.list").write_text("\n".join(TRAIN[:3]))
    (problem,) = read_benchmark("acdc", root).problems
    assert (problem.code, "patient038_frame01 and patient038_frame02" in problem.finding) == (
        Code.BENCHMARK_MISMATCH,
        True,
    )
