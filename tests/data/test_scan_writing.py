"""Written scans and label maps are read back unchanged, also by other programs."""

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from graftseg.core.errors import Code
from graftseg.data.scans import Scan, read_geometry, read_label, read_scan, write_label, write_scan
from scan_fakes import (
    OBLIQUE,
    Shape,
    assert_same,
    fuzz,
    geometry,
    nifti,
    plain_and_compressed,
    ramp,
    saved,
)
from user_errors import user_error

special = st.sampled_from([[0.0, 0, 0], [1.0, 0, 0], [0, 0, 1.0], [0.5, 0.5, 0.5], [0, 0.6, 0.8]])
tilts = st.lists(st.floats(-0.5, 0.5, width=32), min_size=3, max_size=3)


@plain_and_compressed
@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 1), (3, 4, 5)])
@pytest.mark.parametrize("codes", [(1, 1), (0, 2), (4, 3)])
@pytest.mark.parametrize("units", ["mm", "meter", "micron", "unknown"])
def test_written_labels_are_read_back(tmp_path: Path, name: str, shape: Shape, codes: Shape, units: str) -> None:
    grid = geometry(shape, units=units, qform_code=codes[0], sform_code=codes[1])
    labels = ramp(*shape, dtype="int64") % 3
    write_label(tmp_path / name, labels, grid)
    assert_same(read_label(tmp_path / name), Scan(labels.astype(np.uint8), grid))
    loaded = nibabel.load(tmp_path / name)
    assert (loaded.shape, loaded.get_data_dtype()) == (shape, np.uint8)
    np.testing.assert_array_equal(loaded.affine, OBLIQUE)
    np.testing.assert_array_equal(np.asarray(loaded.dataobj), labels)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@fuzz
@given(quaternion=special | tilts, code=st.sampled_from([0, 1]))
@pytest.mark.parametrize("qfac", [-1, 1])
def test_a_grid_without_sform_is_kept(tmp_path: Path, quaternion: list[float], code: int, qfac: int) -> None:
    fields = dict(zip(("quatern_b", "quatern_c", "quatern_d"), quaternion, strict=True))
    fields |= {"qform_code": code, "sform_code": 0, "qoffset_y": -7.3}
    content = nifti(ramp(5, 4, 3), {"pixdim": [qfac, 0.7, 0.8, 3, 1, 1, 1, 1], **fields})
    before = read_geometry(saved(tmp_path / "a.nii", content))
    write_label(tmp_path / "b.nii", np.zeros((5, 4, 3), np.uint8), before)
    after = read_geometry(tmp_path / "b.nii")
    assert (after.qform_code, after.sform_code) == (code, 0)
    np.testing.assert_allclose(after.matrix, before.matrix, rtol=0, atol=1e-6)


@pytest.mark.parametrize("code", [0, 1])
def test_an_affine_without_exact_qform_is_written_as_sform(tmp_path: Path, code: int) -> None:
    write_label(tmp_path / "a.nii", ramp(3, 3), geometry((3, 3), qform_code=code, sform_code=0))
    assert read_geometry(tmp_path / "a.nii") == geometry((3, 3), qform_code=code, sform_code=1)


def test_the_same_labels_give_the_same_bytes_in_any_memory_order(tmp_path: Path) -> None:
    labels = ramp(4, 5, 6, dtype="uint8")
    write_label(tmp_path / "a.nii.gz", labels, geometry(labels.shape))
    write_label(tmp_path / "b.nii.gz", np.asfortranarray(labels), geometry(labels.shape))
    assert (tmp_path / "a.nii.gz").read_bytes() == (tmp_path / "b.nii.gz").read_bytes()


def test_large_values_and_long_axes_are_written(tmp_path: Path) -> None:
    labels = np.zeros((40000, 2), np.int64)
    labels[39999, 1] = 256
    write_label(tmp_path / "a.nii.gz", labels, geometry((40000, 2)))
    assert_same(read_label(tmp_path / "a.nii.gz"), Scan(labels.astype(np.uint16), geometry((40000, 2))))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.zeros((2, 2), np.float32), "labels of type float32 are not integers"),
        (np.full((2, 2), -1), "labels from -1 to -1 are not in 0 to 65535"),
        (np.full((2, 2), 65536), "labels from 65536 to 65536 are not in 0 to 65535"),
        (np.zeros((2, 3), np.uint8), r"labels of shape \(2, 3\) on a grid of \(2, 2\)"),
    ],
)
def test_write_label_refuses_other_arrays(tmp_path: Path, labels: NDArray[Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        write_label(tmp_path / "a.nii", labels, geometry((2, 2)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("given", "read"), [(">i2", "i2"), ("f8", "f8"), ("f2", "f4"), ("?", "u1")])
@pytest.mark.parametrize("shape", [(1, 3, 4), (1, 3, 4, 5), (2, 3, 4, 5), (2, 3, 4, 1)])
def test_written_scans_are_read_back(tmp_path: Path, given: str, read: str, shape: Shape) -> None:
    array, grid = ramp(*shape, dtype=given), geometry(shape[1:])
    write_scan(tmp_path / "a.nii.gz", array, grid)
    assert_same(read_scan(tmp_path / "a.nii.gz"), Scan(array.astype(read), grid))


def test_write_scan_refuses_unsupported_files(tmp_path: Path) -> None:
    with user_error(Code.SCAN_UNSUPPORTED, keyword="channels of a 2-D"):
        write_scan(tmp_path / "a.nii", ramp(3, 2, 2), geometry((2, 2)))
    with user_error(Code.OPTION_INVALID, keyword="change the name"):
        write_scan(tmp_path / "a.png", ramp(2, 2), geometry((2, 2)))
    with pytest.raises(ValueError, match="on a grid of"):
        write_scan(tmp_path / "a.nii", ramp(2, 3), geometry((2, 2)))
