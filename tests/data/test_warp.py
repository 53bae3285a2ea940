"""Affine and elastic augmentation against scipy's resampling."""

from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from pydantic import ValidationError
from scipy import ndimage
from scipy.interpolate import BSpline
from store_fakes import NEVER, Shape, build, same

from graftseg.data.batches import Batches, BatchSettings
from graftseg.data.disk_batches import DiskBatches
from graftseg.data.store import Store
from graftseg.data.warp import Warp, WarpSettings, control_points, draw_warp, spline_weights, stretch_warp, undeformed

KINDS: list[tuple[list[Shape], Shape]] = [
    ([(9, 7), (5, 12), (16, 4)], (6, 8)),
    ([(9, 7, 3), (5, 12, 2), (16, 4, 1)], (6, 8)),
    ([(9, 7, 6), (5, 12, 9), (16, 4, 2)], (6, 8, 4)),
]
STILL = WarpSettings(rotate=0, scale=0, elastic=0)
ALWAYS = WarpSettings(rotate=1, scale=1, elastic=1, grid=4, amount=1.5, thickness=2.5, mirror=(0, 1))


def settings_of(patch: Shape, warp: WarpSettings | None, **options: Any) -> BatchSettings:
    return BatchSettings(patch=patch, labeled=2, unlabeled=2, augment=NEVER, warp=warp, **options)


def at(kind: type[Batches], store: Store, settings: BatchSettings, step: int) -> Any:
    return kind(store, settings, seed=5, device="cpu").at(1, step)


@pytest.mark.parametrize(("shapes", "patch"), KINDS)
@pytest.mark.parametrize("foreground", [0.0, 0.5])
def test_an_identity_draw_changes_no_bit(tmp_path: Path, shapes: list[Shape], patch: Shape, foreground: float) -> None:
    store = build(tmp_path / "s", shapes, shapes[::-1], channels=2)
    for step in range(6):
        plain, warped = (
            at(Batches, store, settings_of(patch, warp, foreground=foreground), step) for warp in (None, STILL)
        )
        assert same(plain, warped)


@pytest.mark.parametrize(("shapes", "patch"), KINDS)
def test_batches_from_disk_equal_those_from_memory(tmp_path: Path, shapes: list[Shape], patch: Shape) -> None:
    store = build(tmp_path / "s", shapes, shapes[::-1], channels=2)
    strong = WarpSettings.model_validate({**ALWAYS.model_dump(), "degrees": 180, "amount": 3})
    for warp, step in product((STILL, ALWAYS, strong), range(6)):
        one, two = (at(kind, store, settings_of(patch, warp), step) for kind in (Batches, DiskBatches))
        assert same(one, two)


def resampled(scan: npt.NDArray[Any], batch: Batches, step: int, order: Literal[0, 1]) -> npt.NDArray[Any]:
    """Resample the first image of a batch with scipy, from the maps that the batch draws."""
    settings = batch.settings
    assert settings.warp is not None
    start = np.array([[(size - n) // 2 for size, n in zip(scan.shape, settings.patch, strict=True)]])
    warp = draw_warp(np.random.default_rng(step), start, settings.patch, settings.warp)
    grid = np.stack(np.meshgrid(*(np.arange(n) - (n - 1) / 2 for n in settings.patch), indexing="ij"))
    moved = warp.control[0]
    for axis, n in enumerate(settings.patch):
        moved = np.moveaxis(np.tensordot(spline_of(n, moved.shape[1 + axis]), moved, (1, 1 + axis)), 0, 1 + axis)
    place = np.einsum("ij,j...->i...", warp.linear[0], grid) + moved + warp.center[0].reshape(-1, *[1] * scan.ndim)
    padded = np.pad(scan, 30)
    return ndimage.map_coordinates(padded, place + 30, order=order, mode="constant")


def spline_of(size: int, points: int) -> npt.NDArray[np.float64]:
    """Return the weights of scipy's cubic B-splines."""
    cells = points - 3
    knots, place = np.arange(-3, cells + 4), np.arange(size) * (cells / size)
    return np.stack([BSpline(knots, np.eye(points)[k], 3)(place) for k in range(points)], axis=1)


@pytest.mark.parametrize(("shape", "patch"), [((15, 12), (8, 10)), ((14, 12, 9), (8, 10, 6))])
def test_images_and_labels_equal_those_of_scipy(tmp_path: Path, shape: Shape, patch: Shape) -> None:
    store = build(tmp_path / "s", [shape])
    batches = Batches(store, settings_of(patch, ALWAYS), seed=0, device="cpu", unlabeled=False)
    image, label = (
        np.asarray(part, dtype=np.float64) for part in (store.image(store.cases[0])[0], store.label(store.cases[0]))
    )
    for step in range(10):
        start = np.array([[(size - n) // 2 for size, n in zip(shape, patch, strict=True)]])
        warp = draw_warp(np.random.default_rng(step), start, patch, ALWAYS)
        table = batches.labeled.table(np.array([0]), warp)
        images, labels = batches.labeled.gather(torch.from_numpy(table))
        expected = resampled(image, batches, step, order=1)
        np.testing.assert_allclose(images[0, 0].numpy(), expected, atol=0.05)
        assert labels is not None
        # float32 may round a position halfway between two voxels to the other one
        assert (labels[0].numpy() != resampled(label, batches, step, order=0)).mean() < 0.01


def test_spline_weights_are_those_of_scipy() -> None:
    for size, points in ((6, 4), (10, 7), (33, 5)):
        weights = spline_weights(size, points, torch.device("cpu")).numpy()
        np.testing.assert_allclose(weights, spline_of(size, points), atol=1e-6)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)


def test_number_of_control_points() -> None:
    assert control_points((64, 65, 8), 32) == (5, 6, 4)


def test_rotations_act_in_millimeters() -> None:
    """Rotation and scaling, converted to millimeters, are a multiple of an orthogonal matrix."""
    settings = WarpSettings(rotate=1, scale=1, elastic=0, thickness=3.0, tilt=40)
    linear = draw_warp(np.random.default_rng(0), np.zeros((50, 3), np.int64), (8, 8, 8), settings).linear
    size = np.diag([1.0, 1.0, 3.0])
    turn = size @ linear @ np.linalg.inv(size)
    factor = np.cbrt(np.linalg.det(turn))
    np.testing.assert_allclose(turn @ turn.transpose(0, 2, 1), factor[:, None, None] ** 2 * np.eye(3), atol=1e-12)
    assert (1 / factor >= 0.75).all() and (1 / factor <= 1.3).all()
    assert 0.3 < (factor < 1).mean() < 0.7


def test_mirroring_flips_half_of_the_patches_along_the_listed_axes() -> None:
    settings = WarpSettings(rotate=0, scale=0, elastic=0, mirror=(1,))
    linear = draw_warp(np.random.default_rng(0), np.zeros((400, 3), np.int64), (8, 8, 8), settings).linear
    assert {tuple(np.diag(matrix)) for matrix in linear} == {(1, 1, 1), (1, -1, 1)}
    assert 0.4 < (linear[:, 1, 1] < 0).mean() < 0.6


def test_undeformed_center() -> None:
    warp = undeformed(np.array([[3, 4]]), (6, 9), STILL)
    assert warp.center.tolist() == [[5.5, 8.0]] and not warp.control.any()


def test_a_stretched_slice_is_zoomed_to_the_patch(tmp_path: Path) -> None:
    store = build(tmp_path / "s", [(9, 7)])
    batches = Batches(store, settings_of((17, 12), STILL, fit="stretch"), seed=0, device="cpu", unlabeled=False)
    image = np.asarray(store.image(store.cases[0])[0], dtype=np.float64)
    for zoomed in batches.at(0, 0, unlabeled=False).labeled.images[:, 0]:
        np.testing.assert_allclose(zoomed.numpy(), ndimage.zoom(image, (17 / 9, 12 / 7), order=1), atol=1e-3)


def test_a_stretched_warp_turns_the_patch() -> None:
    """A warp that turns the patch by 180 degrees reads the slice backwards, whatever its shape."""
    turn = Warp(np.zeros((1, 2)), -np.eye(2)[None], np.zeros((1, 2, 4, 4)))
    found = stretch_warp(turn, np.array([[9, 7]]), np.array([[0.5, 0.75]]))
    assert found.center.tolist() == [[4.0, 3.0]] and found.linear.tolist() == [[[-0.5, 0.0], [0.0, -0.75]]]


@pytest.mark.parametrize(
    "options",
    [
        {"augment": {"rotate_flip": 0.5}},
        {"augment": {"rotate_flip": 0, "rotate": 0.1}},
        {"unlabeled_crop": "centre", "augment": {"rotate_flip": 0}},
        {"warp": {"mirror": [2]}, "augment": {"rotate_flip": 0}},
    ],
)
def test_contradicting_settings_are_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="warp"):
        BatchSettings.model_validate({"patch": [8, 8], "warp": {}, **options})
