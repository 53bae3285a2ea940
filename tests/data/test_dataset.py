"""Readers and validation cases of a data set."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from check_fakes import check

from graftseg.core.types import SPLITS, Case, Geometry, Split
from graftseg.data.dataset import SCAN_FILES, Dataset, ScanFiles
from graftseg.data.prepare import identity_settings, prepare
from graftseg.data.scans import Scan
from graftseg.data.store import open_store

EYE = tuple(tuple(float(value) for value in row) for row in np.eye(4))


@dataclass(frozen=True)
class Numbers:
    """Reader of constant scans. The text of the file is the value of all voxels."""

    offset: int = 0

    def image(self, case: Case) -> Scan:
        value = float(case.images[0].read_text()) + self.offset
        return Scan(np.full((1, 2, 3, 4), value, np.float32), Geometry((2, 3, 4), EYE))

    def label(self, case: Case) -> Scan:
        return Scan(np.ones((2, 3, 4), np.uint8), Geometry((2, 3, 4), EYE))


def made(root: Path, splits: dict[str, Split], reader: Numbers | ScanFiles | None = None) -> Dataset:
    cases = []
    for number, (name, split) in enumerate(splits.items()):
        path = root / f"{name}.txt"
        path.write_text(str(number))
        cases.append(Case(name, (path,), None if split == "unlabeled" else path, split))
    return Dataset(root, "numbers", tuple(cases), {0: "background", 1: "one"}, reader=reader or Numbers())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_splits_are_in_order_of_use() -> None:
    assert SPLITS == ("labeled", "unlabeled", "validation", "test")


def test_scan_files_are_the_default_reader(tmp_path: Path) -> None:
    assert Dataset(tmp_path, "msd", (), {}).reader == SCAN_FILES
    with pytest.raises(ValueError, match="case a has no label"):
        SCAN_FILES.label(Case("a", (tmp_path / "a.nii",), None, "unlabeled"))


def test_a_custom_reader_works_in_prepare_and_check(root: Path, tmp_path: Path) -> None:
    dataset = made(root, {"c": "labeled", "a": "labeled", "b": "unlabeled", "v": "validation", "t": "test"})
    store = prepare(dataset, tmp_path / "store", identity_settings(3))
    assert [(case.name, float(store.image(case)[0, 0, 0, 0])) for case in store.cases] == [
        ("c", 0.0),
        ("a", 1.0),
        ("b", 2.0),
        ("v", 3.0),
        ("t", 4.0),
    ]
    assert [case.name for case in open_store(tmp_path / "store").of("validation")] == ["v"]
    assert store.label(store.of("validation")[0]).tolist() == np.ones((2, 3, 4)).tolist()
    assert [finding for finding in check(dataset) if finding.severity == "error"] == []


def test_the_same_voxels_in_training_and_validation_are_an_error(root: Path) -> None:
    dataset = made(root, {"a": "labeled", "v": "validation"})
    (root / "v.txt").write_text("0")
    errors = [finding for finding in check(dataset) if finding.severity == "error"]
    assert [(error.what, error.where) for error in errors] == [
        ("identical voxels in labeled and validation cases", "a, v")
    ]


def test_another_reader_recreates_the_cases(root: Path, tmp_path: Path) -> None:
    dataset = made(root, {"a": "labeled"})
    first = prepare(dataset, tmp_path / "store", identity_settings(3))
    again = prepare(dataset, tmp_path / "store", identity_settings(3))
    assert again.identity == first.identity
    other = prepare(replace(dataset, reader=Numbers(offset=5)), tmp_path / "store", identity_settings(3))
    assert float(other.image(other.cases[0]).max()) == 5.0
    assert other.identity != first.identity


def test_identity_counts_validation_cases_and_no_test_cases(root: Path, tmp_path: Path) -> None:
    splits: dict[str, Split] = {"a": "labeled", "v": "validation", "t": "test"}
    store = prepare(made(root, splits), tmp_path / "store", identity_settings(3))
    without_test = replace(store, cases=store.cases[:2])
    without_validation = replace(store, cases=(store.cases[0], store.cases[2]))
    assert store.identity == without_test.identity != without_validation.identity


def test_training_keeps_validation_cases_and_drops_test_cases(root: Path) -> None:
    dataset = made(
        root,
        {"a": "labeled", "b": "labeled", "c": "labeled", "u": "unlabeled", "v": "validation", "t": "test"},
    )
    kept = dataset.for_training(1, 1)
    assert [(case.name, case.split, case.label is None) for case in kept.cases] == [
        ("a", "labeled", False),
        ("c", "labeled", False),
        ("b", "unlabeled", True),
        ("u", "unlabeled", True),
        ("v", "validation", False),
    ]
    assert kept.reader == Numbers()


def test_settings_that_change_nothing() -> None:
    settings = identity_settings(2)
    assert settings.model_dump(mode="json") == {
        "dimensions": 2,
        "spacing": None,
        "orientation": None,
        "intensity": {"rule": "none", "low": 0.5, "high": 99.5},
    }
