import fcntl
import json
import logging
import math
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data import dataset as module
from graftseg.data.dataset import Dataset
from graftseg.data.intensity import IntensitySettings
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import PrepareSettings, _to_float16, prepare, prepare_image
from graftseg.data.scans import Scan, read_case, write_label, write_scan
from graftseg.data.store import CASES, LOCK, MANIFEST, Store, open_store
from user_errors import user_error

SHAPE = (6, 5, 4)
VOLUMES = PrepareSettings(dimensions=3)
SLICES = PrepareSettings(dimensions=2)
RAW = IntensitySettings(rule="none")
Array = npt.NDArray[np.generic]


def geometry(shape: tuple[int, ...] = SHAPE, *, right: float = 1.0, origin: float = 0.0) -> Geometry:
    affine = ((right, 0.0, 0.0, origin), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 2.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    return Geometry(shape, affine)


def image(seed: int, shape: tuple[int, ...] = SHAPE) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(100, 20, shape).astype(np.float32)


def label(*values: int) -> Array:
    array = np.zeros(SHAPE, dtype=np.uint8)
    array.flat[: len(values)] = values
    return array


def put(root: Path, name: str, array: Array, where: Geometry | None = None) -> Path:
    path = root / f"{name}.nii"
    path.parent.mkdir(parents=True, exist_ok=True)
    (write_label if name.startswith("labels") else write_scan)(path, array, where or geometry(array.shape[-3:]))
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for name in ("a", "b"):
        put(data, f"imagesTr/{name}", image(ord(name)))
        put(data, f"labelsTr/{name}", label(1, 1, 2))
    put(data, "imagesUn/u", image(7))
    put(data, "imagesTs/t", image(8))
    put(data, "labelsTs/t", label(2, 1))
    put(data, "imagesTs/s", image(9))
    return data


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "store"


def make(root: Path, out: Path, settings: PrepareSettings = VOLUMES) -> Store:
    return prepare(read_layout(root), out, settings, workers=1)


def times(out: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file() and path.name != LOCK}


def changed(out: Path, before: dict[str, int]) -> list[str]:
    """Return the names of case files that were written or removed."""
    now = times(out)
    paths = {path for path in {*now, *before} if now.get(path) != before.get(path)}
    return sorted(Path(path).name for path in paths if CASES in Path(path).parts)


def tally(caplog: pytest.LogCaptureFixture) -> str:
    return caplog.records[-1].getMessage().split(": ", 1)[1]


def test_a_store_of_volumes(root: Path, out: Path) -> None:
    store = make(root, out)
    splits = "labeled", "labeled", "unlabeled", "test", "test"
    assert [(case.name, case.split) for case in store.cases] == list(zip("abust", splits, strict=True))
    assert store.classes == ("background", "class 1", "class 2")
    assert (store.channels, store.dimensions) == (1, 3)
    first, unlabeled, unknown = store.cases[0], store.cases[2], store.cases[3]
    expected = (image(ord("a")) - image(ord("a")).mean()) / image(ord("a")).std()
    np.testing.assert_allclose(store.image(first)[0], expected, atol=2e-3)
    np.testing.assert_array_equal(store.label(first), label(1, 1, 2))
    assert unlabeled.label is None
    assert unknown.label is None
    assert first.geometry == geometry()
    assert set(first.sources) == {"imagesTr/a.nii", "labelsTr/a.nii"}
    assert str(out.parent / "data") == store.root
    store.verify()
    assert store == open_store(out)


def test_class_names_come_from_the_list(root: Path, out: Path) -> None:
    (root / "dataset.json").write_text('{"labels": {"background": 0, "liver": 1, "tumour": 2, "cyst": 3}}')
    assert make(root, out).classes == ("background", "liver", "tumour", "cyst")


def test_orientation_and_spacing(root: Path, out: Path) -> None:
    put(root, "imagesTr/a", image(1), geometry(right=-1.0))
    put(root, "labelsTr/a", label(1, 2), geometry(right=-1.0))
    settings = PrepareSettings(dimensions=3, spacing=(None, None, 1.0), intensity=RAW)
    store = make(root, out, settings)
    assert PrepareSettings.model_validate(store.settings) == settings
    case = store.cases[0]
    assert case.shape == (6, 5, 8)
    np.testing.assert_array_equal(store.label(case)[..., ::2], label(1, 2)[::-1])
    assert case.grid.flips == (True, False, False)
    slices = make(root, out, PrepareSettings(dimensions=2, spacing=(0.5, 1.0)))
    assert slices.cases[0].shape == (12, 5, 4), "volumes stay whole"


def test_two_dimensional_scans(tmp_path: Path, out: Path) -> None:
    flat = geometry((6, 5))
    put(tmp_path, "imagesTr/a", image(1, (6, 5)), flat)
    put(tmp_path, "labelsTr/a", label(1)[..., 0], flat)
    store = make(tmp_path, out, SLICES)
    assert store.cases[0].shape == (6, 5)
    assert store.image(store.cases[0]).shape == (1, 6, 5)
    with user_error(Code.RECIPE_MISMATCH, "a.nii", "2-D"):
        make(tmp_path, tmp_path / "other", VOLUMES)


def test_channels_are_normalized_separately() -> None:
    array = np.stack([image(1), 5 * image(2) + 1000])
    prepared, grid = prepare_image(Scan(array, geometry()), VOLUMES)
    assert prepared.dtype == np.float32
    assert prepared.shape == (2, *grid.prepared_shape)
    np.testing.assert_allclose(prepared.mean(axis=(1, 2, 3)), [0, 0], atol=1e-5)
    np.testing.assert_allclose(prepared.std(axis=(1, 2, 3)), [1, 1], rtol=1e-5)


def test_unchanged_data_writes_nothing_even_if_touched(root: Path, out: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first = make(root, out)
    assert tally(caplog) == "5 cases prepared, 0 reused, 0 files removed"
    before = times(out)
    os.utime(root / "imagesTr/a.nii", ns=(1, 1))
    assert make(root, out) == first
    assert times(out) == before
    assert tally(caplog) == "0 cases prepared, 5 reused, 0 files removed"


def test_a_changed_source_is_noticed(root: Path, out: Path) -> None:
    identity = make(root, out).identity
    before = times(out)
    size = (root / "labelsTr/b.nii").stat().st_size
    assert put(root, "labelsTr/b", label(1, 2, 2)).stat().st_size == size
    store = make(root, out)
    assert changed(out, before) == ["b.image.npy", "b.json", "b.label.npy"]
    np.testing.assert_array_equal(store.label(store.cases[1]), label(1, 2, 2))
    assert store.identity != identity
    store.verify()


def test_a_changed_setting_prepares_every_case_again(root: Path, out: Path) -> None:
    make(root, out)
    before = times(out)
    settings = PrepareSettings(dimensions=3, intensity=IntensitySettings(rule="minmax"))
    store = make(root, out, settings)
    assert len(changed(out, before)) == len([path for path in before if CASES in path])
    assert store.image(store.cases[0]).max() == 1
    assert store.settings["intensity"]["rule"] == "minmax"


def test_added_and_removed_cases(root: Path, out: Path) -> None:
    make(root, out)
    before = times(out)
    (root / "imagesUn/u.nii").unlink()
    (root / "labelsTs/t.nii").unlink()
    (root / "labelsTr/b.nii").unlink()
    put(root, "imagesUn/v", image(17))
    (out / CASES / ".partial-x-u.image.npy").touch()
    store = make(root, out)
    assert [case.name for case in store.cases] == ["a", "b", "v", "s", "t"]
    assert [case.name for case in store.of("unlabeled")] == ["b", "v"]
    files = "b.image.npy b.json b.label.npy t.image.npy t.json t.label.npy u.image.npy u.json v.image.npy v.json"
    assert changed(out, before) == files.split()
    assert [path.name for path in (out / CASES).glob("*.label.npy")] == ["a.label.npy"]


def test_the_same_files_in_another_split(root: Path, out: Path) -> None:
    make(root, out)
    dataset = read_layout(root)
    cases = tuple(replace(case, split="unlabeled") if case.name == "s" else case for case in dataset.cases)
    store = prepare(replace(dataset, cases=cases), out, VOLUMES)
    assert [case.name for case in store.of("unlabeled")] == ["u", "s"]


def stop_at(monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Interrupt the program when a scan is read. Return a list that collects the names of the scans read."""
    reads: list[str] = []

    def read(paths: tuple[Path, ...], named: int | None) -> Scan:
        reads.append(paths[0].name)
        if paths[0].name == name:
            raise KeyboardInterrupt
        return read_case(paths, named)

    monkeypatch.setattr(module, "read_case", read)
    return reads


def test_an_interrupted_call_is_resumed(root: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at(monkeypatch, "b.nii")
    with pytest.raises(KeyboardInterrupt):
        make(root, out)
    with user_error(Code.NOT_A_STORE, out, "unfinished"):
        open_store(out)
    before = times(out)
    reads = stop_at(monkeypatch, "nothing")
    store = make(root, out)
    assert reads[0] == "b.nii"
    assert not {"a.image.npy", "a.label.npy", "a.json"} & set(changed(out, before))
    store.verify()


def test_an_interrupted_update_is_unfinished(root: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(root, out)
    put(root, "imagesTr/a", image(50))
    put(root, "imagesTr/b", image(51))
    stop_at(monkeypatch, "b.nii")
    with pytest.raises(KeyboardInterrupt):
        make(root, out)
    with user_error(Code.NOT_A_STORE, out, "unfinished"):
        open_store(out)


@pytest.mark.parametrize("name", ["a.image.npy", "a.label.npy", "a.json"])
def test_a_damaged_file_is_prepared_again(root: Path, out: Path, name: str) -> None:
    store = make(root, out)
    (out / CASES / name).write_bytes(b"garbage")
    assert make(root, out) == store
    store.verify()


def test_a_changed_byte_is_found_and_fixed_as_the_error_says(root: Path, out: Path) -> None:
    store = make(root, out)
    path = out / CASES / "u.image.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with user_error(Code.DAMAGED_FILE, path, "delete it and run prepare again"):
        open_store(out).verify()
    path.unlink()
    make(root, out).verify()
    assert make(root, out) == store


def test_labels_of_unlabeled_cases_are_never_opened(root: Path, out: Path) -> None:
    (root / "labelsUn").mkdir()
    (root / "labelsUn/u.nii").write_bytes(b"garbage")
    (root / "labelsUn").chmod(0)
    try:
        store = make(root, out)
    finally:
        (root / "labelsUn").chmod(0o755)
    assert store.of("unlabeled")[0].label is None
    assert not any("labelsUn" in source for case in store.cases for source in case.sources)


def test_the_root_is_the_only_absolute_path_written(root: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root.parent)
    make(Path("data"), out)
    written = "".join(path.read_text() for path in out.rglob("*.json"))
    assert set(re.findall(r'"[^"]*' + re.escape(str(root.parent)) + r'[^"]*"', written)) == {f'"{root.resolve()}"'}
    before = times(out)
    assert make(root, out).root == str(root) and changed(out, before) == []


@pytest.mark.parametrize(
    ("spoil", "where", "keyword"),
    [
        (lambda root: put(root, "labelsTr/x", label(1)), "labelsTr/x.nii", "image"),
        (lambda root: put(root, "imagesUn/a", image(3)), "a", "2 cases"),
        (lambda root: (root / "imagesTr/b.nii").write_bytes(b"x"), "imagesTr/b.nii", ""),
        (lambda root: (root / "labelsTr/b.nii").write_bytes(b"x"), "labelsTr/b.nii", ""),
        (
            lambda root: put(root, "labelsTr/b", label(1), geometry(origin=2.5)),
            "labelsTr/b.nii",
            "origin 2.50 mm apart",
        ),
        (lambda root: put(root, "labelsTr/b", label(255)), "b.nii", "0 and 255"),
        (lambda root: put(root, "labelsTr/b", label(1, 255)), "b.nii", "255 is above 254"),
        (
            lambda root: [put(root, f"labels{name}", label()) for name in ("Tr/a", "Tr/b", "Ts/t")],
            "data",
            "empty",
        ),
        (lambda root: put(root, "labelsTs/t", label(9)), "t", "value 9"),
        (
            lambda root: put(root, "imagesUn/w", np.stack([image(1)] * 2)),
            "w.nii",
            "channels",
        ),
    ],
)
def test_invalid_data_is_refused(
    root: Path, out: Path, spoil: Callable[[Path], object], where: str, keyword: str
) -> None:
    spoil(root)
    with pytest.raises(UserError) as caught:
        make(root, out)
    assert where in caught.value.where and keyword in caught.value.finding
    assert not (out / MANIFEST).exists()


@pytest.mark.parametrize(
    ("labels", "keyword"),
    [
        ({"background": 0, "liver": 1}, "value 2"),
        ({"background": 0, "liver": 1, "cyst": 3}, "2 is missing"),
        ({str(value): f"c{value}" for value in range(256)}, "up to 255"),
    ],
)
def test_invalid_class_lists_are_refused(root: Path, out: Path, labels: dict[str, Any], keyword: str) -> None:
    (root / "dataset.json").write_text(json.dumps({"labels": labels}))
    with user_error(Code.LABEL_INVALID, keyword=keyword):
        make(root, out)


def test_a_shorter_class_list_is_noticed_in_reused_cases(root: Path, out: Path) -> None:
    make(root, out)
    (root / "dataset.json").write_text('{"labels": {"background": 0, "liver": 1}}')
    with user_error(Code.LABEL_INVALID, "a.nii", "value 2"):
        make(root, out)


def test_axes_that_differ(root: Path, out: Path) -> None:
    put(root, "imagesUn/w", image(1, (6, 5)), geometry((6, 5)))
    with user_error(Code.DATASET_INVALID, "w.nii", "axes"):
        make(root, out, SLICES)


def test_intensities_beyond_sixteen_bits(root: Path, out: Path) -> None:
    put(root, "imagesUn/u", 1000 * image(1))
    with user_error(Code.DATASET_INVALID, "u.nii", "65504"):
        make(root, out, PrepareSettings(dimensions=3, intensity=RAW))
    make(root, out)


def test_refused_targets(root: Path, out: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with user_error(Code.TARGET_EXISTS, file, "file"):
        make(root, file)
    with user_error(Code.TARGET_EXISTS, root, "not empty"):
        make(root, root)
    with user_error(Code.WRITE_FAILED, file / "below"):
        make(root, file / "below")
    make(root, out)
    other = tmp_path / "other"
    root.rename(other)
    with user_error(Code.TARGET_EXISTS, out, f"{root}, not from {other}"):
        make(other, out)
    (out / MANIFEST).unlink()
    with user_error(Code.TARGET_EXISTS, out, f"{root}, not from {other}"):
        make(other, out)


def test_a_second_writer_is_refused(root: Path, out: Path) -> None:
    out.mkdir()
    with (out / LOCK).open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with user_error(Code.FOLDER_LOCKED, out, "another prepare"):
            make(root, out)
    make(root, out)


@pytest.mark.parametrize("name", ["../a", "a/b", "a\\b", ".a", "a\udcff"])
def test_case_names_that_are_not_file_names(root: Path, out: Path, name: str) -> None:
    case = Case(name, (root / "imagesTr/a.nii",), root / "labelsTr/a.nii", "labeled")
    with user_error(Code.CASE_NAME, name, "file name"):
        prepare(Dataset(root, "msd", (case,), {}), out, VOLUMES)
    assert not out.exists()


def test_the_rounding_error_of_a_store() -> None:
    """The error in [2^e, 2^(e+1)) is uniform within half a unit in the last place, which is 2^(e-10)."""
    normal = NormalDist()
    quantiles = np.array([normal.inv_cdf((i + 0.5) / 10_000) for i in range(10_000)], np.float32)
    share = {e: 2 * (normal.cdf(2.0 ** (e + 1)) - normal.cdf(2.0**e)) for e in range(-14, 3)}
    expected = math.sqrt(sum(part * 4.0 ** (e - 10) / 12 for e, part in share.items()))
    error = _to_float16(quantiles, Path()).astype(np.float64) - quantiles
    assert np.sqrt(np.mean(error**2)) == pytest.approx(expected, rel=0.03)
    assert expected == pytest.approx(2.08e-4, rel=0.01)
