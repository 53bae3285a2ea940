"""Slices stretched to the patch and label maps resized back, compared with ``scipy.ndimage.zoom`` of order 0."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from torch import Tensor

from graftseg import api
from graftseg.core.errors import Code, UserError
from graftseg.data.grid import Grid
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.scans import read_scan
from graftseg.inference.model import build_method
from graftseg.inference.predictor import Predictor
from graftseg.inference.resampling import stretched
from graftseg.recipes.recipe import Recipe, changed
from graftseg.recipes.settings import InferenceSettings
from graftseg.training.selection import CaseScores
from user_errors import user_error
from zoom_oracle import Plane, is_lost, zoomed

Shape = tuple[int, ...]
CPU = torch.device("cpu")
ACDC = [(216, 256), (154, 224), (428, 512), (256, 216), (256, 256), (174, 208), (288, 288)]
sizes = st.tuples(st.integers(1, 12), st.integers(1, 12))


def colors(shape: Shape, seed: int = 0) -> npt.NDArray[np.float32]:
    """Draw positive integers, so that a 0 is a filled voxel."""
    return np.random.default_rng(seed).integers(1, 2000, shape).astype(np.float32)


def classes_of(images: Tensor) -> Tensor:
    """Return the class of each voxel as its first channel modulo 4."""
    return torch.nn.functional.one_hot(images[:, 0].long() % 4, 4).movedim(-1, 1).float()


def predict(image: npt.NDArray[np.float32], patch: Plane, grid: Grid | None = None, **chosen: Any) -> npt.NDArray[Any]:
    segment = chosen.pop("segment", classes_of)
    predictor = Predictor(segment, patch, InferenceSettings(**chosen), 4, CPU, "stretch")
    return predictor.maps(torch.from_numpy(image), grid or Grid.identity(image.shape[1:])).labels


def there_and_back(plane: npt.NDArray[np.float32], patch: Plane) -> npt.NDArray[Any]:
    labels = (zoomed(plane, patch) % 4).astype(np.uint8)
    return zoomed(labels + 1, (plane.shape[0], plane.shape[1])) - 1


@pytest.mark.parametrize("size", ACDC)
def test_slices_of_acdc_are_zoomed_as_scipy_does(size: Plane) -> None:
    plane = colors(size)
    there = stretched(torch.from_numpy(plane), (256, 256))
    np.testing.assert_array_equal(there.numpy(), zoomed(plane, (256, 256)))
    np.testing.assert_array_equal(stretched(there, size).numpy(), zoomed(there.numpy(), size))


def test_a_line_that_scipy_loses_is_kept() -> None:
    lost = [(n, m) for n in range(1, 60) for m in range(1, 60) if is_lost(n, m)]
    assert lost
    for n, m in lost[:5]:
        plane = np.ones((n, 3), np.float32)
        assert ndimage.zoom(plane, (m / n, 1), order=0)[-1].tolist() == [0, 0, 0]
        assert stretched(torch.from_numpy(plane), (m, 3)).min() == 1


def test_sizes_of_acdc_at_which_the_public_code_loses_a_line() -> None:
    """Coordinate i of m is i * 255 / (m - 1). SciPy computes it in float64, which can exceed 255 by rounding."""
    lengths = (154, 174, 184, 192, 200, 208, 214, 216, 224, 232, 248, 256, 288, 428, 512)
    exceeds = [m for m in lengths if Fraction(255.0 / (m - 1)) * (m - 1) > 255]
    plane = np.ones((256, 2), np.uint8)
    lost = [m for m in lengths if not ndimage.zoom(plane, (m / 256, 1), order=0)[-1].any()]
    assert lost == [174, 200, 216, 248] and set(lost) <= set(exceeds)
    for m in lengths:
        assert ndimage.zoom(plane, (m / 256, 1), order=0)[:-1].all()
        assert stretched(torch.from_numpy(plane), (m, 2)).all()


@given(size=sizes, patch=sizes)
@settings(deadline=None, max_examples=60)
def test_small_slices_are_zoomed_as_scipy_does(size: Plane, patch: Plane) -> None:
    plane = colors(size)
    np.testing.assert_array_equal(stretched(torch.from_numpy(plane), patch).numpy(), zoomed(plane, patch))


@pytest.mark.parametrize("size", [(216, 256), (154, 224)])
def test_a_slice_of_acdc_is_stretched_and_resized_back(size: Plane) -> None:
    image = colors((1, *size, 2))
    labels = predict(image, (256, 256))
    for z in range(2):
        np.testing.assert_array_equal(labels[..., z], there_and_back(image[0, ..., z], (256, 256)))


@given(size=sizes, patch=sizes, slices=st.integers(0, 5), together=st.integers(1, 4), channels=st.integers(1, 2))
@settings(deadline=None, max_examples=60)
def test_labels_are_stretched_and_resized_back(
    size: Plane, patch: Plane, slices: int, together: int, channels: int
) -> None:
    """Scans are 2-D images or volumes."""
    image = colors((channels, *size, slices) if slices else (channels, *size))
    labels = predict(image, patch, windows_per_forward=together)
    assert labels.dtype == np.uint8 and labels.shape == image.shape[1:]
    planes = image[0].reshape(*size, -1)
    expected = np.stack([there_and_back(planes[..., z], patch) for z in range(planes.shape[-1])], axis=-1)
    np.testing.assert_array_equal(labels, expected.reshape(labels.shape))


def test_a_forward_pass_has_several_float32_slices_of_the_patch_size() -> None:
    seen: list[tuple[torch.dtype, Shape]] = []

    def segment(images: Tensor) -> Tensor:
        seen.append((images.dtype, tuple(images.shape)))
        return classes_of(images)

    predict(colors((2, 5, 6, 7)).astype(np.float16), (8, 4), segment=segment, windows_per_forward=3, overlap=0.9)
    assert seen == [(torch.float32, (3, 2, 8, 4)), (torch.float32, (3, 2, 8, 4)), (torch.float32, (1, 2, 8, 4))]


def test_labels_have_the_resolution_and_axes_of_the_scan() -> None:
    """The scan is prepared at half the in-plane resolution, with swapped axes and a flipped second axis."""
    image = colors((1, 4, 6, 3))
    grid = Grid((12, 8, 3), (1, 0, 2), (False, True, False), (4, 6, 3), (2.0, 2.0, 1.0))
    prepared = (image[0] % 4).astype(np.uint8)
    doubled = prepared.repeat(2, axis=0).repeat(2, axis=1)
    np.testing.assert_array_equal(predict(image, (4, 6), grid), np.flip(doubled, axis=1).transpose(1, 0, 2))


def test_largest_components_are_kept_after_the_stretching() -> None:
    image = np.zeros((1, 1, 7, 1), np.float32)
    image[0, 0, [0, 2, 3, 5], 0] = 1
    labels = predict(image, (1, 7), largest_component=True)
    assert labels.flatten().tolist() == [0, 0, 1, 1, 0, 0, 0]


def test_non_finite_probabilities_are_an_error() -> None:
    def broken(images: Tensor) -> Tensor:
        return classes_of(images) * torch.nan

    with user_error(Code.LOSS_NOT_FINITE, "prediction"):
        predict(colors((1, 4, 4, 2)), (8, 8), segment=broken)


@pytest.mark.parametrize("part", ["inference", "selection"])
def test_a_stride_is_an_error(part: str) -> None:
    recipe = changed(tiny.tiny_recipe(), ["batches.fit=stretch"])
    with pytest.raises(UserError, match=rf"{part}\.stride"):
        changed(recipe, [f"{part}.stride=[4, 4]"])


@pytest.fixture(scope="module")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write volumes for a slice network."""
    return tiny.write_scans(tmp_path_factory.mktemp("volumes"), 3, labeled=2, unlabeled=2, test=2)


def test_a_training_and_its_predictions_stretch_slices(
    volumes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network sees only slices of the patch size in training, scoring and prediction."""
    batches = {"patch": [8, 12], "labeled": 2, "unlabeled": 2, "fit": "stretch"}
    recipe = tiny.tiny_recipe(batches=batches, selection={"every": 4, "oracle": True})
    recipe = changed(recipe, ["stages.0.steps=2", "stages.1.steps=2"])
    api.train(recipe, volumes, tmp_path / "run", device="cpu")
    seen = spy(monkeypatch)
    predicted = api.predict(tmp_path / "run", volumes / "imagesTs", tmp_path / "out", device="cpu")
    assert not predicted.failures and len(predicted.cases) == 2
    assert set(seen) == {(1, 1, 8, 12), (4, 1, 8, 12)}
    assert read_scan(tmp_path / "out" / "test_000.nii.gz").geometry.shape == (16, 16, 16)


def test_scores_are_those_of_stretched_slices(volumes: Path, tmp_path: Path) -> None:
    batches = {"patch": [8, 12], "labeled": 2, "unlabeled": 2, "fit": "stretch"}
    recipe = tiny.tiny_recipe(batches=batches, selection={"every": 4, "oracle": True})
    store = prepare(read_layout(volumes), tmp_path / "store", recipe.data)
    method = build_method(recipe, recipe.stages[-1], store.channels, len(store.classes), CPU).eval()
    case = store.of("test")[0]
    scores = CaseScores(recipe, store, [case], CPU)(method)
    image, label = np.array(store.image(case), np.float32), np.array(store.label(case))
    labels = predict(image, (8, 12), segment=method.segment)
    for value, name in enumerate(store.classes[1:], 1):
        common = ((labels == value) & (label == value)).sum()
        assert scores[f"dice {name}"] == pytest.approx(2 * common / ((labels == value).sum() + (label == value).sum()))


def spy(monkeypatch: pytest.MonkeyPatch) -> list[Shape]:
    """Record the shapes of all images that the network sees during a prediction."""
    seen: list[Shape] = []

    original = Predictor.for_recipe

    def watched(recipe: Recipe, segment: Callable[[Tensor], Tensor], *rest: Any) -> Predictor:
        def noted(images: Tensor) -> Tensor:
            seen.append(tuple(images.shape))
            return segment(images)

        return original(recipe, noted, *rest)

    monkeypatch.setattr(Predictor, "for_recipe", watched)
    return seen
