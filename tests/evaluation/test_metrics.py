import math

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from graftseg.evaluation.metrics import (
    Directed,
    Mask,
    Protocol,
    Scores,
    dice,
    jaccard,
    score,
    surface_distances,
)

Spacing = tuple[float, ...]
Pair = tuple[Mask, Mask]


@st.composite
def pairs(draw: st.DrawFn, max_side: int = 6) -> Pair:
    """Draw two nonempty masks of one shape, 2-D or 3-D, often touching the border."""
    shape = draw(array_shapes(min_dims=2, max_dims=3, max_side=max_side))
    first, second = (draw(arrays(np.bool_, shape)) for _ in range(2))
    assume(first.any() and second.any())
    return first, second


def spacings(mask: Mask) -> st.SearchStrategy[Spacing]:
    return st.tuples(*[st.floats(0.25, 4.0)] * mask.ndim)


def mask_of(shape: tuple[int, ...], *voxels: tuple[int, ...]) -> Mask:
    mask = np.zeros(shape, dtype=np.bool_)
    for voxel in voxels:
        mask[voxel] = True
    return mask


def as_list(scores: Scores) -> list[float]:
    return [scores.dice, scores.jaccard, scores.hd95, scores.hd95_max, scores.asd, scores.assd]


def brute_force_distances(prediction: Mask, reference: Mask, spacing: Spacing) -> Directed:
    """Compute surface distances by brute force."""

    def surface(mask: Mask) -> npt.NDArray[np.float64]:
        filled = {tuple(voxel) for voxel in np.argwhere(mask).tolist()}
        steps = np.concatenate([np.eye(mask.ndim, dtype=int), -np.eye(mask.ndim, dtype=int)])
        on_surface = [v for v in sorted(filled) if any(tuple((v + step).tolist()) not in filled for step in steps)]
        return np.asarray(np.multiply(on_surface, spacing), dtype=np.float64)

    P, G = surface(prediction), surface(reference)
    distances: npt.NDArray[np.float64] = np.sqrt(((P[:, None] - G[None]) ** 2).sum(axis=-1))
    return distances.min(axis=1), distances.min(axis=0)


def test_exact_numbers_of_two_rows_of_pixels() -> None:
    prediction = mask_of((3, 10), (1, 0), (1, 1))
    reference = mask_of((3, 10), (1, 1), (1, 2), (1, 3), (1, 6))
    forth, back = surface_distances(prediction, reference)
    assert forth.tolist() == [1, 0]
    assert back.tolist() == [0, 1, 2, 5]
    scores = score(prediction, reference)
    assert scores.dice == 2 * 1 / (2 + 4)
    assert scores.jaccard == 1 / 5
    assert scores.asd == 0.5
    assert scores.assd == 9 / 6
    assert scores.hd95 == pytest.approx(2 + 0.75 * 3)  # rank 4.75 of 0 0 1 1 2 5
    assert scores.hd95_max == pytest.approx(2 + 0.85 * 3)  # rank 2.85 of 0 1 2 5


def test_spacing_gives_distances_in_millimeters() -> None:
    prediction, reference = mask_of((4, 4, 4), (0, 0, 0)), mask_of((4, 4, 4), (1, 2, 2))
    assert score(prediction, reference).hd95 == pytest.approx(3.0)
    assert score(prediction, reference, spacing=(2.0, 1.0, 0.5)).assd == pytest.approx(3.0)
    assert score(prediction, reference, spacing=(6.0, 2.0, 1.5)).asd == pytest.approx(math.sqrt(36 + 16 + 9))


def test_only_voxels_with_a_background_face_are_surface() -> None:
    cube = np.ones((5, 5, 5), dtype=np.bool_)
    centre = mask_of((5, 5, 5), (2, 2, 2))
    forth, back = surface_distances(cube, centre)
    assert len(forth) == 5**3 - 3**3
    assert back.tolist() == [2.0]


@pytest.mark.parametrize(
    ("protocol", "prediction", "reference", "overlap", "distance"),
    [
        ("standard", False, False, 1.0, 0.0),
        ("standard", True, False, 0.0, 13.0),
        ("standard", False, True, 0.0, 13.0),
        ("paper", False, False, 0.0, 0.0),
        ("paper", False, True, 0.0, 0.0),
        ("paper", True, False, 0.0, math.nan),
    ],
)
def test_empty_masks(protocol: Protocol, prediction: bool, reference: bool, overlap: float, distance: float) -> None:
    masks = [np.full((3, 4, 6), filled, dtype=np.bool_) for filled in (prediction, reference)]
    scores = score(*masks, spacing=(1.0, 1.0, 2.0), protocol=protocol)
    assert as_list(scores) == pytest.approx([overlap] * 2 + [distance] * 4, nan_ok=True)
    assert scores.surface_dice == overlap


def test_the_worst_distance_is_counted_in_voxels_without_a_spacing() -> None:
    assert score(mask_of((3, 4), (0, 0)), mask_of((3, 4))).hd95 == pytest.approx(5.0)


def test_the_protocol_changes_nothing_for_masks_with_voxels() -> None:
    masks = mask_of((5, 5), (0, 0), (1, 1)), mask_of((5, 5), (3, 4))
    assert score(*masks, protocol="paper") == score(*masks)


def test_overlap_of_two_empty_masks_is_one() -> None:
    empty = mask_of((3, 3))
    assert dice(empty, empty) == jaccard(empty, empty) == 1.0


def test_incompatible_masks_are_an_error() -> None:
    one = mask_of((3, 3), (1, 1))
    with pytest.raises(ValueError, match="different shapes"):
        score(one, mask_of((3, 4), (1, 1)))
    with pytest.raises(ValueError, match="boolean, not uint8"):
        dice(one.astype(np.uint8), one)
    with pytest.raises(ValueError, match="no surface"):
        surface_distances(one, mask_of((3, 3)))
    with pytest.raises(ValueError, match="spacing has 3 values"):
        surface_distances(one, one, (1.0, 1.0, 1.0))


@settings(deadline=None, max_examples=40)
@given(st.data(), pairs(max_side=5))
def test_distances_are_those_of_brute_force(data: st.DataObject, pair: Pair) -> None:
    spacing = data.draw(spacings(pair[0]))
    for ours, expected in zip(surface_distances(*pair, spacing), brute_force_distances(*pair, spacing), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.data(), pairs())
def test_agreement_with_medpy(data: st.DataObject, pair: Pair) -> None:
    from medpy.metric import binary as medpy

    assert dice(*pair) == medpy.dc(*pair)
    assert jaccard(*pair) == medpy.jc(*pair)
    for spacing in (None, data.draw(spacings(pair[0]))):
        scores = score(*pair, spacing=spacing)
        assert scores.hd95 == pytest.approx(medpy.hd95(*pair, voxelspacing=spacing), rel=1e-9)
        assert scores.asd == pytest.approx(medpy.asd(*pair, voxelspacing=spacing), rel=1e-9)
        assert scores.assd == pytest.approx(medpy.assd(*pair, voxelspacing=spacing), rel=1e-9)


@pytest.mark.filterwarnings("ignore:.*always_return_as_numpy:FutureWarning")  # MONAI calls its own old argument
@settings(deadline=None, max_examples=30)
@given(st.data(), pairs())
@pytest.mark.slow
def test_agreement_with_monai(data: st.DataObject, pair: Pair) -> None:
    from monai.metrics import compute_average_surface_distance, compute_hausdorff_distance

    P, G = (torch.from_numpy(mask)[None, None] for mask in pair)
    for spacing in (None, data.draw(spacings(pair[0]))):
        scores = score(*pair, spacing=spacing)
        options = {"include_background": True, "spacing": spacing}
        hausdorff = compute_hausdorff_distance(P, G, percentile=95, **options)
        assert scores.hd95_max == pytest.approx(float(hausdorff), rel=1e-4, abs=1e-5)  # in float32
        assert scores.asd == pytest.approx(float(compute_average_surface_distance(P, G, **options)), rel=1e-5)
        symmetric = compute_average_surface_distance(P, G, symmetric=True, **options)
        assert scores.assd == pytest.approx(float(symmetric), rel=1e-5)


def test_surface_dice_counts_surface_voxels_within_the_tolerance() -> None:
    prediction, reference = mask_of((3, 10), (1, 0), (1, 1)), mask_of((3, 10), (1, 1), (1, 2), (1, 3), (1, 6))
    tolerances = (0.0, 0.999, 1.0, 2.0, 5.0)  # the distances are 0, 1 and 0, 1, 2, 5
    shares = [score(prediction, reference, tolerance=tolerance).surface_dice for tolerance in tolerances]
    assert shares == [2 / 6, 2 / 6, 4 / 6, 5 / 6, 1.0]
    pair, spacing = (mask_of((2, 2), (0, 0)), mask_of((2, 2), (1, 0))), (1 + 1e-7, 1.0)
    assert score(*pair, spacing=spacing).surface_dice == 1.0, "a voxel of 1 mm in single precision"


@settings(deadline=None, max_examples=30)
@given(st.data(), pairs(max_side=5), st.floats(0, 6))
def test_surface_dice_is_that_of_brute_force(data: st.DataObject, pair: Pair, tolerance: float) -> None:
    spacing = data.draw(spacings(pair[0]))
    pooled = np.concatenate(brute_force_distances(*pair, spacing))
    assume(np.abs(pooled - tolerance).min() > 1e-4)
    expected = np.count_nonzero(pooled <= tolerance) / len(pooled)
    assert score(*pair, spacing=spacing, tolerance=tolerance).surface_dice == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore:.*always_return_as_numpy:FutureWarning")
@settings(deadline=None, max_examples=30)
@given(st.data(), pairs(), st.floats(0.01, 6))
@pytest.mark.slow
def test_surface_dice_is_that_of_monai(data: st.DataObject, pair: Pair, tolerance: float) -> None:
    from monai.metrics import compute_surface_dice

    spacing = data.draw(spacings(pair[0]))
    assume(np.abs(np.concatenate(surface_distances(*pair, spacing)) - tolerance).min() > 1e-4)
    P, G = (torch.from_numpy(mask)[None, None] for mask in pair)
    expected = compute_surface_dice(P, G, [tolerance], include_background=True, spacing=spacing)
    assert score(*pair, spacing=spacing, tolerance=tolerance).surface_dice == pytest.approx(float(expected), rel=1e-5)


@settings(deadline=None, max_examples=40)
@given(pairs())
def test_all_but_asd_are_symmetric(pair: Pair) -> None:
    forth, back = score(*pair), score(*pair[::-1])
    assert (forth.dice, forth.jaccard) == (back.dice, back.jaccard)
    assert (forth.hd95, forth.hd95_max) == pytest.approx((back.hd95, back.hd95_max))
    assert forth.assd == pytest.approx(back.assd)
    assert forth.surface_dice == back.surface_dice


@settings(deadline=None, max_examples=40)
@given(st.data(), pairs())
def test_background_around_the_masks_changes_nothing(data: st.DataObject, pair: Pair) -> None:
    margin = st.tuples(st.integers(0, 3), st.integers(0, 3))
    margins = data.draw(st.lists(margin, min_size=pair[0].ndim, max_size=pair[0].ndim))
    spacing = data.draw(spacings(pair[0]))
    padded = [np.pad(mask, margins) for mask in pair]
    assert as_list(score(*padded, spacing=spacing)) == pytest.approx(as_list(score(*pair, spacing=spacing)))


@settings(deadline=None, max_examples=40)
@given(st.data(), pairs())
def test_order_and_direction_of_the_axes_change_nothing(data: st.DataObject, pair: Pair) -> None:
    spacing = data.draw(spacings(pair[0]))
    axes = data.draw(st.permutations(range(pair[0].ndim)))
    turned = [np.flip(mask.transpose(axes), axis=0) for mask in pair]
    turned_spacing = [spacing[axis] for axis in axes]
    assert as_list(score(*turned, spacing=turned_spacing)) == pytest.approx(as_list(score(*pair, spacing=spacing)))


@settings(deadline=None, max_examples=40)
@given(pairs())
def test_bounds_and_relations(pair: Pair) -> None:
    scores = score(*pair)
    distances = surface_distances(*pair)
    assert 0 <= scores.jaccard <= scores.dice <= 1
    assert scores.jaccard == pytest.approx(scores.dice / (2 - scores.dice))
    largest = max(directed.max() for directed in distances)
    for distance in (scores.hd95, scores.hd95_max, scores.asd, scores.assd):
        assert 0 <= distance <= largest + 1e-9
    assert largest < math.hypot(*pair[0].shape)


@settings(deadline=None, max_examples=40)
@given(pairs())
def test_a_mask_agrees_with_itself(pair: Pair) -> None:
    assert as_list(score(pair[0], pair[0])) == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
