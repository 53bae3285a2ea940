import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nibabel.orientations import apply_orientation, io_orientation
from numpy.typing import NDArray

from graftseg.core.types import Geometry
from graftseg.reporting.viewer.volumes import (
    PART_BYTES,
    PART_VOXELS,
    Turn,
    as_nifti,
    center_slices,
    compact,
    nifti_parts,
    nifti_size,
)


def geometry(shape: tuple[int, ...], affine: NDArray[np.float64]) -> Geometry:
    return Geometry(shape, tuple(map(tuple, np.asarray(affine, float).tolist())))


@given(st.permutations(range(3)), st.tuples(*[st.sampled_from((-2.0, 0.5, 3.0))] * 3))
def test_volumes_are_turned_as_nibabel_turns_them(order: list[int], steps: tuple[float, float, float]) -> None:
    affine = np.eye(4)
    affine[:3, :3] = np.eye(3)[list(order)].T * steps
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    turn = Turn.of(geometry(array.shape, affine))
    volume = turn.to_volume(array)
    assert np.array_equal(volume, apply_orientation(array, io_orientation(affine)))
    assert np.array_equal(turn.to_scan(volume), array)
    assert turn.spacing == tuple(abs(steps[order.index(axis)]) for axis in range(3))


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "uint64"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_whole_numbers_become_int16(kind: str, order: tuple[int, ...]) -> None:
    array = (np.arange(60).reshape(3, 4, 5) - (30 if kind != "uint64" else 0)).astype(kind).transpose(order)
    for one in (array, array[::-1], array[:, ::2], np.moveaxis(np.stack([array, array + 1], axis=-1), -1, 0)):
        found = compact(one)
        assert found.dtype == np.int16
        assert np.array_equal(found, one)
        assert np.argsort(found.strides).tolist() == np.argsort(np.abs(one.strides)).tolist()


@pytest.mark.parametrize("last", [0.5, 32768, -32769, np.nan, np.inf])
def test_other_numbers_keep_their_type(last: float) -> None:
    array = np.zeros(PART_VOXELS + 1, np.float32)
    array[:2] = 32767, -32768
    assert compact(array).dtype == np.int16
    array[-1] = last
    assert compact(array) is array


def test_an_oblique_volume_is_only_turned_by_whole_axes() -> None:
    angle = np.deg2rad(44)
    affine = np.eye(4)
    affine[:2, :2] = [[-np.cos(angle), np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    turn = Turn.of(geometry(array.shape, affine))
    assert np.array_equal(turn.to_volume(array), array[::-1])
    image = nibabel.Nifti1Image.from_bytes(as_nifti(turn.to_volume(array), turn.spacing))
    assert nibabel.aff2axcodes(image.affine) == ("R", "A", "S")


def test_a_2d_scan_is_shown_as_stored() -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    turn = Turn.of(geometry((2, 3), np.diag([0.5, 2, 1, 1])))
    # the screen shows large x on the left and large y on top
    assert turn.to_volume(array)[::-1, ::-1, 0].tolist() == array.tolist()
    assert np.array_equal(turn.to_scan(turn.to_volume(array)), array)


@pytest.mark.parametrize(
    ("kind", "shown"), [("uint8", "uint8"), ("int16", "int16"), ("int32", "float32"), ("float64", "float32")]
)
def test_volumes_become_nifti_files(kind: str, shown: str) -> None:
    volume = np.arange(24).reshape(2, 3, 4).astype(kind)
    image = nibabel.Nifti1Image.from_bytes(as_nifti(volume, (1.0, 2.0, 3.0)))
    assert image.get_data_dtype().name == shown
    assert np.array_equal(np.asarray(image.dataobj), volume)
    assert image.header.get_zooms() == (1.0, 2.0, 3.0)
    # the voxels follow the header with x as the fastest axis
    assert as_nifti(volume, (1.0, 2.0, 3.0))[352:] == volume.astype(shown).tobytes(order="F")


def test_a_slope_scales_the_values() -> None:
    image = nibabel.Nifti1Image.from_bytes(as_nifti(np.full((1, 1, 1), 255, np.uint8), (1.0, 1.0, 1.0), 1 / 255))
    assert float(np.asarray(image.dataobj)[0, 0, 0]) == pytest.approx(1.0)


def test_parts_are_the_whole_file() -> None:
    volume = np.arange(300 * 200 * 40, dtype=np.int16).reshape(300, 200, 40)[::-1]
    parts = list(nifti_parts(volume, (1.0, 2.0, 3.0)))
    assert len(parts) == 4
    assert max(map(len, parts)) <= PART_BYTES
    assert b"".join(parts) == as_nifti(volume, (1.0, 2.0, 3.0))
    assert sum(map(len, parts)) == nifti_size(volume)


@pytest.mark.parametrize(("kind", "shown"), [("uint8", "<u1"), ("int16", "<i2"), (">i2", "<i2"), ("int64", "<f4")])
def test_middle_slices_have_the_order_of_the_volume(kind: str, shown: str) -> None:
    volume = np.arange(2 * 3 * 5).reshape(2, 3, 5).astype(kind)
    values = np.frombuffer(center_slices(volume), shown)
    assert values[:6].reshape(3, 2).T.tolist() == volume[:, :, 2].tolist()
    assert values[6:16].reshape(5, 2).T.tolist() == volume[:, 1, :].tolist()
    assert values[16:].reshape(5, 3).T.tolist() == volume[1, :, :].tolist()
