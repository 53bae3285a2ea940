from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import ndimage
from store_fakes import source_rows

from graftseg.data.augment import (
    AugmentSettings,
    Draw,
    Floats,
    Integers,
    centered,
    crop_padding,
    draw,
    rotated_size,
)
from loops import for_each

Array = npt.NDArray[Any]
CPU = torch.device("cpu")
TURNS_AND_FLIPS = list(product(range(4), range(2)))
NEVER = AugmentSettings(rotate_flip=0)
ACDC = AugmentSettings(rotate_flip=0.5, rotate=0.5)
SHAPES = [(6, 6), (5, 5), (4, 7), (7, 4), (6, 6, 3), (4, 7, 5), (5, 8, 4)]


def one(numbers: Sequence[int]) -> Integers:
    """Return the numbers as a batch of one sample."""
    return np.array([numbers], dtype=np.int64)


def numbered(shape: Sequence[int]) -> Array:
    """Return a scan with distinct nonzero voxels."""
    return np.arange(1, np.prod(shape) + 1).reshape(shape)


def turn_and_flip(scan: Array, turns: int, axis: int) -> Array:
    return np.flip(np.rot90(scan, turns, axes=(0, 1)), axis)


def matrix(turns: int, axis: int) -> Floats:
    """Return the linear map of ``turn_and_flip`` from its result back to the scan."""
    grid = np.stack(np.meshgrid([-1, 0, 1], [-1, 0, 1], indexing="ij"))
    turned = [turn_and_flip(coordinate, turns, axis) for coordinate in grid]
    return np.array([[values[2, 1], values[1, 2]] for values in turned], dtype=np.float32)


def rotation(degrees: int) -> Floats:
    """Return the linear map of ``scipy.ndimage.rotate``."""
    cosine, sine = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    return np.array([[cosine, sine], [-sine, cosine]], dtype=np.float32)


def sample(scan: Array, drawn: Draw, patch: Sequence[int]) -> Array:
    """Read the patch voxel by voxel at the positions of ``source_rows``."""
    strides = one([n // scan.itemsize for n in np.ascontiguousarray(scan).strides[:2]])
    rows, inside = source_rows(drawn, one(scan.shape), strides, patch, CPU)
    assert rows.shape == (1, *patch[:2]) and rows.dtype == torch.int64
    assert inside.shape == (1, *patch) and inside.dtype == torch.bool
    place = rows[0].numpy() if len(patch) == 2 else rows[0, ..., None].numpy() + np.arange(patch[2])
    mask = inside[0].numpy()
    assert ((place[mask] >= 0) & (place[mask] < scan.size)).all()
    assert place.min() >= -max(patch[2:], default=0)
    values = np.zeros(patch, scan.dtype)
    values[mask] = scan.ravel()[place[mask]]
    return values


def plain_crop(scan: Array, patch: Sequence[int], start: Sequence[int], margin: int = 3) -> Array:
    """Pad by the published rule, then slice."""
    if any(n <= wanted for n, wanted in zip(scan.shape, patch, strict=True)):
        pads = [max((wanted - n) // 2 + margin, 0) for n, wanted in zip(scan.shape, patch, strict=True)]
        scan = np.pad(scan, [(pad, pad) for pad in pads])
    cropped: Array = scan[tuple(slice(begin, begin + n) for begin, n in zip(start, patch, strict=True))]
    return cropped


@for_each(("turns", "axis"), TURNS_AND_FLIPS)
@for_each("shape", SHAPES)
def test_turn_and_flip_equal_numpy(shape: tuple[int, ...], turns: int, axis: int) -> None:
    scan = numbered(shape)
    expected = turn_and_flip(scan, turns, axis)
    drawn = Draw(matrix(turns, axis)[None], one([0] * len(shape)))
    np.testing.assert_array_equal(sample(scan, drawn, expected.shape), expected)


@for_each(("turns", "axis"), TURNS_AND_FLIPS)
@for_each("shape", SHAPES)
def test_a_crop_follows_the_turn(shape: tuple[int, ...], turns: int, axis: int) -> None:
    scan, patch, start = numbered(shape), (3, 2, 2)[: len(shape)], (1, 2, 1)[: len(shape)]
    drawn = Draw(matrix(turns, axis)[None], one(start))
    expected = plain_crop(turn_and_flip(scan, turns, axis), patch, start)
    np.testing.assert_array_equal(sample(scan, drawn, patch), expected)


def test_rotate_flip_draws_four_reflections() -> None:
    """A flip always follows the rotation, so the eight pairs give four reflections, each twice, and no rotation."""
    linear = draw(np.random.default_rng(0), np.full((4000, 2), 9), (5, 5), AugmentSettings()).linear
    drawn = Counter(matrix_.tobytes() for matrix_ in linear)
    pairs = Counter((matrix(*pair) + 0.0).tobytes() for pair in TURNS_AND_FLIPS)
    assert set(pairs.values()) == {2}
    assert {(np.frombuffer(key, np.float32) + 0.0).tobytes() for key in drawn} == pairs.keys()
    np.testing.assert_array_equal(np.round(np.linalg.det(linear)), -1)
    assert all(abs(count - 1000) < 100 for count in drawn.values())


def test_probabilities_and_angles() -> None:
    linear = draw(np.random.default_rng(0), np.full((8000, 2), 9), (5, 5), ACDC).linear
    mirrored = np.linalg.det(linear) < 0
    angle = np.rad2deg(np.arctan2(linear[~mirrored, 0, 1], linear[~mirrored, 0, 0]))
    whole = np.round(angle).astype(int)
    np.testing.assert_allclose(angle, whole, atol=1e-4)
    assert set(whole) == set(range(-20, 20))
    assert abs(mirrored.sum() - 4000) < 180
    # no rotation, or one of forty angles, including zero
    counts = Counter(whole.tolist())
    assert abs(counts.pop(0) - 2050) < 160
    assert all(25 < count < 80 for count in counts.values())


@pytest.mark.parametrize(("limit", "angles"), [(1, {-1, 0}), (3, {-3, -2, -1, 0, 1, 2})])
def test_the_range_of_angles(limit: int, angles: set[int]) -> None:
    augment = AugmentSettings(rotate_flip=0, rotate=1, degrees=limit)
    linear = draw(np.random.default_rng(0), np.full((200, 2), 9), (5, 5), augment).linear
    assert set(np.round(np.rad2deg(np.arctan2(linear[:, 0, 1], linear[:, 0, 0]))).astype(int)) == angles


def test_no_augmentation_if_all_probabilities_are_zero() -> None:
    linear = draw(np.random.default_rng(0), np.full((50, 3), 9), (5, 5, 5), NEVER).linear
    np.testing.assert_array_equal(linear, np.broadcast_to(np.eye(2), (50, 2, 2)))


@for_each("shape", [(64, 64), (37, 50), (20, 31, 5)])
@for_each("degrees", [-20, -7, 0, 1, 13, 19])
def test_a_small_rotation_equals_scipy(shape: tuple[int, ...], degrees: int) -> None:
    scan = numbered(shape)
    rotated = sample(scan, Draw(rotation(degrees)[None], one([0] * len(shape))), shape)
    expected = ndimage.rotate(scan, degrees, order=0, reshape=False, mode="grid-constant")
    # except positions that single precision cannot distinguish from the border between two voxels
    assert np.mean(rotated != expected) <= 1e-3
    # the default mode of scipy differs only within half a voxel outside the scan
    strict = ndimage.rotate(scan, degrees, order=0, reshape=False)
    assert np.mean((rotated != strict) & (strict != 0)) <= 1e-3
    assert np.mean(rotated != strict) < 0.1


def test_a_rotation_of_a_large_slice_equals_scipy_except_for_a_few_voxels() -> None:
    scan = numbered((256, 256))
    for degrees in (-20, -11, 6, 19):
        rotated = sample(scan, Draw(rotation(degrees)[None], one([0, 0])), scan.shape)
        expected = ndimage.rotate(scan, degrees, order=0, reshape=False, mode="grid-constant")
        assert np.mean(rotated == expected) > 0.9999
        assert rotated[0, 0] == 0


def test_halves_are_rounded_up() -> None:
    linear = np.array([[[0.5, 0], [0, 1]]], dtype=np.float32)
    stretched = sample(numbered((9, 1)), Draw(linear, one([0, 0])), (9, 1))
    assert stretched[:, 0].tolist() == [3, 4, 4, 5, 5, 6, 6, 7, 7]


def test_drawn_rotations_are_applied() -> None:
    scan, augment = numbered((21, 16)), AugmentSettings(rotate_flip=0, rotate=1)
    for seed in range(10):
        drawn = draw(np.random.default_rng(seed), one(scan.shape), (9, 8), augment)
        degrees = round(np.rad2deg(np.arctan2(drawn.linear[0, 0, 1], drawn.linear[0, 0, 0])))
        whole = ndimage.rotate(scan, degrees, order=0, reshape=False, mode="grid-constant")
        assert np.mean(sample(scan, drawn, (9, 8)) != plain_crop(whole, (9, 8), drawn.start[0])) < 0.02


@for_each(
    ("shape", "patch", "margin", "padding"),
    [
        ((10, 10), (4, 4), 3, (0, 0)),
        ((10, 5), (4, 4), 3, (0, 0)),
        ((10, 4), (4, 4), 3, (0, 3)),
        ((8, 4), (4, 4), 3, (1, 3)),
        ((7, 4), (4, 4), 3, (1, 3)),
        ((3, 3), (4, 4), 3, (3, 3)),
        ((100, 120, 70), (112, 112, 80), 3, (9, 0, 8)),
        ((113, 113, 81), (112, 112, 80), 3, (0, 0, 0)),
        ((112, 113, 81), (112, 112, 80), 3, (3, 2, 2)),
        ((90, 96, 101), (96, 96, 96), 1, (4, 1, 0)),
        ((3, 4), (6, 6), 0, (2, 1)),
    ],
)
def test_padding_rule(shape: tuple[int, ...], patch: tuple[int, ...], margin: int, padding: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(crop_padding(one(shape), patch, margin), [padding])


def test_padding_is_decided_scan_by_scan() -> None:
    np.testing.assert_array_equal(crop_padding(np.array([[9, 9], [4, 9]]), (4, 4), 3), [[0, 0], [3, 0]])


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=3),
    st.integers(1, 6),
)
@settings(deadline=None)
def test_padding_equals_the_published_rule_and_is_sufficient(sizes: list[tuple[int, int]], margin: int) -> None:
    shape, patch = zip(*sizes, strict=True)
    (padding,) = crop_padding(one(shape), patch, margin)
    short = any(n <= wanted for n, wanted in sizes)
    assert padding.tolist() == [max((wanted - n) // 2 + margin, 0) if short else 0 for n, wanted in sizes]
    assert all(n + 2 * pad >= wanted for (n, wanted), pad in zip(sizes, padding, strict=True))
    (least,) = crop_padding(one(shape), patch, 0)
    assert all(n + 2 * pad >= wanted for (n, wanted), pad in zip(sizes, least, strict=True))


def test_every_start_but_the_last_is_equally_likely() -> None:
    start = draw(np.random.default_rng(0), np.tile(one([9, 8]), (6000, 1)), (5, 6), NEVER).start
    for axis, room in enumerate((4, 2)):
        counts = Counter(start[:, axis].tolist())
        assert sorted(counts) == list(range(room))
        assert all(abs(count - 6000 / room) < 0.1 * 6000 / room for count in counts.values())


def test_starts_in_a_padded_scan() -> None:
    start = draw(np.random.default_rng(0), np.tile(one([4, 3]), (3000, 1)), (4, 8), NEVER).start
    # 4 and 3 voxels are padded to 10 and 13: starts 0 to 5 and 0 to 4, minus the padding of 3 and 5
    assert set(start[:, 0]) == set(range(-3, 3))
    assert set(start[:, 1]) == set(range(-5, 0))


def test_a_scan_that_just_fits_has_one_start() -> None:
    augment = AugmentSettings(rotate_flip=0, margin=0)
    start = draw(np.random.default_rng(0), np.tile(one([6, 3]), (100, 1)), (6, 8), augment).start
    # three voxels in a patch of eight: three zeros on each side give nine voxels, and thus one start
    assert set(start[:, 0]) == {0}
    assert set(start[:, 1]) == {-3}


def test_the_crop_is_drawn_in_the_turned_plane() -> None:
    drawn = draw(np.random.default_rng(0), np.tile(one([30, 10]), (2000, 1)), (5, 5), AugmentSettings())
    turned = np.abs(drawn.linear[:, 0, 1]) == 1
    assert 900 < turned.sum() < 1100
    for swapped, room in ((turned, (5, 25)), (~turned, (25, 5))):
        assert tuple(drawn.start[swapped].max(axis=0) + 1) == room


def test_rotated_size() -> None:
    linear = np.stack([matrix(0, 0), matrix(1, 0), matrix(2, 1), matrix(3, 1), rotation(-20)])
    turned = rotated_size(linear, np.tile(one([4, 7]), (5, 1)))
    np.testing.assert_array_equal(turned, [[4, 7], [7, 4], [4, 7], [7, 4], [4, 7]])


@st.composite
def crops(request: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    axes = request(st.integers(2, 3))
    sizes = st.tuples(*[st.integers(1, 9)] * axes)
    return request(sizes), request(sizes)


@given(crops(), st.integers(0, 2**32), st.integers(1, 4))
@settings(deadline=None, max_examples=60)
@example(((2, 2, 2), (9, 9, 9)), 1, 3)
@example(((9, 9, 9), (1, 1, 1)), 1, 3)
def test_draw_and_apply_are_turn_flip_pad_slice(
    crop: tuple[tuple[int, ...], tuple[int, ...]], seed: int, margin: int
) -> None:
    shape, patch = crop
    scan = numbered(shape)
    drawn = draw(np.random.default_rng(seed), one(shape), patch, AugmentSettings(margin=margin))
    pair = next(pair for pair in TURNS_AND_FLIPS if np.array_equal(matrix(*pair), drawn.linear[0]))
    turned = turn_and_flip(scan, *pair)
    start = drawn.start + crop_padding(one(turned.shape), patch, margin)
    assert (start >= 0).all()
    np.testing.assert_array_equal(sample(scan, drawn, patch), plain_crop(turned, patch, start[0], margin))


@given(crops(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=50)
def test_every_voxel_of_a_patch_is_from_the_scan_or_zero(
    crop: tuple[tuple[int, ...], tuple[int, ...]], seed: int
) -> None:
    shape, patch = crop
    drawn = draw(
        np.random.default_rng(seed), one(shape), patch, AugmentSettings(rotate_flip=0.3, rotate=1, degrees=180)
    )
    assert np.isin(sample(numbered(shape), drawn, patch), [0, *numbered(shape).ravel()]).all()


def test_a_patch_far_outside_is_empty() -> None:
    scan, linear = numbered((4, 5, 6)), np.eye(2, dtype=np.float32)[None]
    for start in ([50, 0, 0], [0, -50, 0], [0, 0, 50], [0, 0, -50]):
        assert not sample(scan, Draw(linear, one(start)), (3, 3, 3)).any()


def test_samples_of_a_batch_do_not_mix() -> None:
    """Scans of several sizes give the same result in a batch as alone."""
    shapes = np.array([[4, 7], [6, 5], [3, 3]])
    drawn = draw(np.random.default_rng(3), shapes, (4, 4), ACDC)
    strides = np.stack([shapes[:, 1], np.ones(3, dtype=np.int64)], axis=1)
    rows, inside = source_rows(drawn, shapes, strides, (4, 4), CPU)
    for index in range(3):
        alone = Draw(drawn.linear[index : index + 1], drawn.start[index : index + 1])
        row, within = source_rows(alone, shapes[index, None], strides[index, None], (4, 4), CPU)
        assert torch.equal(rows[index], row[0])
        assert torch.equal(inside[index], within[0])


@pytest.mark.parametrize(
    ("shape", "patch", "expected"),
    [
        ((5,), (3,), [2, 3, 4]),
        ((4,), (3,), [1, 2, 3]),
        ((6,), (3,), [3, 4, 5]),
        ((3,), (6,), [0, 0, 1, 2, 3, 0]),
        ((4,), (4,), [1, 2, 3, 4]),
    ],
)
def test_centered(shape: tuple[int], patch: tuple[int], expected: list[int]) -> None:
    scan = numbered(shape)[:, None]
    drawn = centered(one(scan.shape), (*patch, 1))
    np.testing.assert_array_equal(sample(scan, drawn, (*patch, 1))[:, 0], expected)


def test_centers_are_those_of_the_public_pancreas_code() -> None:
    """Pad every axis if one is not larger than the patch, then start at the half of the room, rounded to even."""
    for size, other in product(range(80, 121), (96, 97, 200)):
        is_small = min(size, other) <= 96
        padding = [max((96 - length) // 2 + 1, 0) if is_small else 0 for length in (size, other)]
        rooms = [length + 2 * pad - 96 for length, pad in zip((size, other), padding, strict=True)]
        # half of the room; if the room is odd, the even one of the two neighbors
        starts = [room // 2 + (room % 4 == 3) - pad for room, pad in zip(rooms, padding, strict=True)]
        assert centered(one([size, other]), (96, 96)).start.tolist() == [starts]
    assert centered(one([99, 101, 103]), (96, 96, 96)).start.tolist() == [[2, 2, 4]]


def test_the_same_generator_draws_the_same() -> None:
    shapes = np.full((8, 3), 12)
    first, again, other = (draw(np.random.default_rng(seed), shapes, (6, 6, 6), ACDC) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.start, again.start)
    np.testing.assert_array_equal(first.linear, again.linear)
    assert (first.start != other.start).any()


@pytest.mark.parametrize("wrong", [{"rotate_flip": 1.1}, {"rotate": -0.1}, {"degrees": 0}, {"margin": -1}, {"zoom": 2}])
def test_invalid_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        AugmentSettings.model_validate(wrong)
