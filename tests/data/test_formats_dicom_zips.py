"""DICOM in a zip: the same scan as in a folder, and damaged zips are refused."""

import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from test_formats_dicom import Volume, refused, series, zipped

from graftseg.core.errors import Code, UserError
from graftseg.data.formats import dicom_members
from graftseg.data.scans import read_geometry, read_scan


def test_a_folder_and_a_zip_are_the_same_scan(volume: Volume, tmp_path: Path) -> None:
    folder = series(tmp_path / "case", volume)
    scan, packed = read_scan(folder), read_scan(zipped(folder, tmp_path / "case.zip"))
    np.testing.assert_array_equal(scan.array[0], volume)
    np.testing.assert_array_equal(packed.array, scan.array)
    assert packed.geometry == scan.geometry == read_geometry(folder) == read_geometry(tmp_path / "case.zip")


def test_zips_that_are_refused(volume: Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume = volume[:, :, :3]
    path = zipped(series(tmp_path / "case", volume), tmp_path / "a.zip")
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, Code.SCAN_DAMAGED, "the zip is damaged")
    count = 0
    # every byte of the central directory: a damaged length there hides the members after it
    for place in (*range(0, len(whole), 97), *range(whole.find(b"PK\x01\x02"), len(whole))):
        damaged = bytearray(whole)
        damaged[place] ^= 255
        path.write_bytes(damaged)
        try:
            # only unused times and flags may change undetected
            np.testing.assert_array_equal(read_scan(path).array[0], volume)
        except UserError:
            count += 1
    assert count > 20
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "nothing")
    refused(path, Code.NOT_A_SCAN, "no DICOM images")
    path.write_bytes(whole)
    monkeypatch.setattr(dicom_members, "MAX_BYTES", 1000)
    refused(path, Code.SCAN_TOO_LARGE, "3 files")
    monkeypatch.undo()
    locked = bytearray(whole)
    for place in range(len(whole) - 4):
        if whole[place : place + 4] == b"PK\x01\x02":
            locked[place + 8] |= 1
    path.write_bytes(locked)
    refused(path, Code.SCAN_UNSUPPORTED, "password")


@pytest.mark.parametrize("prefix", ["../../", "/", "a/../../../"])
def test_zip_members_are_never_extracted(volume: Volume, tmp_path: Path, prefix: str) -> None:
    folder = tmp_path / "deep" / "er" / "data"
    path = zipped(series(tmp_path / "case", volume), tmp_path / "a.zip", prefix)
    folder.mkdir(parents=True)
    path = path.rename(folder / "a.zip")
    before = sorted(tmp_path.rglob("*"))
    np.testing.assert_array_equal(read_scan(path).array[0], volume)
    assert sorted(tmp_path.rglob("*")) == before


def changed(path: Path, place: int, content: bytes, signature: bytes = b"PK\x01\x02") -> Path:
    """Change bytes of the last entry of the central directory, or of another record."""
    whole = bytearray(path.read_bytes())
    begin = whole.rfind(signature) + place
    whole[begin : begin + len(content)] = content
    path.write_bytes(whole)
    return path


def test_a_member_without_a_name(volume: Volume, tmp_path: Path) -> None:
    path = zipped(series(tmp_path / "case", volume), tmp_path / "a.zip")
    refused(changed(path, 46, b"\0"), Code.SCAN_DAMAGED, "no name")


def test_a_name_that_is_not_unicode(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("ä.dcm", b"content")
    refused(changed(tmp_path / "a.zip", 46, b"\xff"), Code.SCAN_DAMAGED)


def test_members_may_not_overlap(volume: Volume, tmp_path: Path) -> None:
    path = zipped(series(tmp_path / "case", volume[:, :, :2]), tmp_path / "a.zip")
    refused(changed(path, 42, bytes(4)), Code.SCAN_DAMAGED, "overlap")


def test_members_beyond_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large member of zeros is refused by its size in the directory, without reading it."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.dcm", bytes(1000))
    refused(changed(path, 24, (2**29).to_bytes(4, "little")), Code.SCAN_TOO_LARGE, str(2**29))
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(6):
            archive.writestr(f"{number}.dcm", b"")
    monkeypatch.setattr(dicom_members, "MAX_FILES", 5)
    refused(changed(path, 10, b"\x05\x00", b"PK\x05\x06"), Code.SCAN_TOO_LARGE, "more than 5 files")


def test_a_member_with_more_content_than_its_header_says(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.dcm", bytes(16 * 2**20))
    changed(path, 24, (100).to_bytes(4, "little"))
    tracemalloc.start()
    refused(path, Code.SCAN_DAMAGED)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 2**20


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_rare_compressions_are_refused(tmp_path: Path, method: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("a.dcm", bytes(100))
    refused(tmp_path / "a.zip", Code.SCAN_UNSUPPORTED, f"method {method}")
