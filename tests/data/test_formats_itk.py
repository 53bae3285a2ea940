"""NRRD and MetaImage files: voxels and geometry are exact, and damage is detected."""

from pathlib import Path
from typing import Any

import nibabel
import numpy as np
import pytest
import SimpleITK
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from graftseg.core.errors import Code
from graftseg.data.grid import axis_codes
from graftseg.data.scans import files_of, grid_difference, read_geometry, read_label, read_scan, write_label
from scan_fakes import refused
from user_errors import user_error

fuzz = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
every_suffix = pytest.mark.parametrize("suffix", [".nrrd", ".mha", ".mhd", ".nhdr"])
compressed_or_not = pytest.mark.parametrize("compressed", [False, True])


def ramp(*shape: int, dtype: str = "int16") -> NDArray[Any]:
    return np.arange(np.prod(shape)).reshape(shape).astype(dtype)


def rotation(angles: tuple[float, float, float], flips: tuple[bool, bool, bool]) -> NDArray[np.float64]:
    """Return three rotations, after flipping axes."""
    matrix = np.diag([-1.0 if flip else 1.0 for flip in flips])
    for axis, angle in enumerate(angles):
        first, second = [other for other in range(3) if other != axis]
        turn = np.eye(3)
        turn[[first, second], [first, second]] = np.cos(angle)
        turn[first, second], turn[second, first] = -np.sin(angle), np.sin(angle)
        matrix = turn @ matrix
    return matrix


def image_of(array: NDArray[Any], *, vector: bool = False) -> Any:
    """Return the image with the voxels (x, y, z) of the array."""
    space = range(array.ndim - vector - 1, -1, -1)
    turned = np.ascontiguousarray(array.transpose(*space, *([array.ndim - 1] if vector else [])))
    return SimpleITK.GetImageFromArray(turned, isVector=vector)


def write(path: Path, image: Any, compressed: bool = False) -> Path:
    SimpleITK.WriteImage(image, str(path), compressed)
    return path


@every_suffix
@compressed_or_not
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint16", "int32", "float32", "float64"])
def test_voxels_and_types(tmp_path: Path, suffix: str, compressed: bool, dtype: str) -> None:
    array = ramp(2, 3, 4, dtype=dtype)
    scan = read_scan(write(tmp_path / f"a{suffix}", image_of(array), compressed))
    np.testing.assert_array_equal(scan.array[0], array)
    assert scan.array.dtype == dtype


@fuzz
@given(
    angles=st.tuples(*[st.floats(-1.5, 1.5)] * 3),
    flips=st.tuples(*[st.booleans()] * 3),
    spacing=st.tuples(*[st.floats(0.2, 6.0)] * 3),
    origin=st.tuples(*[st.floats(-200, 200)] * 3),
    suffix=st.sampled_from([".nrrd", ".mha", ".mhd"]),
)
def test_voxel_positions_equal_those_of_itk_and_nibabel(
    tmp_path: Path, angles: Any, flips: Any, spacing: Any, origin: Any, suffix: str
) -> None:
    """ITK coordinates are LPS, and coordinates of an affine are RAS."""
    image = image_of(ramp(3, 4, 5))
    image.SetSpacing(spacing)
    image.SetOrigin(origin)
    image.SetDirection(rotation(angles, flips).ravel().tolist())
    geometry = read_geometry(write(tmp_path / f"a{suffix}", image))
    for index in ((0, 0, 0), (2, 0, 0), (0, 3, 0), (0, 0, 4), (2, 3, 4)):
        left, back, head = image.TransformIndexToPhysicalPoint(index)
        np.testing.assert_allclose(geometry.matrix @ (*index, 1), (-left, -back, head, 1), atol=1e-3)
    loaded = nibabel.load(write(tmp_path / "a.nii", image))
    np.testing.assert_allclose(geometry.matrix, loaded.affine, atol=1e-3)
    assert grid_difference(geometry, read_geometry(tmp_path / "a.nii")) is None


def test_axes_without_directions_point_left_and_back(tmp_path: Path) -> None:
    image = image_of(ramp(2, 3, 4))
    image.SetSpacing((0.5, 0.75, 3.0))
    geometry = read_geometry(write(tmp_path / "a.mha", image))
    assert axis_codes(geometry) == "LPS"
    assert (geometry.shape, geometry.spacing, geometry.units) == ((2, 3, 4), (0.5, 0.75, 3.0), "mm")


def without(path: Path, *names: str) -> Path:
    """Rename some fields of a header, so that they are not read."""
    content = path.read_bytes()
    for name in names:
        assert content.count(f"\n{name}".encode()) == 1
        content = content.replace(f"\n{name}".encode(), f"\n# {name}".encode())
    path.write_bytes(content)
    return path


def test_a_header_without_directions_has_no_orientation(tmp_path: Path) -> None:
    image = image_of(ramp(2, 3, 4))
    for suffix in (".nrrd", ".nhdr", ".mha", ".mhd"):
        assert read_geometry(write(tmp_path / f"told{suffix}", image)).is_placed
    placed = read_geometry(tmp_path / "told.mha")
    for untold in (
        without(write(tmp_path / "b.mha", image), "TransformMatrix"),
        without(write(tmp_path / "c.nrrd", image), "space:", "space directions", "space origin"),
        without(write(tmp_path / "d.nrrd", image), "space directions"),
    ):
        geometry = read_scan(untold).geometry
        assert not geometry.is_placed and geometry.affine == placed.affine, untold.name


@pytest.mark.parametrize(
    ("space", "is_placed"),
    [("LPS", True), ("right-anterior-superior", True), ("scanner-xyz", False), ("3D-right-handed", False)],
)
def test_anatomical_and_other_spaces_of_nrrd(tmp_path: Path, space: str, is_placed: bool) -> None:
    path = write(tmp_path / "a.nrrd", image_of(ramp(2, 3, 4)))
    path.write_bytes(path.read_bytes().replace(b"left-posterior-superior", space.encode()))
    assert read_geometry(path).is_placed is is_placed


@pytest.mark.parametrize("shape", [(2, 3, 4), (3, 4)])
def test_a_label_map_has_the_assumed_grid_of_its_scan(tmp_path: Path, shape: tuple[int, ...]) -> None:
    untold = without(write(tmp_path / "a.mha", image_of(ramp(*shape))), "TransformMatrix")
    geometry = read_geometry(untold)
    write_label(tmp_path / "a.nii.gz", np.ones(shape, np.uint8), geometry)
    assert grid_difference(geometry, read_geometry(tmp_path / "a.nii.gz")) is None
    written = nibabel.load(tmp_path / "a.nii.gz")
    np.testing.assert_array_equal(written.get_sform(coded=True)[0], geometry.matrix)


@pytest.mark.parametrize("suffix", [".nrrd", ".mha"])
def test_components_and_a_fourth_axis_are_channels(tmp_path: Path, suffix: str) -> None:
    array = ramp(2, 3, 4, 3)
    for image in (image_of(array, vector=True), image_of(array)):
        scan = read_scan(write(tmp_path / f"a{suffix}", image))
        np.testing.assert_array_equal(scan.array, np.moveaxis(array, -1, 0))
        assert scan.geometry.shape == (2, 3, 4)


@pytest.mark.parametrize("suffix", [".nrrd", ".mha"])
def test_a_2d_scan(tmp_path: Path, suffix: str) -> None:
    image = image_of(ramp(4, 3))
    image.SetSpacing((0.5, 2.0))
    scan = read_scan(write(tmp_path / f"a{suffix}", image))
    np.testing.assert_array_equal(scan.array, ramp(4, 3)[None])
    assert scan.geometry.spacing == (0.5, 2.0) and axis_codes(scan.geometry) == "LP"
    assert grid_difference(scan.geometry, read_geometry(write(tmp_path / "a.nii.gz", image))) is None


def test_label_maps(tmp_path: Path) -> None:
    label = read_label(write(tmp_path / "a.nrrd", image_of(ramp(2, 2, 2) % 3)))
    np.testing.assert_array_equal(label.array, ramp(2, 2, 2) % 3)
    assert label.array.dtype == np.uint8
    with user_error(Code.LABEL_INVALID, keyword="3 channels"):
        read_label(write(tmp_path / "b.nrrd", image_of(ramp(2, 2, 2, 3), vector=True)))


@pytest.mark.parametrize("suffix", [".nrrd", ".mha"])
def test_every_flipped_byte_of_compressed_voxels_is_detected(tmp_path: Path, suffix: str) -> None:
    array = np.random.default_rng(0).integers(0, 255, (4, 4, 4)).astype(np.uint8)
    path = write(tmp_path / f"a{suffix}", image_of(array), compressed=True)
    whole = path.read_bytes()
    start = whole.index(b"\n\n") + 2 if suffix == ".nrrd" else whole.index(b"LOCAL\n") + 6
    # the ten bytes of a gzip header contain time, flags and system
    start += 10 if suffix == ".nrrd" else 0
    for place in range(start, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 255
        path.write_bytes(damaged)
        refused(path, Code.SCAN_DAMAGED, "compressed data")


@every_suffix
@compressed_or_not
def test_truncated_files_are_refused(tmp_path: Path, suffix: str, compressed: bool) -> None:
    array = np.random.default_rng(0).integers(0, 255, (6, 6, 6)).astype(np.uint8)
    path = write(tmp_path / f"a{suffix}", image_of(array), compressed)
    voxels = files_of(path)[-1]
    voxels.write_bytes(voxels.read_bytes()[:-9])
    refused(path, Code.SCAN_DAMAGED, "truncated")


def test_invalid_headers_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mha", image_of(ramp(2, 3, 4)))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"DimSize = 2 3 4", b"DimSize = 99999 99999 99"))
    refused(path, Code.SCAN_TOO_LARGE, "17179869184")
    path.write_bytes(whole.replace(b"DimSize = 2 3 4", b"DimSize = 2 3 400"))
    refused(path, Code.SCAN_DAMAGED, "4800 bytes")
    path.write_bytes(whole.replace(b"ElementSpacing = 1 1 1", b"ElementSpacing = 0 1 1"))
    refused(path, Code.SCAN_HEADER, "voxel size")
    for content in (b"NRRD0004\n", b"nothing of the kind"):
        path.write_bytes(content)
        refused(path, Code.SCAN_DAMAGED, "header cannot be read")
    with user_error(Code.FILE_MISSING, keyword="does not exist"):
        read_scan(tmp_path / "none.nrrd")


@pytest.mark.parametrize("name", ["../secret.raw", "/etc/hostname", "sub/a.raw"])
@pytest.mark.parametrize("suffix", [".mhd", ".nhdr"])
def test_voxels_outside_the_folder_are_refused(tmp_path: Path, suffix: str, name: str) -> None:
    path = write(tmp_path / f"a{suffix}", image_of(ramp(2, 2, 2)))
    header = path.read_text()
    line = "ElementDataFile = a.raw" if suffix == ".mhd" else "data file: a.raw"
    assert line in header
    path.write_text(header.replace(line, line.replace("a.raw", name)))
    refused(path, Code.SCAN_UNSUPPORTED, "outside")


@pytest.mark.parametrize("suffix", [".mhd", ".nhdr"])
def test_voxels_may_be_in_the_current_folder(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"a{suffix}", image_of(ramp(2, 2, 2)))
    expected = read_scan(path)
    path.write_text(path.read_text().replace(" a.raw", " ./a.raw"))
    assert "./a.raw" in path.read_text()
    np.testing.assert_array_equal(read_scan(path).array, expected.array)
    assert files_of(path) == [path, tmp_path / "a.raw"]


def test_errors_do_not_contain_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Jane Doe").mkdir()
    path = tmp_path / "Jane Doe" / "a.nrrd"
    path.write_bytes(b"NRRX0004\n")
    monkeypatch.chdir(tmp_path)
    for spelling in (path, Path("Jane Doe/a.nrrd")):
        with user_error(Code.SCAN_DAMAGED, keyword="header cannot be read") as caught:
            read_scan(spelling)
        assert "Jane" not in caught.value.finding


@pytest.mark.parametrize(
    ("folder", "code"), [("/data/Jane", Code.SCAN_UNSUPPORTED), ("C:\\data\\Jane", Code.FILE_MISSING)]
)
def test_a_path_in_a_header_is_not_quoted(tmp_path: Path, folder: str, code: Code) -> None:
    path = write(tmp_path / "a.mhd", image_of(ramp(2, 2, 2)))
    separator = "/" if "/" in folder else "\\"
    path.write_text(path.read_text().replace("= a.raw", f"= {folder}{separator}a.raw"))
    assert "Jane" not in refused(path, code, "'a.raw'")


def test_a_missing_voxel_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.mhd", image_of(ramp(2, 2, 2)))
    assert [file.name for file in files_of(path)] == ["a.mhd", "a.raw"]
    (tmp_path / "a.raw").unlink()
    refused(path, Code.FILE_MISSING, "'a.raw'")
    path.write_text(path.read_text().replace("a.raw", "LIST"))
    refused(path, Code.FILE_MISSING, "'LIST'")


def test_time_series_are_refused(tmp_path: Path) -> None:
    image = image_of(ramp(2, 2, 2, 5))
    image.SetSpacing((1, 1, 1, 2.5))
    refused(write(tmp_path / "a.nrrd", image), Code.SCAN_UNSUPPORTED, "time series of 5")
    many = image_of(ramp(2, 2, 2, 20), vector=True)
    refused(write(tmp_path / "b.nrrd", many), Code.SCAN_UNSUPPORTED, "time series of 20")


def test_complex_voxels(tmp_path: Path) -> None:
    image = SimpleITK.Image([2, 2, 2], SimpleITK.sitkComplexFloat32)
    refused(write(tmp_path / "a.nrrd", image), Code.SCAN_UNSUPPORTED, "complex")
