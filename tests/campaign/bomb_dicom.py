"""Small DICOM files and zips that ask for much memory or time."""

import io
import struct
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bomb_streams import MIB, Make, deflated
from dicom_data import dicom_slice, write_dicom
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, DeflatedExplicitVRLittleEndian, ExplicitVRLittleEndian, JPEGBaseline8Bit, RLELossless

HEAD_BYTES = 132


def _dicom(folder: Path, *, change: Callable[[Dataset], object]) -> Path:
    return write_dicom(folder / "a.dcm", dicom_slice(), change)


def _side(one: Dataset, side: int = 40000) -> None:
    one.Rows = one.Columns = side


def _frames(one: Dataset, count: int = 2**31 - 1) -> None:
    one.NumberOfFrames = count


def _side_and_frames(one: Dataset) -> None:
    _side(one)
    _frames(one)


def _encapsulated(one: Dataset, syntax: UID, frame: bytes, side: int, frames: int = 1) -> None:
    one.file_meta.TransferSyntaxUID = syntax
    one.PixelData = encapsulate([frame])
    one["PixelData"].is_undefined_length = True
    one["PixelData"].VR = "OB"
    one.NumberOfFrames = frames
    _side(one, side)


def _rle(side: int) -> bytes:
    """Return two segments of long runs."""
    segment = b"\x81\x00" * min(side * side // 128, 2**19)
    return struct.pack("<16I", 2, 64, 64 + len(segment), *[0] * 13) + segment * 2


def _jpeg(side: int) -> bytes:
    return b"\xff\xd8\xff\xc0\x00\x0b\x08" + struct.pack(">HH", side, side) + b"\x01\x01\x11\x00\xff\xd9"


def _deep(folder: Path, *, depth: int) -> Path:
    """Write nested items of undefined length before all other tags."""
    path = write_dicom(folder / "a.dcm", dicom_slice())
    content = path.read_bytes()
    begin = content.index(b"\x08\x00\x16\x00UI")
    opening = b"\x08\x00\x15\x11SQ\0\0\xff\xff\xff\xff\xfe\xff\x00\xe0\xff\xff\xff\xff"
    path.write_bytes(content[:begin] + opening * depth + content[begin:])
    return path


def _length(folder: Path) -> Path:
    """Write pixels with a length of 4 GiB."""
    path = write_dicom(folder / "a.dcm", dicom_slice())
    content = bytearray(path.read_bytes())
    place = content.index(b"\xe0\x7f\x10\x00OW\0\0") + 8
    content[place : place + 4] = struct.pack("<I", 2**32 - 16)
    path.write_bytes(content)
    return path


def _deflated_tags(folder: Path) -> Path:
    """Write a compressed data set that begins with a comment of 3 GiB."""
    path = write_dicom(folder / "a.dcm", dicom_slice())
    content = path.read_bytes()
    begin = content.index(b"\x08\x00\x05\x00CS")
    plain, packed = str(ExplicitVRLittleEndian).encode() + b"\0", str(DeflatedExplicitVRLittleEndian).encode()
    syntax = content[:begin].replace(struct.pack("<H", 20) + plain, struct.pack("<H", 22) + packed)
    group = syntax.index(b"\x02\x00\x00\x00UL\x04\x00") + 8
    length = struct.unpack("<I", syntax[group : group + 4])[0] + 2
    syntax = syntax[:group] + struct.pack("<I", length) + syntax[group + 4 :]
    comment = b"\x08\x00\x01\x01UN\0\0" + struct.pack("<I", 3072 * MIB)
    path.write_bytes(syntax + deflated(3072, comment))
    return path


def _zip(folder: Path, *, entries: dict[str, bytes]) -> Path:
    path = folder / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def _raw_zip(
    folder: Path, *, name: str, mib: int, claimed: int | None = None, times: int = 1, overlap: bool = False
) -> Path:
    """Write a zip with ``times`` entries of ``mib`` MiB, all with the same data if they ``overlap``."""
    data = deflated(mib, bytes(128) + (b"DICM" if name.endswith(".dcm") else b"text"))
    size = mib * MIB + HEAD_BYTES if claimed is None else claimed
    content, central = b"", b""
    for index in range(times):
        full = f"{index}-{name}".encode()
        fields = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, 1, len(data), size, len(full), 0)
        offset = 0 if overlap else len(content)
        central += b"PK\1\2" + struct.pack("<H", 20) + fields + struct.pack("<HHHII", 0, 0, 0, 0, offset) + full
        if not (overlap and index):
            content += b"PK\3\4" + fields + full + data
    end = struct.pack("<HHHHIIH", 0, 0, times, times, len(central), len(content), 0)
    path = folder / "a.zip"
    path.write_bytes(content + central + b"PK\5\6" + end)
    return path


def _nested_zip(folder: Path) -> Path:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.dcm", bytes(64 * MIB))
    content = inner.getvalue()
    return _zip(folder, entries={f"{number}.zip": content for number in range(200)})


DICOMS: dict[str, Make] = {
    "dicom size": partial(_dicom, change=_side),
    "dicom frames": partial(_dicom, change=_frames),
    "dicom size and frames": partial(_dicom, change=_side_and_frames),
    "dicom rle size": partial(_dicom, change=lambda one: _encapsulated(one, RLELossless, bytes(64), 40000)),
    "dicom rle runs": partial(_dicom, change=lambda one: _encapsulated(one, RLELossless, _rle(40000), 40000)),
    "dicom rle frames": partial(_dicom, change=lambda one: _encapsulated(one, RLELossless, _rle(512), 512, 10**6)),
    "dicom jpeg size": partial(_dicom, change=lambda one: _encapsulated(one, JPEGBaseline8Bit, _jpeg(65500), 65500)),
    "dicom nested": partial(_deep, depth=300),
    "dicom deeply nested": partial(_deep, depth=100_000),
    "dicom length": _length,
    "dicom deflated": _deflated_tags,
    "zip slice": partial(_raw_zip, name="a.dcm", mib=3072),
    "zip other file": partial(_raw_zip, name="a.txt", mib=3072),
    "zip wrong size": partial(_raw_zip, name="a.dcm", mib=3072, claimed=4096),
    "zip many slices": partial(_raw_zip, name="a.dcm", mib=64, times=40),
    "zip overlap": partial(_raw_zip, name="a.dcm", mib=512, times=30, overlap=True),
    "zip many files": partial(_zip, entries={f"{number}": b"" for number in range(20_000)}),
    "zip in zip": _nested_zip,
}
