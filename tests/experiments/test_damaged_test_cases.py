"""Test cases that could not be scored are found before anything is trained: by a sweep, its dry run, and by seeds."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tiny

from graftseg import api
from graftseg.core.errors import UserError
from graftseg.core.files import sha256_of
from graftseg.data.store import CASES, Store
from graftseg.experiments.seeds import train_seeds
from sweep_fakes import Sweeper, refuse

RECIPE = tiny.tiny_recipe(stages=[{"method": "supervised", "steps": 2}])


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def altered(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"\1")


Damage = Callable[[Path], None]
HASH = r"damaged or edited \(checksum mismatch\); delete it and run prepare again"
MISSING = "the file is missing; run prepare again"
DAMAGES = [
    ("label", cut, HASH),
    ("label", altered, HASH),
    ("label", Path.unlink, MISSING),
    ("image", cut, r"damaged or edited \(.*\); delete it and run prepare again"),
    ("image", altered, HASH),
    ("image", Path.unlink, MISSING),
]


@pytest.fixture
def copied(store: Store, tmp_path: Path) -> Store:
    return replace(store, path=Path(shutil.copytree(store.path, tmp_path / "copied")))


def file_of(store: Store, kind: str) -> Path:
    """The file of the last test case."""
    case = store.of("test")[-1]
    return store.path / CASES / (case.image if kind == "image" else str(case.label))


def write_label(store: Store, label: npt.NDArray[Any]) -> Path:
    """Another label map of the last test case, which the manifest vouches for."""
    file = file_of(store, "label")
    np.save(file, label)
    content = json.loads((store.path / "manifest.json").read_text())
    (case,) = (case for case in content["cases"] if file.name in case["sha256"])
    case["sha256"][file.name] = sha256_of(file)
    (store.path / "manifest.json").write_text(json.dumps(content))
    return file


@pytest.mark.parametrize(("kind", "damage", "finding"), DAMAGES)
def test_a_damaged_test_case_is_found_before_a_training(
    sweeper: Sweeper,
    copied: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    damage: Damage,
    finding: str,
) -> None:
    file = file_of(copied, kind)
    damage(file)
    monkeypatch.setattr(api, "train", refuse)
    for dry_run in (True, False):
        with pytest.raises(UserError, match=f"{file.name}: {finding}"):
            sweeper("masks", "la-4/bcp", data=copied.path, dry_run=dry_run)
    assert not sweeper.runs.exists() and not sweeper.results.exists()
    with pytest.raises(UserError, match=f"{file.name}: {finding}"):
        train_seeds(RECIPE, copied.path, tmp_path / "seeds", 2, device="cpu")
    assert not (tmp_path / "seeds").exists()


def test_rows_of_another_store_go_on(sweeper: Sweeper, copied: Store) -> None:
    file = file_of(copied, "label")
    file.unlink()
    rows, stores = ("la-4/bcp", "acdc-3/bcp"), {"la": copied.path, "acdc": sweeper.store.path}
    why = f"{file}: the file is missing; run prepare again"
    foreseen = sweeper("directions", *rows, data=stores, dry_run=True)
    assert foreseen.failures == {"la-4/bcp, seed 0": why}
    assert f"la-4/bcp, seed 0: to be trained, but would fail: {why}" in sweeper.told
    swept = sweeper("directions", *rows, data=stores)
    assert (swept.recorded, swept.failures) == (("acdc-3/bcp, seed 0",), foreseen.failures)
    assert sweeper.told[0] == f"la-4/bcp, seed 0: failed: {why}"
    assert not (sweeper.runs / "la-4").exists()
    with pytest.raises(UserError, match="the file is missing; run prepare again"):
        sweeper("directions", *rows, data=stores)


@pytest.mark.parametrize(
    ("label", "finding"),
    [
        (np.zeros((3, 5), np.uint8), r".*uint8 \(3, 5\) instead of uint8 \(16, 16\)\)"),
        (np.zeros((16, 16), np.int16), r".*int16 \(16, 16\) instead of uint8 \(16, 16\)\)"),
        (np.full((16, 16), 7, np.uint8), r"value 7 in 256 voxels is none of the classes \[1, 2, 3\]"),
    ],
)
def test_labels_that_no_test_can_take_are_found_before_a_training(
    copied: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: npt.NDArray[Any], finding: str
) -> None:
    file = write_label(copied, label)
    monkeypatch.setattr(api, "train", refuse)
    with pytest.raises(UserError, match=f"{file.name}: {finding}; "):
        train_seeds(RECIPE, copied.path, tmp_path / "seeds", 1, device="cpu")


def test_a_test_case_without_a_label_is_found_before_a_training(
    copied: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *others, last = copied.cases
    assert last.split == "test"
    replace(copied, cases=(*others, replace(last, label=None))).save()
    monkeypatch.setattr(api, "train", refuse)
    with pytest.raises(UserError, match=r"copied: test case test_001 has no label map \(1 of 2 have none\); add the "):
        train_seeds(RECIPE, copied.path, tmp_path / "seeds", 1, device="cpu")


def test_a_sweep_needs_a_store_that_can_be_tested_on(
    sweeper: Sweeper, copied: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace(copied, cases=tuple(case for case in copied.cases if case.split != "test")).save()
    monkeypatch.setattr(api, "train", refuse)
    with pytest.raises(UserError, match="no labeled test case; name a store whose test cases can be scored"):
        sweeper("masks", "la-4/bcp", data=copied.path)


def test_what_was_tested_before_needs_no_test_cases(sweeper: Sweeper, copied: Store, tmp_path: Path) -> None:
    before = train_seeds(RECIPE, copied.path, tmp_path / "seeds", 1, device="cpu")
    sweeper("masks", "la-4/bcp", data=copied.path)
    shutil.rmtree(sweeper.results)
    file_of(copied, "label").unlink()
    assert train_seeds(RECIPE, copied.path, tmp_path / "seeds", 1, device="cpu") == before
    assert sweeper("masks", "la-4/bcp", data=copied.path).recorded == ("la-4/bcp, seed 0",)
    with pytest.raises(UserError, match=r"test_001\.label\.npy: the file is missing"):
        sweeper("masks", "la-4/bcp", data=copied.path, seeds=2)
