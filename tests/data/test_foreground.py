"""Patches around foreground: the drawn voxel is in the patch, with the requested frequency."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from store_fakes import ACDC, NEVER, Shape, batches_of, build, same, source_rows

from graftseg.core.errors import Code
from graftseg.data.augment import AugmentSettings, Draw, Integers, centered_on, draw, rotated_size
from graftseg.data.batches import Batches, BatchSettings
from graftseg.data.disk_batches import DiskBatches
from graftseg.data.foreground import MAX_POSITIONS, Positions, positions_in, positions_of
from graftseg.data.store import CASES, Store
from user_errors import user_error

CPU = torch.device("cpu")
TURNS = AugmentSettings(rotate_flip=1)
TILTS = AugmentSettings(rotate_flip=0, rotate=1, degrees=180)


def patch_voxels(drawn: Draw, shape: Integers, patch: Shape) -> list[tuple[int, ...]]:
    """Return the scan voxels in the patch of a draw of one sample."""
    strides = np.array([[int(np.prod(shape[0, 1:])), int(np.prod(shape[0, 2:]))]])
    rows, inside = source_rows(drawn, shape, strides, patch, CPU)
    flat = rows[0].numpy() if len(patch) == 2 else rows[0, ..., None].numpy() + np.arange(patch[2])
    return list(zip(*np.unravel_index(flat[inside[0].numpy()], tuple(shape[0])), strict=True))


def with_labels(store: Store, *labels: Any) -> Store:
    """Replace the label maps of the labeled cases of a store, and skip checksums."""
    for case, label in zip(store.cases, labels, strict=False):
        np.save(store.path / CASES / str(case.label), np.asarray(label, np.uint8))
    object.__setattr__(store, "verify_file", lambda case, name: None)
    return store


@given(data=st.data(), axes=st.integers(2, 3), seed=st.integers(0, 10**6), tilted=st.booleans())
@settings(deadline=None, max_examples=60)
def test_the_patch_contains_the_voxel(data: st.DataObject, axes: int, seed: int, tilted: bool) -> None:
    """The position is exact after quarter turns and flips, and within one voxel after other rotations."""
    shape = data.draw(st.tuples(*[st.integers(1, 20)] * axes))
    patch = data.draw(st.tuples(*[st.integers(1, 12)] * axes))
    voxel = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    augment = (TILTS if tilted else TURNS).model_copy(update={"margin": data.draw(st.integers(0, 4))})
    shapes = np.array([shape], dtype=np.int64)
    drawn = draw(np.random.default_rng(seed), shapes, patch, augment)
    moved = centered_on(drawn, shapes, patch, augment.margin, np.array([0]), np.array([voxel]))
    np.testing.assert_array_equal(moved.linear, drawn.linear)
    if tilted:
        middles = [np.arange(n) + start for n, start in zip(patch, moved.start[0], strict=True)]
        # a drawn angle can be a quarter turn
        turned = rotated_size(moved.linear, shapes[:, :2])[0]
        plane = np.stack(np.meshgrid(*middles[:2], indexing="ij"), axis=-1) - (turned - 1) / 2
        away = plane @ moved.linear[0].T + (shapes[0, :2] - 1) / 2 - voxel[:2]
        assert np.abs(away).max(axis=-1).min() < 0.71
        assert all(depth in middles[2] for depth in voxel[2:])
    else:
        assert voxel in patch_voxels(moved, shapes, patch)


@pytest.mark.parametrize(
    ("voxel", "start"),
    [((10, 10, 5), (7, 7, 3)), ((0, 19, 9), (0, 14, 6)), ((2, 4, 0), (0, 1, 0))],
    ids=["the voxel in the middle", "a corner", "near an edge"],
)
def test_patches_stay_within_larger_scans(voxel: Shape, start: Shape) -> None:
    shapes, patch = np.array([[20, 20, 10]]), (6, 6, 4)
    drawn = draw(np.random.default_rng(0), shapes, patch, NEVER)
    moved = centered_on(drawn, shapes, patch, NEVER.margin, np.array([0]), np.array([voxel]))
    assert moved.start.tolist() == [list(start)]


def test_other_samples_are_not_moved() -> None:
    shapes, patch = np.full((5, 2), 40), (8, 8)
    drawn = draw(np.random.default_rng(0), shapes, patch, ACDC)
    moved = centered_on(drawn, shapes, patch, 3, np.array([1, 4]), np.array([[20, 20], [3, 30]]))
    np.testing.assert_array_equal(moved.start[[0, 2, 3]], drawn.start[[0, 2, 3]])
    assert (moved.start[[1, 4]] != drawn.start[[1, 4]]).any()


def test_positions_are_those_of_every_class() -> None:
    label = np.zeros((3, 4), np.uint8)
    label[1, 2], label[2] = 3, 1
    one, three = positions_in(label)
    assert one.tolist() == [[2, 0], [2, 1], [2, 2], [2, 3]] and three.tolist() == [[1, 2]]
    assert positions_in(np.zeros((3, 3), np.uint8)) == ()


def test_many_positions_are_subsampled_reproducibly() -> None:
    label = np.ones((30, 20, 10), np.uint8)
    (positions,) = positions_in(label)
    assert len(positions) == len({tuple(voxel) for voxel in positions.tolist()}) == MAX_POSITIONS
    np.testing.assert_array_equal(positions, positions_in(label)[0])
    assert abs(positions.mean(axis=0) - [14.5, 9.5, 4.5]).max() < 0.5


@given(share=st.floats(0, 1), size=st.integers(1, 12))
@settings(deadline=None, max_examples=30)
def test_the_share_of_samples(share: float, size: int) -> None:
    positions = Positions(((np.array([[1, 1]], np.int32),),))
    cases = np.zeros(size, dtype=np.int64)
    rng = np.random.default_rng(0)
    drawn = [positions.draw(rng, cases, share) for _ in range(300)]
    counts = [0 if centers is None else len(centers.samples) for centers in drawn]
    assert max(counts) - min(counts) <= 1
    assert abs(np.mean(counts) - share * size) < 0.12


def test_classes_are_equally_likely_and_empty_cases_are_skipped() -> None:
    """A class of one voxel is drawn as often as a class of a thousand voxels."""
    large = np.stack([np.arange(1000), np.zeros(1000)], axis=1).astype(np.int32)
    positions = Positions(((large, np.array([[0, 1]], np.int32)), ()))
    rng = np.random.default_rng(0)
    seen: Counter[int] = Counter()
    for _ in range(500):
        centers = positions.draw(rng, np.array([0, 1, 0]), 1.0)
        assert centers is not None and centers.samples.tolist() == [0, 2]
        seen.update(centers.voxels[:, 1].tolist())
    assert abs(seen[1] - 500) < 60
    assert Positions(((),)).draw(rng, np.array([0, 0]), 1.0) is None


def blob_store(folder: Path, shape: Shape, labeled: int = 3) -> Store:
    """Build cases with one voxel of class 2 near a corner, at different positions."""
    labels = []
    for index in range(labeled):
        label = np.zeros(shape, np.uint8)
        label[tuple(n - 1 - index if axis else index for axis, n in enumerate(shape))] = 2
        labels.append(label)
    return with_labels(build(folder, [shape] * labeled, [shape] * 2), *labels)


@pytest.mark.parametrize("augment", [NEVER, TURNS], ids=["as it is", "turned"])
@pytest.mark.parametrize(("shape", "patch"), [((30, 24), (8, 6)), ((24, 20, 18), (8, 8, 4)), ((30, 24, 12), (8, 6))])
def test_every_patch_of_a_batch_contains_foreground(
    tmp_path: Path, shape: Shape, patch: Shape, augment: AugmentSettings
) -> None:
    """Test 2-D scans, volumes and slices. Random patches would rarely contain foreground."""
    store = blob_store(tmp_path / "s", shape)
    batches = batches_of(store, patch, augment=augment, labeled=4, foreground=1.0)
    plain = batches_of(store, patch, augment=augment, labeled=4)
    steps = range(10)
    assert all((batches.at(0, step).labeled.labels == 2).flatten(1).any(dim=1).all() for step in steps)
    contains = [(plain.at(0, step).labeled.labels == 2).flatten(1).any(dim=1) for step in steps]
    assert torch.cat(contains).float().mean() < 0.5


def test_stretched_slices_contain_foreground(tmp_path: Path) -> None:
    store = blob_store(tmp_path / "s", (12, 12, 40))
    batches = batches_of(store, (12, 12), labeled=4, foreground=0.5, fit="stretch")
    counts = torch.stack([(batches.at(0, s).labeled.labels == 2).flatten(1).any(dim=1).sum() for s in range(20)])
    assert (counts >= 2).all() and (counts < 4).any()


def test_foreground_changes_neither_cases_nor_other_draws(tmp_path: Path) -> None:
    """If the store has no foreground, the batches are bit-identical."""
    shape = (12, 10, 7)
    store = with_labels(build(tmp_path / "s", [shape] * 3, [shape] * 3), *[np.zeros(shape)] * 3)
    for patch in ((6, 6), (6, 6, 4)):
        plain, centered = (batches_of(store, patch, augment=ACDC, foreground=share) for share in (0.0, 0.7))
        assert all(same(plain.at(1, step), centered.at(1, step)) for step in range(6))
    store = blob_store(tmp_path / "t", shape)
    plain, centered = (batches_of(store, (6, 6), augment=ACDC, foreground=share) for share in (0.0, 0.7))
    assert [plain.names_at(0, step) for step in range(9)] == [centered.names_at(0, step) for step in range(9)]
    assert all(torch.equal(plain.at(0, step).unlabeled, centered.at(0, step).unlabeled) for step in range(9))


@pytest.mark.parametrize(("shape", "patch"), [((14, 12, 9), (6, 6, 4)), ((14, 12, 9), (6, 6))])
def test_batches_from_disk_are_the_same(tmp_path: Path, shape: Shape, patch: Shape) -> None:
    store = blob_store(tmp_path / "s", shape)
    chosen = BatchSettings(patch=patch, labeled=2, unlabeled=2, foreground=0.6, augment=ACDC)
    resident, mapped = (kind(store, chosen, seed=5, device="cpu") for kind in (Batches, DiskBatches))
    positions = positions_of(store, store.of("labeled")[:2])
    for batches in (resident, mapped):
        batches.set_foreground(1, positions)
    for stage in (0, 1):
        assert all(same(resident.at(stage, step), mapped.at(stage, step)) for step in range(8))


def test_unlabeled_patches_are_drawn_around_given_positions(tmp_path: Path) -> None:
    """Only the given stage changes, and only its unlabeled part."""
    store = build(tmp_path / "s", [(30, 30)] * 2, [(30, 30)] * 2)
    batches, plain = (batches_of(store, (4, 4), labeled=2, unlabeled=2, foreground=1.0) for _ in range(2))
    voxel = np.array([[29, 0]], np.int32)
    batches.set_foreground(1, Positions(((voxel,), (voxel,))))
    corners = {float(store.image(case)[0, 29, 0]) for case in store.of("unlabeled")}
    for step in range(4):
        assert same(batches.at(0, step), plain.at(0, step))
        assert torch.equal(batches.at(1, step).labeled.images, plain.at(1, step).labeled.images)
        assert all(corners & set(image.flatten().tolist()) for image in batches.at(1, step).unlabeled)


def test_positions_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "foreground.npz"
    one, two = np.array([[1, 2], [3, 4]], np.int32), np.array([[8, 6]], np.int32)
    positions = Positions(((one, two), (), (two,)))
    positions.save(path)
    read = Positions.load(path)
    assert [[voxels.tolist() for voxels in classes] for classes in read.cases] == [
        [one.tolist(), two.tolist()],
        [],
        [two.tolist()],
    ]
    Positions(((), ())).save(path)
    assert Positions.load(path).cases == ((), ())


@pytest.mark.parametrize("content", [None, b"PK\x03\x04 cut", b""])
def test_missing_or_damaged_positions_are_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "foreground.npz"
    if content is not None:
        path.write_bytes(content)
    with user_error(Code.DAMAGED_FILE, path):
        Positions.load(path)


@pytest.mark.parametrize("other", [{"foreground": 0.5}, {"intensity": {}}])
def test_foreground_and_intensity_exclude_center_crops(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="unlabeled_crop: centre"):
        BatchSettings(patch=(4, 4), unlabeled_crop="centre", **other)


def test_label_maps_are_verified_before_positions_are_read(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(6, 6)])
    np.save(store.path / CASES / str(store.cases[0].label), np.ones((6, 6), np.uint8))
    with user_error(Code.DAMAGED_FILE, keyword="checksum"):
        positions_of(store, store.cases)
