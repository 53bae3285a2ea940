"""NRRD and MetaImage headers of many kinds: voxels and geometry are those of SimpleITK."""

import bz2
import gzip
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graftseg.data.formats.scan import VOLUMES_ARE_CHANNELS, lps_geometry
from graftseg.data.scans import read_scan
from scan_fakes import assert_same

fuzz = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
NRRD_TYPES = {"i1": "int8", "u1": "uchar", "i2": "short", "u2": "uint16", "i4": "int", "u4": "uint32_t"}
NRRD_TYPES |= {"i8": "long long int", "u8": "uint64", "f4": "float", "f8": "double"}
META_TYPES = {"i1": "CHAR", "u1": "UCHAR", "i2": "SHORT", "u2": "USHORT", "i4": "INT", "u4": "UINT"}
META_TYPES |= {"i8": "LONG_LONG", "u8": "ULONG_LONG", "f4": "FLOAT", "f8": "DOUBLE"}
DIRECTIONS = ("(0,2,0) (0,0,3) (-4,0.1,0.3)", "(-0.7,0.1,0) (1e-3,-2.5,.3) (0,0.3,1.1e0)")
number = st.floats(-50, 50).map(lambda value: round(value, 3))


def refuse_difference(path: Path) -> None:
    """Compare a scan with SimpleITK, bit for bit."""
    scan = read_scan(path, VOLUMES_ARE_CHANNELS)
    reader = SimpleITK.ImageFileReader()
    reader.SetFileName(str(path))
    image = reader.Execute()
    array = SimpleITK.GetArrayFromImage(image)
    if image.GetNumberOfComponentsPerPixel() > 1:
        array = np.moveaxis(array, -1, 0)
    shape = image.GetSize()[:3]
    count, axes = len(shape), image.GetDimension()
    expected = array.reshape(-1, *shape[::-1]).transpose(0, *range(count, 0, -1))
    assert scan.array.dtype == expected.dtype and scan.array.dtype.isnative
    np.testing.assert_array_equal(scan.array, expected)
    direction = np.array(image.GetDirection()).reshape(axes, axes)[:count, :count]
    spacing, origin = (np.array(values[:count]) for values in (image.GetSpacing(), image.GetOrigin()))
    known = lps_geometry(shape, direction, spacing, origin, is_placed=scan.geometry.is_placed)
    assert scan.geometry == known


def voxels(count: int, dtype: str) -> NDArray[Any]:
    return np.arange(count).astype(dtype)


def nrrd(path: Path, sizes: str, *fields: str, dtype: str = "<i2", encoding: str = "raw") -> Path:
    data = voxels(int(np.prod([int(size) for size in sizes.split()])), dtype)
    packed = {"raw": data.tobytes(), "gzip": gzip.compress(data.tobytes()), "bzip2": bz2.compress(data.tobytes())}
    packed["ascii"] = " ".join(str(value) for value in data.tolist()).encode() + b"\n"
    endian = "big" if dtype[0] == ">" else "little"
    lines = ["NRRD0005", f"type: {NRRD_TYPES[dtype[1:]]}", f"dimension: {len(sizes.split())}", *fields]
    lines += [f"sizes: {sizes}", f"endian: {endian}", f"encoding: {encoding}", "key:=value", "# comment", "", ""]
    path.write_bytes("\n".join(lines).encode() + packed[encoding])
    return path


def meta(path: Path, sizes: str, *fields: str, dtype: str = "<i2", channels: int = 1, packed: bool = False) -> Path:
    content = voxels(channels * int(np.prod([int(size) for size in sizes.split()])), dtype).tobytes()
    lines = ["ObjectType = Image", f"NDims = {len(sizes.split())}", f"DimSize = {sizes}", *fields]
    lines += [f"BinaryDataByteOrderMSB = {dtype[0] == '>'}"]
    lines += [f"ElementNumberOfChannels = {channels}"] if channels > 1 else []
    if packed:
        content = zlib.compress(content)
        lines += ["CompressedData = True", f"CompressedDataSize = {len(content)}"]
    lines += [f"ElementType = MET_{META_TYPES[dtype[1:]]}", "ElementDataFile = LOCAL", ""]
    path.write_bytes("\n".join(lines).encode() + content)
    return path


def test_types_orders_and_encodings(tmp_path: Path) -> None:
    for kind, order in product(NRRD_TYPES, "<>"):
        for encoding in ("raw", "gzip", "ascii"):
            refuse_difference(nrrd(tmp_path / "a.nrrd", "2 3 4", dtype=order + kind, encoding=encoding))
        # SimpleITK cannot read bzip2
        unpacked = read_scan(nrrd(tmp_path / "b.nrrd", "2 3 4", dtype=order + kind, encoding="bzip2"))
        assert_same(unpacked, read_scan(tmp_path / "a.nrrd"))
        for packed in (False, True):
            refuse_difference(meta(tmp_path / "a.mha", "2 3 4", dtype=order + kind, packed=packed))


@pytest.mark.parametrize("sizes", ["3 4", "2 3 4", "2 3 4 2"])
def test_axes_and_components(tmp_path: Path, sizes: str) -> None:
    axes = len(sizes.split())
    space = ["space"] * axes
    refuse_difference(nrrd(tmp_path / "a.nrrd", sizes))
    for kind, place in product(("vector", "list", "point", "2-vector"), range(axes + 1)):
        kinds, all_sizes = space.copy(), sizes.split()
        kinds.insert(place, kind)
        all_sizes.insert(place, "2")
        refuse_difference(nrrd(tmp_path / "b.nrrd", " ".join(all_sizes), f"kinds: {' '.join(kinds)}"))
    for channels in (1, 2, 3):
        refuse_difference(meta(tmp_path / "a.mha", sizes, channels=channels))


@pytest.mark.parametrize("directions", DIRECTIONS)
@pytest.mark.parametrize(
    "space", ["LPS", "RAS", "las", "left-anterior-superior", "right-anterior-superior", "scanner-xyz", "3D-left-handed"]
)
def test_spaces_of_nrrd(tmp_path: Path, space: str, directions: str) -> None:
    fields = (f"space: {space}", f"space directions: {directions}", "space origin: (10.1,-20,30)")
    refuse_difference(nrrd(tmp_path / "a.nrrd", "2 3 4", *fields))
    fields = (f"space: {space}", f"space directions: none {directions}", "kinds: vector space space space")
    refuse_difference(nrrd(tmp_path / "b.nrrd", "3 2 3 4", *fields))
    fields = (f"space: {space}", f"space directions: {directions} none", "kinds: space space space list")
    refuse_difference(nrrd(tmp_path / "c.nrrd", "2 3 4 3", *fields))


def test_other_grids_of_nrrd(tmp_path: Path) -> None:
    for fields in (
        ("spacings: 0.5 2 nan",),
        ("spacings: 0.5 2 3", "axis mins: 1 2 3"),
        ("spacings: 0.5 2 3", "axismins: 1 2 3", "centerings: node cell node"),
        ("space dimension: 3", f"space directions: {DIRECTIONS[0]}"),
        ("space: RAS", "space origin: (1,2,3)"),
        ("byte skip: 0", "line skip: 0"),
    ):
        refuse_difference(nrrd(tmp_path / "a.nrrd", "2 3 4", *fields))
    plane = ("space dimension: 2", "space directions: (0,2.5) (3,0.1)", "space origin: (1,2)")
    refuse_difference(nrrd(tmp_path / "b.nrrd", "2 3", *plane))
    hyper = ("space dimension: 4", "space directions: (1,0,0,0) (0,2,0,0) (0,0,3,0) (0,0,0,1)")
    refuse_difference(nrrd(tmp_path / "c.nrrd", "2 3 4 2", *hyper, "space origin: (1,2,3,4)"))


@pytest.mark.parametrize("skip", ["byte skip: 4", "byte skip: -1", "line skip: 1"])
def test_skipped_bytes_of_nrrd(tmp_path: Path, skip: str) -> None:
    path = nrrd(tmp_path / "a.nrrd", "2 3 4", skip)
    header, content = path.read_bytes().split(b"\n\n", 1)
    path.write_bytes(header + b"\n\nab\n\n" + content)
    refuse_difference(path)


@fuzz
@given(data=st.data(), axes=st.integers(2, 4), packed=st.booleans())
def test_grids_of_metaimage(tmp_path: Path, data: Any, axes: int, packed: bool) -> None:
    vector = st.lists(number, min_size=axes, max_size=axes)
    drawn: dict[str, NDArray[np.float64]] = {}
    drawn |= {name: np.array(data.draw(vector)) for name in ("Offset", "Position", "Origin")}
    drawn |= {name: np.abs(data.draw(vector)) + 0.1 for name in ("ElementSpacing", "ElementSize")}
    for name in ("TransformMatrix", "Rotation", "Orientation"):
        drawn[name] = np.linalg.qr(np.array([data.draw(vector) for _ in range(axes)]) + 60 * np.eye(axes))[0]
    used = data.draw(st.lists(st.sampled_from(sorted(drawn)), unique=True))
    fields = [f"{name} = {' '.join(map(str, drawn[name].ravel().tolist()))}" for name in used]
    refuse_difference(meta(tmp_path / "a.mha", "2 3 4 2"[: 2 * axes - 1], *fields, packed=packed))


def test_voxels_after_a_header_in_another_file(tmp_path: Path) -> None:
    (tmp_path / "a.raw").write_bytes(voxels(30, "<i2").tobytes())
    for size in (0, 4, -1):
        header = f"NDims = 3\nDimSize = 2 3 4\nHeaderSize = {size}\nElementType = MET_SHORT\nElementDataFile = a.raw\n"
        (tmp_path / "a.mhd").write_text(f"ObjectType = Image\n{header}")
        refuse_difference(tmp_path / "a.mhd")
