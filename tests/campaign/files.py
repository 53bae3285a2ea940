"""Small valid files of every scan format, to be damaged."""

import bz2
import gzip
import zlib
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import pydicom
from picture_files import SUFFIXES, picture
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRBigEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RLELossless,
)

from dicom_fakes import write_enhanced, write_series
from dicom_label_fakes import Image, write_rtstruct, write_seg
from graftseg.data.scans import Scan, read_label, read_scan

VOXELS = np.random.default_rng(7).integers(-200, 200, (5, 6, 7), np.int16)
CLASSES = {0: "background", 1: "liver", 2: "spleen"}
IMAGE = Image()
Files = dict[str, bytes]
"""The content of each file of a sample by name. The first file is damaged."""


def sample(name: str) -> Files:
    """Return the files of a small valid sample of a format."""
    return SAMPLES[name]()


def write(folder: Path, files: Files) -> None:
    """Write the files of a sample, or of a mutant, to a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def read(folder: Path, files: Files) -> Scan:
    """Read the sample in a folder as the program does."""
    first = next(iter(files))
    if first.startswith("mask"):
        return read_label(folder / first)
    if first.startswith("label"):
        return read_label(folder / first, folder / "image", CLASSES)
    return read_scan(folder if first.startswith("slice") else folder / first)


def _nrrd(encoding: str, name: str = "a.nrrd") -> Files:
    raw = VOXELS.tobytes(order="F")
    text = " ".join(map(str, VOXELS.ravel(order="F").tolist())).encode()
    content = {"raw": raw, "gzip": gzip.compress(raw, mtime=0), "bzip2": bz2.compress(raw), "ascii": text}[encoding]
    lines = ["NRRD0004", "type: int16", "dimension: 3", "space: left-posterior-superior", "sizes: 5 6 7"]
    lines += ["space directions: (0.5,0,0) (0,0.75,0.1) (0,0,2.5)", "kinds: domain domain domain", "endian: little"]
    lines += [f"encoding: {encoding}", "space origin: (-10.5,20,30.25)"]
    if name.endswith(".nhdr"):
        return {name: "\n".join([*lines, "data file: a.raw", ""]).encode(), "a.raw": content}
    return {name: "\n".join([*lines, "", ""]).encode() + content}


def _metaimage(*, packed: bool = False, name: str = "a.mha") -> Files:
    content = VOXELS.tobytes(order="F")
    lines = ["ObjectType = Image", "NDims = 3", "BinaryData = True", "BinaryDataByteOrderMSB = False"]
    if packed:
        content = zlib.compress(content)
        lines += ["CompressedData = True", f"CompressedDataSize = {len(content)}"]
    lines += ["TransformMatrix = 1 0 0 0 1 0 0 0 1", "Offset = -10.5 20 30.25", "ElementSpacing = 0.5 0.75 2.5"]
    lines += ["DimSize = 5 6 7", "ElementType = MET_SHORT"]
    if name.endswith(".mhd"):
        return {name: "\n".join([*lines, "ElementDataFile = a.raw", ""]).encode(), "a.raw": content}
    return {name: "\n".join([*lines, "ElementDataFile = LOCAL", ""]).encode() + content}


def _dicom(syntax: UID) -> Files:
    with TemporaryDirectory() as folder:
        paths = write_series(Path(folder), VOXELS[:, :, :3], (0.5, 0.75, 2.5), SeriesInstanceUID="1.2.3.9")
        return {f"slice{index}.dcm": _saved(path.read_bytes(), syntax) for index, path in enumerate(paths)}


def _zipped() -> Files:
    stream = BytesIO()
    with ZipFile(stream, "w", ZIP_DEFLATED) as archive:
        for name, content in _dicom(ExplicitVRLittleEndian).items():
            archive.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return {"a.zip": stream.getvalue()}


def _enhanced() -> Files:
    with TemporaryDirectory() as folder:
        write_enhanced(Path(folder) / "a.dcm", VOXELS, (0.5, 0.75, 2.5))
        return {"a.dcm": _saved((Path(folder) / "a.dcm").read_bytes(), RLELossless)}


def _saved(content: bytes, syntax: UID) -> bytes:
    one, target = pydicom.dcmread(BytesIO(content)), BytesIO()
    if syntax == RLELossless:
        one.compress(RLELossless, generate_instance_uid=False)
    elif syntax == ExplicitVRBigEndian:
        one.PixelData = np.frombuffer(one.PixelData, "<i2").astype(">i2").tobytes()
    one.file_meta.TransferSyntaxUID = syntax
    one.file_meta.MediaStorageSOPInstanceUID = "1.2.3.4.5"
    is_implicit, is_little = syntax == ImplicitVRLittleEndian, syntax != ExplicitVRBigEndian
    pydicom.dcmwrite(target, one, implicit_vr=is_implicit, little_endian=is_little, force_encoding=True)
    return target.getvalue()


def _label(write_label: Callable[[Path], Path]) -> Files:
    with TemporaryDirectory() as folder:
        image = IMAGE.write(Path(folder) / "image")
        content = write_label(Path(folder) / "label.dcm").read_bytes()
        images = {f"image/{path.name}": path.read_bytes() for path in sorted(image.iterdir())}
        return {"label.dcm": content, **images}


def _segmentation(path: Path) -> Path:
    mask = np.zeros(IMAGE.shape[:2], bool)
    mask[2:5, 3:6] = True
    return write_seg(path, IMAGE, [(1, 0, mask), (1, 1, mask), (2, 2, mask.copy())], {1: "liver", 2: "spleen"})


def _structure_set(path: Path) -> Path:
    square = [(0.5, 0.5), (4.5, 0.5), (4.5, 4.5), (0.5, 4.5)]
    hole = [(1.5, 1.5), (2.5, 1.5), (2.5, 2.5), (1.5, 2.5)]
    liver = [IMAGE.contour(square, 0), IMAGE.contour(hole, 0), IMAGE.contour(square, 1)]
    return write_rtstruct(path, [(1, "liver", liver), (2, "spleen", [IMAGE.contour(square, 2)])])


def _picture(name: str) -> Files:
    return {f"{'mask' if name.endswith('label') else 'a'}{SUFFIXES[name]}": picture(name)}


SAMPLES: dict[str, Callable[[], Files]] = {
    "mha": lambda: _metaimage(),
    "mha-zlib": lambda: _metaimage(packed=True),
    "mhd": lambda: _metaimage(name="a.mhd"),
    "nrrd": lambda: _nrrd("raw"),
    "nrrd-gzip": lambda: _nrrd("gzip"),
    "nrrd-ascii": lambda: _nrrd("ascii"),
    "nrrd-bzip2": lambda: _nrrd("bzip2"),
    "nhdr": lambda: _nrrd("raw", "a.nhdr"),
    "dicom-explicit": lambda: _dicom(ExplicitVRLittleEndian),
    "dicom-implicit": lambda: _dicom(ImplicitVRLittleEndian),
    "dicom-big-endian": lambda: _dicom(ExplicitVRBigEndian),
    "dicom-deflated": lambda: _dicom(DeflatedExplicitVRLittleEndian),
    "dicom-rle": lambda: _dicom(RLELossless),
    "dicom-enhanced-rle": _enhanced,
    "dicom-zip": _zipped,
    "dicom-seg": lambda: _label(_segmentation),
    "rtstruct": lambda: _label(_structure_set),
}
"""Functions that make a sample, by name of the format."""
SAMPLES |= {name: partial(_picture, name) for name in SUFFIXES}
