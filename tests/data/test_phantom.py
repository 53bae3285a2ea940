import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_fakes import check
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from graftseg.core.types import Split
from graftseg.data import phantom as phantom_module
from graftseg.data.layouts import read_layout
from graftseg.data.phantom import CLASSES, SPLITS, Phantom, make_phantom, write_phantoms
from graftseg.data.scans import read_case, read_label

SQUARE, CUBE = (64, 64), (32, 32, 32)


def equal(one: Phantom, two: Phantom) -> bool:
    return np.array_equal(one.image, two.image) and np.array_equal(one.label, two.label)


def sizes(phantom: Phantom) -> list[int]:
    """Return the number of voxels of each class."""
    return [int(np.count_nonzero(phantom.label == value)) for value in CLASSES]


def contrast(phantom: Phantom) -> float:
    """Return the brightness of the core relative to the ring: 3.6 at drift 0 and 1.6 at drift 1."""
    core, ring = (float(np.median(phantom.image[phantom.label == value])) for value in (3, 2))
    return core / ring


@pytest.mark.parametrize("shape", [SQUARE, (16, 20, 12)])
def test_phantoms_depend_only_on_the_arguments(shape: tuple[int, ...]) -> None:
    first = make_phantom(3, "unlabeled", 5, shape, 0.8)
    assert equal(make_phantom(3, "unlabeled", 5, list(shape), 0.8), first)
    others: list[tuple[int, Split, int]] = [
        (4, "unlabeled", 5),
        (3, "test", 5),
        (3, "unlabeled", 6),
        (5, "unlabeled", 3),
    ]
    for arguments in others:
        other = make_phantom(*arguments, shape, 0.8)
        assert not np.array_equal(other.image, first.image)
        assert not np.array_equal(other.label, first.label)


@pytest.mark.parametrize(
    ("seed", "split", "index", "shape", "expected", "mean"),
    [
        (0, "labeled", 0, SQUARE, [3525, 213, 245, 113], 0.29590),
        (1, "unlabeled", 3, SQUARE, [3445, 245, 270, 136], 0.30774),
        (0, "test", 2, (48, 64), [2623, 134, 181, 134], 0.33451),
        (0, "labeled", 0, CUBE, [30701, 930, 969, 168], 0.18309),
    ],
)
def test_phantoms_are_unchanged(
    seed: int, split: Split, index: int, shape: tuple[int, ...], expected: list[int], mean: float
) -> None:
    """The demo recipes were tuned on these scans."""
    phantom = make_phantom(seed, split, index, shape, 0.8)
    assert sizes(phantom) == expected
    assert phantom.image.mean() == pytest.approx(mean, abs=1e-5)


@pytest.mark.parametrize(
    ("shape", "count", "smallest"), [(SQUARE, 200, 50), ((48, 64), 60, 30), (CUBE, 30, 30), ((24, 32, 20), 15, 12)]
)
def test_every_phantom_contains_all_classes(shape: tuple[int, ...], count: int, smallest: int) -> None:
    every = np.array([sizes(make_phantom(1, SPLITS[index % 3], index, shape, 0.5)) for index in range(count)])
    assert every.min() >= smallest
    assert (every.sum(axis=1) == np.prod(shape)).all()
    assert (every[:, 0] > every[:, 1:].sum(axis=1)).all()


@given(st.integers(0, 2**63), st.sampled_from(SPLITS), st.integers(0, 999), st.floats(0, 1))
@settings(deadline=None, max_examples=60)
def test_properties_of_a_slice(seed: int, split: Split, index: int, shift: float) -> None:
    phantom = make_phantom(seed, split, index, SQUARE, shift)
    check_voxels(phantom, SQUARE)
    check_anatomy(phantom, ndimage.generate_binary_structure(2, 2))


@given(st.integers(0, 2**63), st.sampled_from(SPLITS), st.integers(0, 999), st.floats(0, 1))
@settings(deadline=None, max_examples=15)
def test_properties_of_a_volume(seed: int, split: Split, index: int, shift: float) -> None:
    shape = (40, 40, 40)
    phantom = make_phantom(seed, split, index, shape, shift)
    check_voxels(phantom, shape)
    # the thinnest ring is less than two voxels thick, so it is closed at faces but not at edges
    check_anatomy(phantom, ndimage.generate_binary_structure(3, 1))


def check_voxels(phantom: Phantom, shape: tuple[int, ...]) -> None:
    assert phantom.image.shape == phantom.label.shape == shape
    assert phantom.image.dtype == np.float32
    assert phantom.label.dtype == np.uint8
    assert np.isfinite(phantom.image).all()
    assert phantom.image.min() >= 0
    assert phantom.image.max() <= 4
    assert set(phantom.label.ravel().tolist()) == set(CLASSES)


def check_anatomy(phantom: Phantom, neighbours: Any) -> None:
    """Check that the ring surrounds the core, that both are within the scan, and that the crescent touches the ring."""
    label = phantom.label
    assert np.isin(label[ndimage.binary_dilation(label == 3, neighbours)], (2, 3)).all()
    assert (label[ndimage.binary_dilation(label == 1, neighbours)] == 2).any()
    assert not np.pad(np.zeros([n - 2 for n in label.shape]), 1, constant_values=1)[label >= 2].any()
    assert ndimage.label(label >= 2, neighbours)[1] == 1


def drifts(monkeypatch: pytest.MonkeyPatch, split: Split, shift: float, count: int) -> Sequence[float]:
    """Return the drift of the first phantoms without drawing them."""
    seen: list[float] = []
    monkeypatch.setattr(phantom_module, "_draw_anatomy", lambda rng, shape: (np.zeros(shape), np.zeros(shape)))
    monkeypatch.setattr(phantom_module, "_draw_look", lambda rng, label, organs, drift: seen.append(drift))
    for index in range(count):
        make_phantom(0, split, index, (1, 1), shift)
    return seen


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("shift", [0.0, 0.8, 1.0])
def test_the_shift_limits_the_drift_of_labeled_scans(
    monkeypatch: pytest.MonkeyPatch, split: Split, shift: float
) -> None:
    reach = 1 - shift if split == "labeled" else 1.0
    seen = np.array(drifts(monkeypatch, split, shift, 400))
    assert seen.min() >= 0
    assert seen.max() <= reach
    assert seen.mean() == pytest.approx(reach / 2, abs=0.05 * reach)
    assert seen.max() >= 0.98 * reach
    assert seen.min() <= 0.02 * reach


def test_the_shift_changes_the_image_and_not_the_anatomy() -> None:
    looks: dict[tuple[Split, float], list[float]] = {}
    for index in range(24):
        for split in SPLITS[:2]:
            none, full = (make_phantom(0, split, index, SQUARE, shift) for shift in (0.0, 1.0))
            np.testing.assert_array_equal(none.label, full.label)
            assert (split == "unlabeled") == equal(none, full)
            for shift, phantom in ((0.0, none), (1.0, full)):
                looks.setdefault((split, shift), []).append(contrast(phantom))
    # with the full shift, all labeled scans have drift 0; without it, they vary like the unlabeled scans
    assert min(looks["labeled", 1.0]) > 2.2
    assert min(looks["labeled", 0.0]) < 2
    assert np.mean(looks["labeled", 0.0]) == pytest.approx(np.mean(looks["unlabeled", 0.0]), abs=0.4)
    assert np.mean(looks["labeled", 1.0]) > np.mean(looks["unlabeled", 1.0]) + 0.7


@pytest.mark.parametrize("shape", [(24, 20), (16, 14, 12)])
def test_written_phantoms_are_a_valid_data_set(tmp_path: Path, shape: tuple[int, ...]) -> None:
    counts: dict[Split, int] = {"labeled": 3, "unlabeled": 2, "test": 1}
    write_phantoms(tmp_path, shape=shape, counts=counts, seed=2, shift=0.8)
    dataset = read_layout(tmp_path)
    assert {split: len(dataset.of(split)) for split in SPLITS} == counts
    assert dataset.classes == CLASSES
    assert not dataset.problems
    assert not dataset.ignored
    assert [finding for finding in check(dataset, workers=1) if finding.severity == "error"] == []
    for split in SPLITS:
        for index, case in enumerate(dataset.of(split)):
            made, scan = make_phantom(2, split, index, shape, 0.8), read_case(case.images)
            assert scan.geometry.spacing == pytest.approx([1.5] * len(shape))
            np.testing.assert_allclose(scan.array[0] / 1000, made.image, atol=5.1e-4)
            assert (case.label is None) == (split == "unlabeled")
            if case.label is not None:
                np.testing.assert_array_equal(read_label(case.label).array, made.label)
    assert json.loads((tmp_path / "dataset.json").read_text())["numTraining"] == 3


def test_labels_of_unlabeled_phantoms_are_not_written(tmp_path: Path) -> None:
    write_phantoms(tmp_path, shape=(12, 12), counts={"labeled": 1, "unlabeled": 2, "test": 0}, seed=0, shift=0)
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*"))
    assert written == [
        "dataset.json",
        "imagesTr/labeled_000_0000.nii.gz",
        "imagesUn/unlabeled_000_0000.nii.gz",
        "imagesUn/unlabeled_001_0000.nii.gz",
        "labelsTr/labeled_000.nii.gz",
    ]
