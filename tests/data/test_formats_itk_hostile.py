"""NRRD and MetaImage files that claim too much: refused without the memory or time that they ask for."""

import bz2
from pathlib import Path

import numpy as np
import pytest
from test_formats_itk_oracle import meta, nrrd

from graftseg.core.errors import Code, UserError
from graftseg.data.formats import scan
from graftseg.data.scans import read_geometry, read_scan
from memory_limit import limited_memory
from scan_fakes import refused


def changed(path: Path, old: str, new: str) -> Path:
    content = path.read_bytes()
    assert content.count(old.encode()) == 1
    path.write_bytes(content.replace(old.encode(), new.encode()))
    return path


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("NDims = 3", "NDims = 9223372036854775808", Code.SCAN_HEADER),
        ("NDims = 3", "NDims = 99", Code.SCAN_UNSUPPORTED),
        ("NDims = 3", "NDims = 0", Code.SCAN_UNSUPPORTED),
        ("DimSize = 2 3 4", "DimSize = 2 3 -4", Code.SCAN_UNSUPPORTED),
        ("DimSize = 2 3 4", "DimSize = 2 3", Code.SCAN_HEADER),
        ("DimSize = 2 3 4", "DimSize = 2 3 " + "4" * 5000, Code.SCAN_HEADER),
        ("DimSize = 2 3 4", "DimSize = 2 3 4\nDimSize = 2 3 4", Code.SCAN_HEADER),
        ("DimSize = 2 3 4", "DimSize = 2 3 4\nElementSpacing = 1 1 " + "1" * 5000, Code.SCAN_HEADER),
        ("DimSize = 2 3 4", "DimSize = 2 3 4\nElementSpacing = 1 1 1e999", Code.SCAN_HEADER),
        ("DimSize = 2 3 4", "DimSize = 2 3 4\nElementNumberOfChannels = 0", Code.SCAN_HEADER),
        ("DimSize = 2 3 4", "DimSize = 2 3 4\nHeaderSize = 9", Code.SCAN_UNSUPPORTED),
        ("DimSize = 2 3 4", "DimSize = 2 3 4\nCompressedData = 7", Code.SCAN_HEADER),
        ("MET_SHORT", "MET_OTHER", Code.SCAN_UNSUPPORTED),
        ("LOCAL", "x" * 5000, Code.FILE_MISSING),
        ("LOCAL", "x\0y", Code.SCAN_UNSUPPORTED),
    ],
)
def test_headers_of_metaimage(tmp_path: Path, old: str, new: str, code: Code) -> None:
    refused(changed(meta(tmp_path / "a.mha", "2 3 4"), old, new), code)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("dimension: 3", "dimension: 9223372036854775808", Code.SCAN_HEADER),
        ("dimension: 3", "dimension: 16", Code.SCAN_UNSUPPORTED),
        ("sizes: 2 3 4", "sizes: 2 3 0", Code.SCAN_UNSUPPORTED),
        ("sizes: 2 3 4", "sizes: 2 3 4 1", Code.SCAN_HEADER),
        ("sizes: 2 3 4", "sizes: 2 3 4\nkinds: domain domain", Code.SCAN_HEADER),
        ("sizes: 2 3 4", "sizes: 2 3 4\nkinds: list domain vector", Code.SCAN_UNSUPPORTED),
        ("sizes: 2 3 4", "sizes: 2 3 4\nbyte skip: -2", Code.SCAN_UNSUPPORTED),
        ("sizes: 2 3 4", "sizes: 2 3 4\nbyte skip: 99999999999999", Code.SCAN_DAMAGED),
        ("sizes: 2 3 4", "sizes: 2 3 4\nline skip: 99999999999999", Code.SCAN_DAMAGED),
        ("sizes: 2 3 4", "sizes: 2 3 4\nspace: LPS\nspace directions: (1,0,0) none (0,0,1)", Code.SCAN_HEADER),
        ("sizes: 2 3 4", "sizes: 2 3 4\nspace: LPS\nspace directions: (1,0,0) (0,1,0)", Code.SCAN_HEADER),
        ("sizes: 2 3 4", "sizes: 2 3 4\nspace: up", Code.SCAN_HEADER),
        ("sizes: 2 3 4", "sizes: 2 3 4\nspace dimension: 2", Code.SCAN_UNSUPPORTED),
        ("sizes: 2 3 4", f"sizes: 2 3 4\nspace: LPS\nspace origin: (0,0,{'9' * 5000})", Code.SCAN_HEADER),
        ("endian: little", "endian: middle", Code.SCAN_HEADER),
        ("encoding: raw", "encoding: hex", Code.SCAN_UNSUPPORTED),
        ("type: short", "type: block", Code.SCAN_UNSUPPORTED),
        ("type: short\n", "", Code.SCAN_DAMAGED),
    ],
)
def test_headers_of_nrrd(tmp_path: Path, old: str, new: str, code: Code) -> None:
    refused(changed(nrrd(tmp_path / "a.nrrd", "2 3 4"), old, new), code)


def test_a_header_without_an_end(tmp_path: Path) -> None:
    for first in (b"NRRD0005\ntype: short\n", b"NDims = 3\n"):
        for line in (b"a" * 100 + b"\n", b"a " * 50, b"=:" * 50):
            (tmp_path / "a.nrrd").write_bytes(first + line * 20_000)
            refused(tmp_path / "a.nrrd", Code.SCAN_DAMAGED, "header cannot be read")


def test_a_wrong_compressed_size_does_not_change_voxels(tmp_path: Path) -> None:
    """SimpleITK returns other voxels if CompressedDataSize is wrong."""
    path = meta(tmp_path / "a.mha", "2 3 4", packed=True)
    known, content = read_scan(path).array, path.read_bytes()
    begin = content.index(b"CompressedDataSize = ") + len(b"CompressedDataSize = ")
    for place in range(begin, content.index(b"\n", begin)):
        for digit in b"0123456789":
            path.write_bytes(content[:place] + bytes([digit]) + content[place + 1 :])
            np.testing.assert_array_equal(read_scan(path).array, known)
    path.write_bytes(content.replace(b"CompressedData =", b"CompressedDats =") + bytes(99))
    refused(path, Code.SCAN_HEADER, "compresseddata")


@limited_memory()
def test_claims_need_no_memory(tmp_path: Path) -> None:
    big = "1024 1024 800"
    for encoding in ("raw", "gzip", "ascii", "bzip2"):
        path = changed(nrrd(tmp_path / f"{encoding}.nrrd", "2 3 4", encoding=encoding), "sizes: 2 3 4", f"sizes: {big}")
        with pytest.raises(UserError):
            read_scan(path)
    zeros = bz2.compress(bytes(2**20))
    path = changed(nrrd(tmp_path / "a.nrrd", "2 3 4", encoding="bzip2"), "sizes: 2 3 4", f"sizes: {big}")
    path.write_bytes(path.read_bytes().split(b"\n\n")[0] + b"\n\n" + zeros * 1600)
    refused(path, Code.SCAN_TOO_LARGE, "compressed")
    assert read_geometry(nrrd(tmp_path / "a.nrrd", "2 3 4", encoding="bzip2")).shape == (2, 3, 4)


def test_too_little_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = nrrd(tmp_path / "a.nrrd", "2 3 4")
    monkeypatch.setattr(scan, "free_memory", lambda device: 47)
    refused(path, Code.OUT_OF_MEMORY)
    monkeypatch.setattr(scan, "free_memory", lambda device: 48)
    assert read_scan(path).array.shape == (1, 2, 3, 4)


@pytest.mark.parametrize("words", ["1 2 3", "1 2 x 4 5 6", "1 2 3 4 5 99999", "1 2 3 4 5 " + "6" * 99, "1_1 2 3 4 5 6"])
def test_invalid_text(tmp_path: Path, words: str) -> None:
    path = nrrd(tmp_path / "a.nrrd", "2 3", encoding="ascii")
    path.write_bytes(path.read_bytes().split(b"\n\n")[0] + b"\n\n" + words.encode())
    refused(path, Code.SCAN_DAMAGED)


def test_long_text(tmp_path: Path) -> None:
    """Numbers that lie on the border of two chunks are not split."""
    path = nrrd(tmp_path / "a.nrrd", "100 200 3", dtype="<i4", encoding="ascii")
    known = read_scan(path).array
    np.testing.assert_array_equal(known.ravel(order="F"), np.arange(60_000))
    header, text = path.read_bytes().split(b"\n\n", 1)
    path.write_bytes(header + b"\n\n" + text.replace(b" ", b","))
    np.testing.assert_array_equal(read_scan(path).array, known)
