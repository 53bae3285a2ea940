from math import ceil, exp

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.grid import Grid, plan_grid, to_grid
from graftseg.inference.predictor import Predictor
from graftseg.inference.sliding_window import Segment, gaussian_weights, probability_slabs, window_starts
from graftseg.recipes.settings import InferenceSettings
from loops import for_each
from user_errors import user_error

Shape = tuple[int, ...]
UNIFORM = InferenceSettings(window="uniform")
GAUSSIAN = InferenceSettings()
small_shapes = st.lists(st.integers(1, 9), min_size=2, max_size=3).map(tuple)
seeds = st.integers(0, 2**16)


def softmax(images: Tensor) -> Tensor:
    """Return the softmax over channels: a network that sees one voxel at a time."""
    return images.softmax(dim=1)


def two_classes(images: Tensor) -> Tensor:
    """Return the first channel as foreground probability."""
    return torch.cat([1 - images[:, :1], images[:, :1]], dim=1)


def convolution(axes: int) -> Segment:
    """Return a network whose output depends on neighboring voxels and so on the window."""
    torch.manual_seed(0)
    layer = (nn.Conv2d if axes == 2 else nn.Conv3d)(1, 3, kernel_size=3, padding=1)
    return lambda images: layer(images).softmax(dim=1)


def assembled(segment: Segment, image: Tensor, patch: Shape, chosen: InferenceSettings) -> Tensor:
    """Concatenate all slabs. They must be contiguous and at most as thick as the patch."""
    parts: list[Tensor] = []
    for start, slab in probability_slabs(segment, image, patch, chosen):
        assert start == sum(part.shape[1] for part in parts)
        assert 1 <= slab.shape[1] <= (patch[0] if len(patch) == image.ndim - 1 else 1)
        parts.append(slab)
    return torch.cat(parts, dim=1)


def same_grid(shape: Shape) -> Grid:
    return grid_of(shape, (1.0, 1.0, 1.0))


def grid_of(shape: Shape, spacing: Shape | tuple[float, ...], target: tuple[float, ...] | None = None) -> Grid:
    affine = np.diag([*spacing, *[1.0] * (4 - len(spacing))])
    geometry = Geometry(shape=shape, affine=tuple(tuple(map(float, row)) for row in affine))
    return plan_grid(geometry, orientation=None, spacing=target)


def predict(
    image: Tensor, grid: Grid, patch: Shape, chosen: InferenceSettings = GAUSSIAN, segment: Segment = softmax
) -> NDArray[np.uint8]:
    classes = image.shape[0] if segment is softmax else 2
    return Predictor(segment, patch, chosen, classes, torch.device("cpu")).maps(image, grid).labels


@pytest.mark.parametrize(
    ("size", "patch", "stride", "expected"),
    [
        (10, 4, 3, [0, 3, 6]),
        (11, 4, 3, [0, 3, 6, 7]),
        (4, 4, 3, [0]),
        (3, 4, 3, [0]),
        (1, 1, 1, [0]),
        (88, 80, 4, [0, 4, 8]),
    ],
)
def test_window_starts(size: int, patch: int, stride: int, expected: list[int]) -> None:
    assert window_starts(size, patch, stride) == expected


@given(patch=st.integers(1, 40), beyond=st.integers(0, 200), data=st.data())
@settings(deadline=None, max_examples=60)
def test_windows_cover_the_axis(patch: int, beyond: int, data: st.DataObject) -> None:
    stride = data.draw(st.integers(1, patch))
    starts = window_starts(patch + beyond, patch, stride)
    assert len(starts) == ceil(beyond / stride) + 1
    assert starts == sorted(set(starts))
    assert {start + i for start in starts for i in range(patch)} == set(range(patch + beyond))


def test_a_voxel_is_the_mean_of_its_windows() -> None:
    def later_is_foreground(windows: Tensor) -> Tensor:
        return two_classes(torch.tensor([0.0, 1.0]).reshape(1, 1, 2, 1).expand(len(windows), 1, 2, 1))

    chosen = InferenceSettings(window="uniform", stride=(1, 1))
    probabilities = assembled(later_is_foreground, torch.zeros(1, 4, 1), (2, 1), chosen)
    assert probabilities[1].flatten().tolist() == [0.0, 0.5, 0.5, 1.0]


def test_gaussian_weights_by_hand() -> None:
    """The standard deviation is 1 along 8 voxels and 1/4 along 2 voxels."""
    along, across = [3.5, 2.5, 1.5, 0.5, 0.5, 1.5, 2.5, 3.5], exp(-(0.5**2) / (2 * 0.25**2))
    expected = [[max(exp(-(offset**2) / 2) * across, 0.001)] * 2 for offset in along]
    assert torch.allclose(gaussian_weights((8, 2)), torch.tensor(expected))
    assert expected[0][0] == 0.001 and gaussian_weights((1, 3))[0, 1] == 1


@pytest.mark.slow
def test_gaussian_weights_equal_those_of_monai() -> None:
    monai = pytest.importorskip("monai.data.utils")
    for patch in ((256, 256), (112, 112, 80), (1, 16, 15), (2, 3), (7, 1, 5), (60, 41)):
        expected = monai.compute_importance_map(patch, mode="gaussian", sigma_scale=0.125)
        assert torch.equal(gaussian_weights(patch), expected), patch


@for_each(("window", "mode"), [("gaussian", "gaussian"), ("uniform", "constant")])
@for_each(
    ("shape", "patch", "overlap"),
    [
        ((13, 9, 10), (6, 4, 8), 0.5),
        ((7, 12, 3), (4, 8, 5), 0.25),
        ((11, 14), (5, 7), 0.5),
        ((4, 9), (6, 4), 0.75),
    ],
)
def test_agrees_with_monai(window: str, mode: str, shape: Shape, patch: Shape, overlap: float) -> None:
    from monai.inferers.utils import sliding_window_inference

    segment, image = (
        convolution(len(shape)),
        torch.randn(1, *shape, generator=torch.Generator().manual_seed(1)),
    )
    chosen = InferenceSettings.model_validate({"window": window, "overlap": overlap, "windows_per_forward": 3})
    with torch.inference_mode():
        expected = sliding_window_inference(image[None], patch, 2, segment, overlap=overlap, mode=mode)[0]
    torch.testing.assert_close(assembled(segment, image, patch, chosen), expected, atol=1e-5, rtol=0)


@given(shape=small_shapes, window=st.sampled_from([UNIFORM, GAUSSIAN]), data=st.data())
@settings(deadline=None, max_examples=60)
def test_windows_do_not_matter_for_a_voxelwise_network(
    shape: Shape, window: InferenceSettings, data: st.DataObject
) -> None:
    patch = tuple(data.draw(st.integers(1, 6)) for _ in range(data.draw(st.integers(2, len(shape)))))
    stride = tuple(data.draw(st.integers(1, size)) for size in patch)
    chosen = window.model_copy(update={"stride": stride, "windows_per_forward": data.draw(st.integers(1, 5))})
    image = torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
    expected = softmax(image[None])[0]
    if len(patch) < len(shape):
        expected = expected.movedim(-1, 1)
    torch.testing.assert_close(assembled(softmax, image, patch, chosen), expected, atol=1e-6, rtol=0)


def test_an_image_much_smaller_than_a_window() -> None:
    """Slabs have eight planes, so some lie completely in the padding."""
    for shape, patch in (((20, 5), (48, 8)), ((3, 4), (40, 4)), ((21, 5, 6), (64, 8, 8))):
        for size in range(1, shape[0] + 1):
            image = torch.randn(2, size, *shape[1:], generator=torch.Generator().manual_seed(size))
            labels = predict(image, same_grid((size, *shape[1:])), patch)
            assert torch.allclose(assembled(softmax, image, patch, UNIFORM), image.softmax(dim=0), atol=1e-6)
            assert np.array_equal(labels, image.argmax(dim=0).numpy()), (size, patch)


def test_a_constant_network_gives_a_constant_map() -> None:
    def constant(windows: Tensor) -> Tensor:
        return torch.full((len(windows), 2, *windows.shape[2:]), 0.5)

    for chosen in (UNIFORM, GAUSSIAN):
        probabilities = assembled(constant, torch.randn(1, 9, 7, 5), (4, 4, 4), chosen)
        torch.testing.assert_close(probabilities, torch.full((2, 9, 7, 5), 0.5))


def test_a_forward_pass_sees_few_float32_windows_without_gradient() -> None:
    seen: list[tuple[Shape, torch.dtype, bool]] = []

    def watched(windows: Tensor) -> Tensor:
        seen.append((tuple(windows.shape), windows.dtype, torch.is_grad_enabled()))
        return softmax(windows)

    chosen = InferenceSettings(stride=(4, 4, 4), windows_per_forward=5)
    list(probability_slabs(watched, torch.zeros(2, 12, 4, 8, dtype=torch.float16), (4, 4, 4), chosen))
    assert seen == [((count, 2, 4, 4, 4), torch.float32, False) for count in (5, 1)]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("patch", [(6, 7), (8, 10), (9, 7)])
def test_slices_equal_one_forward_per_slice(patch: Shape) -> None:
    segment, volume = convolution(2), torch.randn(1, 6, 7, 5, generator=torch.Generator().manual_seed(2))
    left, top = (patch[0] - 6) // 2, (patch[1] - 7) // 2
    sides = [top, patch[1] - 7 - top, left, patch[0] - 6 - left]
    with torch.inference_mode():
        slices = [segment(F.pad(volume[None, ..., z], sides))[0] for z in range(5)]
    expected = torch.stack([part[:, left : left + 6, top : top + 7] for part in slices], dim=1)
    chosen = InferenceSettings(windows_per_forward=1)
    assert torch.equal(assembled(segment, volume, patch, chosen), expected)
    torch.testing.assert_close(assembled(segment, volume, patch, GAUSSIAN), expected)


def test_large_slices_are_windowed_like_images() -> None:
    segment, volume = convolution(2), torch.randn(1, 9, 11, 3, generator=torch.Generator().manual_seed(3))
    slices = [assembled(segment, volume[..., z], (4, 6), GAUSSIAN) for z in range(3)]
    torch.testing.assert_close(assembled(segment, volume, (4, 6), GAUSSIAN), torch.stack(slices, dim=1))


@pytest.mark.parametrize(("shape", "patch"), [((7, 6, 5), (4, 4, 4)), ((7, 6, 5), (8, 8)), ((9, 6), (4, 4))])
def test_equal_resolutions_give_the_argmax(shape: Shape, patch: Shape) -> None:
    image = torch.randn(4, *shape, generator=torch.Generator().manual_seed(4))
    labels = predict(image, same_grid(shape), patch)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, image.argmax(dim=0).numpy())


def test_ties() -> None:
    halves = torch.tensor([0.5, 0.5 + 2**-10, 0.5 - 2**-10, 1.0]).reshape(1, 4, 1)
    for decision in ("argmax", "threshold"):
        chosen = InferenceSettings.model_validate({"decision": decision})
        labels = predict(halves, same_grid((4, 1)), (4, 1), chosen, two_classes)
        assert labels.flatten().tolist() == [0, 1, 0, 1]
    assert not predict(torch.zeros(3, 5, 4), same_grid((5, 4)), (5, 4)).any()


def dense_probabilities(image: Tensor, shape: Shape) -> Tensor:
    mode = {2: "bilinear", 3: "trilinear"}[len(shape)]
    return F.interpolate(softmax(image[None]), size=shape, mode=mode, align_corners=False)[0]


@given(shape=small_shapes, data=st.data(), seed=seeds)
@settings(deadline=None, max_examples=60)
def test_labels_from_slabs_equal_dense_labels(shape: Shape, data: st.DataObject, seed: int) -> None:
    target = tuple(data.draw(st.sampled_from([0.4, 0.75, 1.0, 1.6, 3.0])) for _ in shape)
    patch = tuple(data.draw(st.integers(1, 5)) for _ in range(data.draw(st.integers(2, len(shape)))))
    grid = grid_of(shape, (1.0,) * len(shape), target)
    image = torch.randn(3, *grid.prepared_shape, generator=torch.Generator().manual_seed(seed))
    probabilities = dense_probabilities(image, shape)
    labels = predict(image, grid, patch)
    best = probabilities.topk(2, dim=0).values
    clear = (best[0] - best[1] > 1e-5).numpy()
    np.testing.assert_array_equal(labels[clear], probabilities.argmax(dim=0).numpy()[clear])


@pytest.mark.parametrize("patch", [(20, 5, 4), (6, 6)])
def test_labels_from_thick_slabs_equal_dense_labels(patch: Shape) -> None:
    grid = grid_of((30, 5, 37), (1.5, 1.0, 1.0), (1.0, 1.3, 0.9))
    image = torch.randn(3, *grid.prepared_shape, generator=torch.Generator().manual_seed(5))
    expected = dense_probabilities(image, (30, 5, 37)).argmax(dim=0).numpy()
    np.testing.assert_array_equal(predict(image, grid, patch), expected)


TURNED = ((0.0, 0.0, -2.0, 5.0), (1.5, 0.0, 0.0, -7.0), (0.0, -1.0, 0.0, 3.0), (0.0, 0.0, 0.0, 1.0))


def blobs(shape: Shape) -> NDArray[np.uint8]:
    """Return a large and a small ellipsoid, off center, with different widths along each axis."""
    index = np.moveaxis(np.indices(shape), 0, -1)
    large: NDArray[np.bool_] = (((index - (9, 12, 7)) / (5, 7, 4)) ** 2).sum(axis=-1) <= 1
    small: NDArray[np.bool_] = (((index - (19, 3, 15)) / 2) ** 2).sum(axis=-1) <= 1
    return (large | small).astype(np.uint8)


@pytest.mark.parametrize("patch", [(10, 10, 10), (12, 12)])
def test_a_reoriented_scan_is_restored_exactly(patch: Shape) -> None:
    scan = blobs((24, 20, 18))
    grid = plan_grid(Geometry((24, 20, 18), TURNED), orientation="RAS", spacing=None)
    image = torch.from_numpy(to_grid(scan[None].astype(np.float32), grid, labels=False).copy())
    assert tuple(image.shape[1:]) == (18, 24, 20)
    labels = predict(image, grid, patch, segment=two_classes)
    assert labels.flags.c_contiguous
    np.testing.assert_array_equal(labels, scan)


@pytest.mark.parametrize("patch", [(10, 10, 10), (12, 12)])
@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (1.3, 1.7, 0.6)])
def test_a_reoriented_and_resampled_scan_is_restored(patch: Shape, spacing: tuple[float, ...]) -> None:
    scan = blobs((24, 20, 18))
    grid = plan_grid(Geometry((24, 20, 18), TURNED), orientation="RAS", spacing=spacing)
    image = torch.from_numpy(to_grid(scan[None].astype(np.float32), grid, labels=False).copy())
    labels = predict(image, grid, patch, segment=two_classes)
    assert 2 * (labels & scan).sum() / (labels.sum() + scan.sum()) > 0.95
    shift = np.argwhere(labels).mean(axis=0) - np.argwhere(scan).mean(axis=0)
    assert np.abs(shift).max() < 0.2


def test_largest_component() -> None:
    scan = blobs((24, 20, 18))
    image = torch.from_numpy(scan[None].astype(np.float32))
    labels = predict(image, same_grid(scan.shape), (24, 20, 18), InferenceSettings(largest_component=True), two_classes)
    expected = scan.copy()
    expected[15:] = 0
    assert 0 < expected.sum() < scan.sum()
    np.testing.assert_array_equal(labels, expected)


def test_volume_network_on_an_image() -> None:
    with user_error(Code.RECIPE_MISMATCH, "patch", "3 axes"):
        predict(torch.zeros(2, 6, 6), same_grid((6, 6)), (4, 4, 4))


def test_threshold_between_three_classes() -> None:
    with user_error(Code.RECIPE_MISMATCH, "inference.decision", "argmax"):
        predict(torch.zeros(3, 6, 6), same_grid((6, 6)), (4, 4), InferenceSettings(decision="threshold"))


def test_too_many_classes_for_a_label_map() -> None:
    with user_error(Code.RECIPE_MISMATCH, "classes", "257"):
        predict(torch.zeros(257, 2, 2), same_grid((2, 2)), (2, 2))


def test_probabilities_that_are_not_finite() -> None:
    image = torch.zeros(2, 6, 6)
    image[0, 3, 3] = torch.nan
    with user_error(Code.LOSS_NOT_FINITE, "prediction"):
        predict(image, same_grid((6, 6)), (4, 4))


def test_image_grid_and_network_must_fit() -> None:
    with pytest.raises(ValueError, match=r"\(6, 5\) voxels for a grid of \(6, 6\)"):
        predict(torch.zeros(2, 6, 5), same_grid((6, 6)), (4, 4))
    with pytest.raises(ValueError, match="returns 3 classes instead of 2"):
        predict(torch.zeros(1, 6, 6), same_grid((6, 6)), (6, 6), segment=convolution(2))


@pytest.mark.parametrize(
    "wrong", [{"overlap": 1.0}, {"stride": (0, 1)}, {"windows_per_forward": 0}, {"window": "hann"}]
)
def test_invalid_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        InferenceSettings.model_validate(wrong)
