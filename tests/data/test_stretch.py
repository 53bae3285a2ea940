"""Slices stretched to the patch, and center crops, compared with SciPy and plain slicing."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import ndimage
from store_fakes import ACDC, Shape, batches_of, build, center_start

from graftseg.data.augment import AugmentSettings, Draw, rotated_size, stretching
from graftseg.data.batches import BatchSettings
from graftseg.data.stream import Stream
from zoom_oracle import Plane, zoomed

Array = npt.NDArray[Any]
CPU = torch.device("cpu")
WHOLE_TURNS = np.array([[[1, 0], [0, 1]], [[0, 1], [-1, 0]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]]], np.float32)
sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))


def gathered(stream: Stream, linear: npt.NDArray[np.float32], patch: Plane) -> tuple[Array, Array]:
    """Return stretched images and labels of all units under one linear map."""
    maps = np.repeat(linear[None], len(stream), axis=0)
    turned = rotated_size(maps, stream.shapes)
    drawn = Draw(maps, np.zeros_like(stream.shapes), stretching(turned, patch))
    images, labels = stream.gather(torch.from_numpy(stream.table(np.arange(len(stream)), drawn)))
    assert labels is not None
    return images.numpy(), labels.numpy()


def slices_of(stream_shapes: list[Shape], folder: Path, patch: Plane, channels: int = 1) -> tuple[Stream, list[Array]]:
    store = build(folder / "s", stream_shapes, channels=channels)
    scans = [np.asarray(store.image(case), np.float32) for case in store.cases]
    slices = [scan.reshape(*scan.shape[:3], -1)[..., z] for scan in scans for z in range(prod_of(scan.shape[3:]))]
    return Stream(store, store.cases, patch, labels=True, device=CPU), slices


def prod_of(shape: Shape) -> int:
    return int(np.prod(shape))


@given(size=sizes, other=sizes, patch=sizes, turns=st.integers(0, 3), axis=st.integers(0, 1), volumes=st.booleans())
@settings(deadline=None, max_examples=60)
def test_turn_and_flip_then_zoom(
    tmp_path_factory: pytest.TempPathFactory,
    size: Plane,
    other: Plane,
    patch: Plane,
    turns: int,
    axis: int,
    volumes: bool,
) -> None:
    shapes: list[Shape] = [(*size, 2), (*other, 3)] if volumes else [size, other]
    stream, slices = slices_of(shapes, tmp_path_factory.mktemp("stores"), patch, channels=2)
    flip = np.diag([-1, 1] if axis == 0 else [1, -1]).astype(np.float32)
    images, labels = gathered(stream, WHOLE_TURNS[turns] @ flip, patch)
    assert len(images) == len(slices)
    for image, label, plane in zip(images, labels, slices, strict=True):
        moved = np.flip(np.rot90(plane, turns, axes=(1, 2)), axis + 1)
        expected = np.stack([zoomed(channel, patch) for channel in moved])
        np.testing.assert_array_equal(image, expected)
        np.testing.assert_array_equal(label, expected[0] % 4)


@pytest.mark.parametrize("degrees", [-20, -7, 0, 1, 13, 19])
@pytest.mark.parametrize("size", [(54, 64), (64, 54), (37, 50)])
def test_rotate_then_zoom(tmp_path: Path, size: Plane, degrees: int) -> None:
    stream, slices = slices_of([size], tmp_path, (64, 64))
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    images, labels = gathered(stream, np.array([[cosine, sine], [-sine, cosine]], np.float32), (64, 64))
    rotated = ndimage.rotate(slices[0][0], degrees, order=0, reshape=False, mode="grid-constant")
    expected = zoomed(rotated, (64, 64))
    # except positions that single precision cannot distinguish from the border between two voxels
    assert np.mean(images[0, 0] != expected) <= 2e-3
    np.testing.assert_array_equal(labels[0], images[0, 0] % 4)


def test_batches_contain_whole_slices(tmp_path: Path) -> None:
    """Every sample is a rotated, flipped and zoomed slice, and all combinations occur."""
    store = build(tmp_path / "s", [(5, 7, 2), (6, 4, 1)], [(7, 5, 3)], channels=2)
    batches = batches_of(store, (8, 6), fit="stretch", augment=AugmentSettings(), labeled=2, unlabeled=2)
    known: dict[bytes, tuple[int, ...]] = {}
    for number, case in enumerate(store.cases):
        image = np.asarray(store.image(case), np.float32)
        for z, turns, axis in product(range(image.shape[-1]), range(4), range(2)):
            moved = np.flip(np.rot90(image[..., z], turns, axes=(1, 2)), axis + 1)
            known[np.stack([zoomed(channel, (8, 6)) for channel in moved]).tobytes()] = (number, z, turns, axis)
    drawn = [batches.at(0, step) for step in range(80)]
    labeled = {known[image.numpy().tobytes()] for batch in drawn for image in batch.labeled.images}
    unlabeled = {known[image.numpy().tobytes()] for batch in drawn for image in batch.unlabeled}
    assert {found[0] for found in labeled} == {0, 1} and {found[0] for found in unlabeled} == {2}
    assert len(labeled) == 3 * 4 and len(unlabeled) == 3 * 4, "a half turn and a flip is the other flip"
    patches = batches.center_patches(1)
    assert patches is not None
    np.testing.assert_array_equal(
        patches[0, 0].numpy(), zoomed(np.asarray(store.image(store.cases[2]), np.float32)[0, ..., 1], (8, 6))
    )


@pytest.mark.parametrize(("shape", "patch"), [((9, 7), (4, 4)), ((9, 7, 5), (4, 4, 4)), ((5, 6, 4), (8, 8, 8))])
def test_center_crops_of_the_unlabeled_stream(tmp_path: Path, shape: Shape, patch: Shape) -> None:
    """Unlabeled crops are the same at every step, while labeled images are augmented."""
    store = build(tmp_path / "s", [shape] * 2, [shape] * 2)
    options: dict[str, Any] = {"augment": ACDC, "labeled": 2, "unlabeled": 2}
    batches, random = (batches_of(store, patch, unlabeled_crop=crop, **options) for crop in ("centre", "random"))
    patches = batches.center_patches(2)
    assert patches is not None
    centres = {image.numpy().tobytes() for image in patches}
    for step in range(6):
        batch, other = batches.at(0, step), random.at(0, step)
        assert {image.numpy().tobytes() for image in batch.unlabeled} == centres
        assert torch.equal(batch.labeled.images, other.labeled.images)
        assert not torch.equal(batch.unlabeled, other.unlabeled)
    start = [center_start(n, wanted) for n, wanted in zip(shape, patch, strict=True)]
    room = [(max(-s, 0), max(s + p - n, 0)) for s, p, n in zip(start, patch, shape, strict=True)]
    image = np.pad(np.asarray(store.image(store.cases[2]), np.float32)[0], room)
    box = tuple(slice(max(s, 0), max(s, 0) + p) for s, p in zip(start, patch, strict=True))
    np.testing.assert_array_equal(patches[0, 0].numpy(), image[box])


def test_unlabeled_slices_can_be_stretched_without_augmentation(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(5, 7)] * 2, [(5, 7)])
    batches = batches_of(store, (8, 6), fit="stretch", unlabeled_crop="centre", augment=AugmentSettings(), unlabeled=1)
    expected = zoomed(np.asarray(store.image(store.cases[2]), np.float32)[0], (8, 6))
    for step in range(4):
        np.testing.assert_array_equal(batches.at(0, step).unlabeled[0, 0].numpy(), expected)


def test_stretching_needs_2d_patches() -> None:
    with pytest.raises(ValidationError, match="fit: stretch"):
        BatchSettings(patch=(8, 8, 8), fit="stretch")
