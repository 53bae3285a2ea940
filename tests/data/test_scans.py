"""Valid NIfTI files are read exactly, and invalid files are refused."""

import gzip
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import nibabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.core.errors import Code, UserError
from graftseg.data import scans
from graftseg.data.formats import nifti as nifti_format
from graftseg.data.formats import scan as scan_format
from graftseg.data.scans import Scan, read_case, read_geometry, read_label, read_scan, write_scan
from scan_fakes import (
    NAN,
    OBLIQUE,
    Shape,
    assert_same,
    fuzz,
    geometry,
    nifti,
    plain_and_compressed,
    ramp,
    refused,
    saved,
)
from user_errors import user_error


def test_suffixes_of_scans() -> None:
    assert all(scans.is_scan(Path(name)) for name in ("a.nii", "A.NII.GZ", "a.nrrd", "a.MHA", "a.png", "a.tif"))
    assert all(
        scans.is_scan(Path(name))
        for name in ("a.mhd", "a.nhdr", "a.tiff", "a.JPG", "a.jpeg", "a.bmp", "a.dcm", "a.zip", "a.nii.gz")
    )
    assert not any(scans.is_scan(Path(name)) for name in ("a.gz", "a.gif", "nii", ".nii.gz", "a.raw", "zip"))
    assert scans.is_label_map(Path("a.nrrd")) and not scans.is_label_map(Path("a.zip"))
    stems = [scans.scan_stem(Path(name)) for name in ("x/case.1_0000.nii.gz", "case.nii")]
    assert stems == ["case.1_0000", "case"]
    refused(Path("a.gif"), Code.NOT_A_SCAN, "NIfTI, NRRD, MHA, PNG, TIFF, JPEG, BMP")


@plain_and_compressed
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("kind", ["Nifti1Header", "Nifti2Header"])
def test_all_types_and_byte_orders(tmp_path: Path, name: str, order: str, kind: str) -> None:
    for dtype in ("u1", "i1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"):
        array = ramp(2, 3, 4, dtype=order + dtype)
        path = saved(tmp_path / name, nifti(array, kind=kind))
        np.testing.assert_array_equal(np.asarray(nibabel.load(path).dataobj), array, err_msg=dtype)
        assert_same(read_scan(path), Scan(array[None].astype(dtype), geometry((2, 3, 4), qform_code=0)))
        assert read_geometry(path) == read_scan(path).geometry, dtype


@pytest.mark.parametrize("space", [(3, 4, 1), (3, 4, 5)])
@pytest.mark.parametrize("rest", [(), (1,), (2,), (1, 2)])
def test_axes_after_the_third_are_channels(tmp_path: Path, space: Shape, rest: Shape) -> None:
    shape, channels = (*space, *rest), 2 if 2 in rest else 1
    scan = read_scan(saved(tmp_path / "a.nii", nifti(ramp(*shape))))
    assert scan.geometry.shape == space
    assert scan.array.shape == (channels, *space)
    np.testing.assert_array_equal(np.moveaxis(scan.array, 0, -1).reshape(shape), ramp(*shape))


@pytest.mark.parametrize(("volumes", "step", "units"), [(5, 2.5, 10), (5, 0.04, 0), (5, 1, 18), (17, 1, 2)])
def test_time_series_are_refused(tmp_path: Path, volumes: int, step: float, units: int) -> None:
    fields = {"pixdim": [1, 1, 1, 1, step, 1, 1, 1], "xyzt_units": units}
    path = saved(tmp_path / "a.nii", nifti(ramp(2, 2, 2, volumes), fields))
    refused(path, Code.SCAN_UNSUPPORTED, f"time series of {volumes} volumes")
    with user_error(Code.SCAN_UNSUPPORTED, keyword="a time series"):
        read_geometry(tmp_path / "a.nii")


@pytest.mark.parametrize(("step", "units"), [(1, 10), (0, 10), (1, 2), (0, 0), (-1, 2), (NAN, 2)])
def test_channels_are_not_a_time_series(tmp_path: Path, step: float, units: int) -> None:
    """ITK, FSL and nibabel write seconds and a step of 0 or 1 for channels."""
    fields = {"pixdim": [1, 1, 1, 1, step, 1, 1, 1], "xyzt_units": units}
    assert len(read_scan(saved(tmp_path / "a.nii", nifti(ramp(2, 2, 2, 4), fields))).array) == 4


@pytest.mark.parametrize(
    ("dtype", "slope", "intercept", "scaled"),
    [("i2", 2, -1024, "f4"), ("i4", 2, 1, "f8"), ("i2", 0, 7, "i2"), ("u2", NAN, 1, "u2")],
)
def test_scaling(tmp_path: Path, dtype: str, slope: float, intercept: float, scaled: str) -> None:
    fields = {"scl_slope": slope, "scl_inter": intercept}
    path = saved(tmp_path / "a.nii", nifti(ramp(2, 2, 2, dtype=dtype), fields))
    expected = nibabel.load(path).get_fdata().astype(scaled)[None]
    assert_same(read_scan(path), Scan(expected, read_geometry(path)))


@pytest.mark.parametrize(("qform", "sform"), [(2, 3), (1, 0), (0, 0), (0, 1), (77, 0)])
def test_the_affine_is_the_sform_else_the_qform_else_the_size(tmp_path: Path, qform: int, sform: int) -> None:
    fields = {"pixdim": [-1, 2, 3, 4, 1, 1, 1, 1], "quatern_b": 0.6, "qoffset_x": 5}
    fields |= {"qform_code": qform, "sform_code": sform}
    path = saved(tmp_path / "a.nii", nifti(ramp(2, 3, 4), fields))
    found = read_geometry(path)
    np.testing.assert_array_equal(found.matrix, nibabel.load(path).affine)
    assert (found.qform_code, found.sform_code) == (0 if qform == 77 else qform, sform)


@pytest.mark.parametrize(
    ("code", "units", "factor"),
    [(0, "unknown", 1), (1, "meter", 1e3), (2, "mm", 1), (3, "micron", 1e-3), (5, "unknown", 1)],
)
def test_units(tmp_path: Path, code: int, units: str, factor: float) -> None:
    found = read_geometry(saved(tmp_path / "a.nii", nifti(ramp(2, 2, 2), {"xyzt_units": code})))
    assert found.units == units
    np.testing.assert_allclose(found.spacing, np.linalg.norm(OBLIQUE[:3, :3], axis=0) * factor)


def test_a_2d_scan_needs_no_slice_distance(tmp_path: Path) -> None:
    fields = {"pixdim": [1, 2, 3, 0, 0, 0, 0, 0], "qform_code": 1, "sform_code": 0, "qoffset_x": 5}
    found = read_geometry(saved(tmp_path / "a.nii", nifti(ramp(2, 3), fields)))
    assert found.spacing == (2, 3)
    assert found.affine == ((2, 0, 0, 5), (0, 3, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))
    refused(saved(tmp_path / "a.nii", nifti(ramp(2, 3, 4), fields)), Code.SCAN_HEADER, "voxel size")


def test_every_flipped_bit_of_a_compressed_scan_is_detected_or_harmless(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.nii.gz", nifti(ramp(3, 3, 2)))
    whole, good = path.read_bytes(), read_scan(path)
    found = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            scan = read_scan(path)
        except UserError:
            found += 1
        else:
            assert_same(scan, good)
    # only time, flags and system in the 10 bytes of the gzip header may change undetected
    assert found >= 8 * (len(whole) - 10)


def test_truncation_members_and_trailing_bytes_of_a_compressed_scan(tmp_path: Path) -> None:
    path, content = tmp_path / "a.nii.gz", nifti(ramp(3, 3, 2))
    whole = gzip.compress(content)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused(path, Code.SCAN_DAMAGED if length != 1 else Code.NOT_A_SCAN)
    path.write_bytes(gzip.compress(content[:99]) + bytes(9) + gzip.compress(content[99:]) + bytes(2**19))
    np.testing.assert_array_equal(read_scan(path).array[0], ramp(3, 3, 2))
    path.write_bytes(gzip.compress(content + bytes(100)))
    np.testing.assert_array_equal(read_scan(path).array[0], ramp(3, 3, 2))
    path.write_bytes(gzip.compress(content) + b"garbage")
    refused(path, Code.SCAN_DAMAGED, "compressed data is damaged")


def test_a_gzip_bomb_is_stopped(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.nii.gz", nifti(ramp(2, 2, 2)) + bytes(50 * 2**20))
    assert path.stat().st_size < 100_000
    refused(path, Code.SCAN_DAMAGED, "16 bytes")


@plain_and_compressed
def test_no_memory_is_allocated_for_too_large_scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    take = Mock(wraps=nifti_format._read_bytes)
    monkeypatch.setattr(nifti_format, "_read_bytes", take)
    few = ramp(2, 2, 2, dtype="u1")
    path = saved(tmp_path / name, nifti(few, {"dim": [3, 32767, 32767, 4, 1, 1, 1, 1]}))
    refused(path, Code.SCAN_DAMAGED, "asks for 4294705508 bytes")
    path = saved(tmp_path / name, nifti(few, {"dim": [7] + [32767] * 7}))
    refused(path, Code.SCAN_TOO_LARGE, "17179869184")
    monkeypatch.setattr(scan_format, "MAX_BYTES", 359)
    refused(saved(path, nifti(few)), Code.SCAN_TOO_LARGE, "360 bytes")
    assert sum(call.args[1] for call in take.call_args_list) == 3 * 348


def test_an_uncompressed_scan_may_be_longer_but_not_shorter(tmp_path: Path) -> None:
    path, content = tmp_path / "a.nii", nifti(ramp(3, 3, 2))
    path.write_bytes(content + bytes(5 * 2**20))
    np.testing.assert_array_equal(read_scan(path).array[0], ramp(3, 3, 2))
    path.write_bytes(content[:-1])
    refused(path, Code.SCAN_DAMAGED, "asks for 388 bytes")
    with user_error(Code.SCAN_DAMAGED, keyword="truncated"):
        read_geometry(path)


@pytest.mark.parametrize(
    ("fields", "code", "keyword"),
    [
        ({"dim": [0, 2, 2, 2, 1, 1, 1, 1]}, Code.SCAN_UNSUPPORTED, "0 axes"),
        ({"dim": [1, 8, 1, 1, 1, 1, 1, 1]}, Code.SCAN_UNSUPPORTED, "1 axes"),
        ({"dim": [8, 2, 2, 2, 1, 1, 1, 1]}, Code.SCAN_UNSUPPORTED, "8 axes"),
        ({"dim": [-3, 2, 2, 2, 1, 1, 1, 1]}, Code.SCAN_UNSUPPORTED, "-3 axes"),
        ({"dim": [3, 2, 0, 2, 1, 1, 1, 1]}, Code.SCAN_UNSUPPORTED, "2x0x2 voxels"),
        ({"dim": [3, 2, -2, 2, 1, 1, 1, 1]}, Code.SCAN_UNSUPPORTED, "2x-2x2 voxels"),
        ({"datatype": 32}, Code.SCAN_UNSUPPORTED, "complex64"),
        ({"datatype": 128}, Code.SCAN_UNSUPPORTED, "RGB"),
        ({"datatype": 2304}, Code.SCAN_UNSUPPORTED, "RGBA"),
        ({"datatype": 1536}, Code.SCAN_UNSUPPORTED, "float128"),
        ({"datatype": 1}, Code.SCAN_UNSUPPORTED, "binary"),
        ({"datatype": 77}, Code.SCAN_DAMAGED, "type 77"),
        ({"vox_offset": 0}, Code.SCAN_DAMAGED, "byte 0"),
        ({"vox_offset": NAN}, Code.SCAN_DAMAGED, "byte nan"),
        ({"vox_offset": 1e30}, Code.SCAN_DAMAGED, "byte 1e+30"),
        ({"scl_slope": 2, "scl_inter": np.inf}, Code.SCAN_DAMAGED, "intercept inf"),
        ({"srow_x": [NAN, 0, 0, 0]}, Code.SCAN_HEADER, "voxel size"),
        ({"srow_x": [0, 0, 0, 0]}, Code.SCAN_HEADER, "voxel size"),
        ({"srow_x": [0.2, 0.95, -0.3, 1]}, Code.SCAN_HEADER, "voxel size"),
        ({"srow_x": [1, 0, 0, np.inf]}, Code.SCAN_HEADER, "voxel size"),
        ({"sform_code": 0, "pixdim": [1, 0, 1, 1, 1, 1, 1, 1]}, Code.SCAN_HEADER, "voxel size"),
        ({"sform_code": 0, "qform_code": 1, "quatern_b": 3}, Code.SCAN_HEADER, "voxel size"),
        ({"magic": b"ni1"}, Code.NOT_A_SCAN, "second file"),
        ({"sizeof_hdr": 349}, Code.NOT_A_SCAN, "not a NIfTI file"),
    ],
)
@plain_and_compressed
def test_invalid_headers_are_refused(tmp_path: Path, name: str, fields: Any, code: Code, keyword: str) -> None:
    path = saved(tmp_path / name, nifti(ramp(2, 2, 2), fields))
    refused(path, code, keyword)
    with user_error(code):
        read_geometry(path)


@fuzz
@given(changes=st.lists(st.tuples(st.integers(0, 351), st.integers(0, 255)), min_size=1, max_size=4))
def test_every_header_is_read_or_refused(tmp_path: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(nifti(ramp(2, 3, 2)))
    for position, value in changes:
        content[position] = value
    path = saved(tmp_path / "a.nii", bytes(content))
    try:
        scan = read_scan(path)
    except UserError as error:
        assert error.where == str(path)
    else:
        assert scan.array.shape[1:] == scan.geometry.shape == read_geometry(path).shape
        assert np.isfinite(scan.geometry.spacing).all()


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused(tmp_path / "none.nii.gz", Code.FILE_MISSING, "check the path")
    (tmp_path / "folder.nii").mkdir()
    refused(tmp_path / "folder.nii", Code.NOT_A_SCAN, "a folder")
    path = tmp_path / "a.nii.gz"
    for content in (b"\x5c\x01\0\0", b"P5 4 4 255\n" + bytes(600)):
        path.write_bytes(content)
        refused(path, Code.NOT_A_SCAN, "not a NIfTI file")
    monkeypatch.setattr(os, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    refused(path, Code.READ_FAILED, "Permission denied")


def test_voxels_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    array = np.zeros((2, 3, 4, 2), np.float32)
    array[1, 2, 0, 1], array[1, 2, 3, 1] = NAN, -np.inf
    path = saved(tmp_path / "a.nii", nifti(array))
    refused(path, Code.SCAN_DAMAGED, "(1, 2, 0) of channel 2")
    path = saved(tmp_path / "a.nii", nifti(array[..., 1]))
    refused(path, Code.SCAN_DAMAGED, "(1, 2, 0)")
    path = saved(tmp_path / "a.nii", nifti(ramp(2, 2, 2), {"scl_slope": 3e38}))
    refused(path, Code.SCAN_DAMAGED, "(0, 1, 0)")


def test_channels_of_a_case_need_one_grid(tmp_path: Path) -> None:
    first = saved(tmp_path / "a_0000.nii.gz", nifti(ramp(2, 3, 4)))
    second = saved(tmp_path / "a_0001.nii.gz", nifti(ramp(2, 3, 4, dtype="f4") + 0.5))
    expected = np.stack([ramp(2, 3, 4), ramp(2, 3, 4) + 0.5]).astype(np.float32)
    assert_same(read_case([first, second]), Scan(expected, read_geometry(first)))
    assert_same(read_case([first]), read_scan(first))
    saved(second, nifti(ramp(2, 3, 5)))
    with user_error(Code.GEOMETRY_MISMATCH, second, "2x3x5"):
        read_case([first, second])


@pytest.mark.parametrize(("dtype", "top", "small"), [("f8", 3, "u1"), ("i2", 255, "u1"), ("i4", 256, "u2")])
def test_labels_take_the_smallest_type(tmp_path: Path, dtype: str, top: int, small: str) -> None:
    array = np.zeros((2, 3, 4), dtype)
    array[1, 1, 1] = top
    label = read_label(saved(tmp_path / "a.nii.gz", nifti(array)))
    assert_same(label, Scan(array.astype(small), geometry((2, 3, 4), qform_code=0)))


def test_rounding_errors_of_labels_are_removed(tmp_path: Path) -> None:
    array = np.zeros((2, 3, 4), "f4")
    array[1, 0, :3] = (1.0000001, 1.9996, -1e-7)
    label = read_label(saved(tmp_path / "a.nii.gz", nifti(array)))
    np.testing.assert_array_equal(label.array, np.rint(array).astype(np.uint8))


@pytest.mark.parametrize(
    ("value", "dtype", "code", "keyword"),
    [
        (1.5, "f4", Code.LABEL_INVALID, "1.5 at voxel (1, 0, 2)"),
        (1.002, "f4", Code.LABEL_INVALID, "1.002 at voxel (1, 0, 2)"),
        (-1, "i2", Code.LABEL_INVALID, "-1 at voxel (1, 0, 2)"),
        (-2, "f4", Code.LABEL_INVALID, "-2 at voxel (1, 0, 2)"),
        (70000, "i4", Code.LABEL_INVALID, "70000 at voxel (1, 0, 2)"),
        (1e30, "f4", Code.LABEL_INVALID, "1e+30 at voxel (1, 0, 2)"),
        (NAN, "f4", Code.SCAN_DAMAGED, "the first at (1, 0, 2)"),
        ([1, 2], "i2", Code.LABEL_INVALID, "2 channels"),
    ],
)
def test_invalid_labels_are_refused(tmp_path: Path, value: Any, dtype: str, code: Code, keyword: str) -> None:
    array = np.zeros((2, 3, 4, *np.shape(value)), dtype)
    array[1, 0, 2] = value
    with user_error(code, "a.nii", keyword):
        read_label(saved(tmp_path / "a.nii", nifti(array)))


def test_free_text_and_extensions_are_dropped(tmp_path: Path) -> None:
    fields = dict.fromkeys(("descrip", "db_name", "aux_file", "intent_name"), b"DOE^JANE")
    source = nifti(ramp(2, 2, 2), {"vox_offset": 384, **fields})
    source = source[:348] + b"\1\0\0\0" + b"\x20\0\0\0\6\0\0\0DOE^JANE".ljust(32, b"\0") + source[352:]
    scan = read_scan(saved(tmp_path / "a.nii.gz", source))
    np.testing.assert_array_equal(scan.array[0], ramp(2, 2, 2))
    write_scan(tmp_path / "b.nii", scan.array, scan.geometry)
    assert source.count(b"DOE") == 5
    assert b"DOE" not in (tmp_path / "b.nii").read_bytes()
