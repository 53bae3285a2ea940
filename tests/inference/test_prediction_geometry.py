"""Label maps have exactly the geometry of their scans, for any axes, compared with nibabel."""

import math
from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from graftseg.core.types import Case
from graftseg.data.intensity import IntensitySettings
from graftseg.data.prepare import PrepareSettings
from graftseg.data.scans import read_label
from graftseg.inference.inputs import scan_source
from graftseg.inference.label_maps import ExtraMaps, names_of, write_maps
from graftseg.inference.predictor import Predictor
from graftseg.recipes.settings import InferenceSettings

ALL = ExtraMaps(probabilities=True, uncertainty=True)
NAMES = names_of("scan", ALL)
lengths = st.integers(1, 9)
steps = st.sampled_from([0.3, 0.7, 1.0, 2.5, 8.0])
matrices = st.builds(
    lambda order, signs, spacing, tilt, origin: affine(order, signs, spacing, tilt, origin),
    st.permutations(range(3)),
    st.tuples(*[st.sampled_from([-1.0, 1.0])] * 3),
    st.tuples(steps, steps, steps),
    st.tuples(*[st.floats(-20, 20)] * 3),
    st.tuples(*[st.floats(-300, 300)] * 3),
)
few = settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


def affine(
    order: list[int],
    signs: tuple[float, ...],
    spacing: tuple[float, ...],
    tilt: tuple[float, ...],
    origin: tuple[float, ...],
) -> NDArray[np.float64]:
    """Draw an affine with axes in any order and direction, any spacing, and a tilt."""
    turned = Rotation.from_euler("xyz", tilt, degrees=True).as_matrix() @ np.eye(3)[:, order]
    matrix = np.eye(4)
    matrix[:3, :3] = turned * np.multiply(signs, spacing)
    matrix[:3, 3] = origin
    return matrix


def copying(images: Tensor) -> Tensor:
    """Return a network that finds foreground where the image is above 0.5."""
    bright = (images[:, :1] > 0.5).float()
    return torch.cat([1 - bright, bright], dim=1)


def predict(folder: Path, scan: Path, patch: tuple[int, ...], spacing: tuple[float, ...] | None = None) -> None:
    """Predict a scan and write its maps into the same folder."""
    prepare = PrepareSettings.model_validate(
        {"dimensions": len(patch), "spacing": spacing, "intensity": IntensitySettings(rule="none")}
    )
    source = scan_source(Case("scan", (scan,), None, "test"), prepare)
    read = source.read()
    assert read.grid == source.grid(), "the header is enough for the grid"
    maps = Predictor(copying, patch, InferenceSettings(), 2, torch.device("cpu")).maps(read.image, read.grid, ALL)
    write_maps(folder, NAMES, maps, read.geometry)


def written(path: Path, voxels: NDArray[np.float32], matrix: NDArray[np.float64]) -> Path:
    nibabel.save(nibabel.Nifti1Image(voxels, matrix), path)
    return path


def noise(shape: tuple[int, ...], seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


@given(shape=st.tuples(lengths, lengths, lengths), matrix=matrices, slices=st.booleans(), seed=st.integers(0, 99))
@few
def test_a_label_map_equals_its_scan_voxel_by_voxel(
    tmp_path: Path, shape: tuple[int, ...], matrix: NDArray[np.float64], slices: bool, seed: int
) -> None:
    scan = written(tmp_path / "scan_0000.nii", noise(shape, seed), matrix)
    predict(tmp_path, scan, (4, 4) if slices else (4, 4, 4))
    given_scan, labels = nibabel.load(scan), nibabel.load(tmp_path / NAMES.labels)
    expected = np.asarray(given_scan.dataobj) > 0.5
    np.testing.assert_array_equal(np.asarray(labels.dataobj), expected)
    assert labels.get_data_dtype() == np.uint8
    probabilities = nibabel.load(tmp_path / str(NAMES.probabilities))
    np.testing.assert_allclose(probabilities.get_fdata(), np.stack([~expected, expected], axis=-1), atol=1e-6)
    assert not nibabel.load(tmp_path / str(NAMES.uncertainty)).get_fdata().any()
    for written_map in (labels, probabilities):
        assert written_map.affine.tobytes() == given_scan.affine.tobytes()


@given(shape=st.tuples(lengths, lengths, lengths), matrix=matrices, spacing=st.tuples(steps, steps, steps))
@few
def test_a_resampled_scan_gives_maps_of_its_own_geometry(
    tmp_path: Path, shape: tuple[int, ...], matrix: NDArray[np.float64], spacing: tuple[float, ...]
) -> None:
    scan = written(tmp_path / "scan_0000.nii", noise(shape, 0), matrix)
    predict(tmp_path, scan, (4, 4, 4), spacing)
    given_scan = nibabel.load(scan)
    for name, channels in zip(NAMES.all, ((), (2,), ()), strict=True):
        one = nibabel.load(tmp_path / name)
        assert one.shape == (*shape, *channels)
        assert one.affine.tobytes() == given_scan.affine.tobytes()
        assert one.get_sform(coded=True)[1] == given_scan.get_sform(coded=True)[1]
        assert math.prod(one.shape) == np.asarray(one.dataobj).size


@given(shape=st.tuples(lengths, lengths), matrix=matrices, seed=st.integers(0, 99))
@few
def test_a_2d_image_keeps_its_geometry(
    tmp_path: Path, shape: tuple[int, ...], matrix: NDArray[np.float64], seed: int
) -> None:
    voxels = noise(shape, seed)
    scan = written(tmp_path / "scan_0000.nii", voxels, matrix)
    predict(tmp_path, scan, (4, 4))
    labels = read_label(tmp_path / NAMES.labels)
    np.testing.assert_array_equal(labels.array, voxels > 0.5)
    assert np.asarray(labels.geometry.matrix).tobytes() == nibabel.load(scan).affine.tobytes()
    assert nibabel.load(tmp_path / str(NAMES.probabilities)).shape == (*shape, 1, 2), "a volume of one slice"
    assert nibabel.load(tmp_path / str(NAMES.uncertainty)).shape == shape


def test_a_constant_plane_of_probability_survives_resampling(tmp_path: Path) -> None:
    """Half of the scan is bright. After resampling and back, the boundary is at the same place."""
    voxels = np.zeros((12, 10, 8), np.float32)
    voxels[6:] = 1
    scan = written(tmp_path / "scan_0000.nii", voxels, np.diag([-1.0, 2.0, 1.5, 1.0]))
    predict(tmp_path, scan, (8, 8, 8), (0.5, 1.0, 3.0))
    np.testing.assert_array_equal(read_label(tmp_path / NAMES.labels).array, voxels > 0.5)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_the_same_scan_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    scan = written(tmp_path / f"scan_0000{suffix}", noise((5, 6, 7), 1), np.diag([1.0, 1.0, 2.0, 1.0]))
    outputs = []
    for _ in range(2):
        predict(tmp_path, scan, (4, 4, 4))
        outputs.append([(tmp_path / name).read_bytes() for name in NAMES.all])
    assert outputs[0] == outputs[1]
