"""Scans of every supported format: voxels and geometry. The suffix or the content determines the reader."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.types import Geometry
from graftseg.data.formats import dicom, itk, nifti, pictures
from graftseg.data.formats.dicom_labels import is_dicom_label, read_dicom_label
from graftseg.data.formats.dicom_members import has_dicom_content, is_dicom
from graftseg.data.formats.scan import VOLUMES_ARE_CHANNELS as VOLUMES_ARE_CHANNELS
from graftseg.data.formats.scan import Format
from graftseg.data.formats.scan import Scan as Scan
from graftseg.data.grid import grid_difference as grid_difference

NIFTI = Format(nifti.nifti_geometry, nifti.read_nifti, nifti.read_nifti)
ITK = Format(itk.itk_geometry, itk.read_itk, itk.read_itk)
PICTURE = Format(pictures.picture_geometry, pictures.read_picture, partial(pictures.read_picture, is_label=True))
DICOM = Format(dicom.dicom_geometry, dicom.read_dicom, None)
FORMATS: dict[str, Format] = {
    **dict.fromkeys(nifti.SUFFIXES, NIFTI),
    **dict.fromkeys(itk.SUFFIXES, ITK),
    **dict.fromkeys(pictures.SUFFIXES, PICTURE),
    **dict.fromkeys(dicom.SUFFIXES, DICOM),
}
MAX_FLOAT32 = float(np.finfo(np.float32).max)
ROUNDING = 0.001  # largest rounding error of a label, for example by the scale factor of a NIfTI file
READABLE = "NIfTI, NRRD, MHA, PNG, TIFF, JPEG, BMP or DICOM"


def is_scan(path: Path) -> bool:
    """Return whether a path is a scan: a file with the suffix of a scan, a DICOM file, or a folder with DICOM files."""
    return dicom.contains_dicom(path) if path.is_dir() else _suffix(path) is not None or has_dicom_content(path)


def is_dicom_file(path: Path) -> bool:
    """Return whether a scan is a single DICOM file, with the suffix ``.dcm`` or with an unknown suffix."""
    return _suffix(path) in (None, ".dcm") and not path.is_dir()


def is_dicom_scan(path: Path) -> bool:
    """Return whether a scan is DICOM: a folder, a zip or a single file."""
    return _format(path) is DICOM


def is_label_map(path: Path) -> bool:
    """Return whether a path is a label map: by suffix, or by content if it is DICOM."""
    suffix = _suffix(path)
    if path.is_dir() or suffix == ".dcm" or (suffix is None and has_dicom_content(path)):
        return is_dicom_label(path)
    return suffix is not None and FORMATS[suffix].label is not None


def may_be_dicom(path: Path) -> bool:
    """Return whether a path is a DICOM file, a folder with DICOM files, or a file that cannot be read."""
    try:
        return dicom.contains_dicom(path) if path.is_dir() else path.is_file() and is_dicom(path)
    except UserError:
        return True


def is_header(path: Path) -> bool:
    """Return whether a file name has the suffix of a header whose voxels are in another file."""
    return path.name.lower().endswith(itk.HEADERS)


def scan_stem(path: Path) -> str:
    """Return the name of a scan without its suffix, in Unicode form NFC. The stem of a folder is its name."""
    return nfc(path.name if path.is_dir() else path.name[: len(path.name) - len(_suffix(path) or "")])


def files_of(path: Path) -> list[Path]:
    """Return the files of a scan: the slices of a DICOM folder, a header and its voxel file, or a single file."""
    if path.is_dir():
        return dicom.dicom_files(path)
    return itk.itk_files(path) if _suffix(path) in itk.SUFFIXES else [path]


def read_geometry(path: Path, channel_count: int | None = None) -> Geometry:
    """Return the geometry from the header, without checking the voxels. ``read_scan`` explains ``channel_count``."""
    return _format(path).geometry(path, channel_count)


def read_scan(path: Path, channel_count: int | None = None) -> Scan:
    """Read one file, or a folder of DICOM slices, as ``(C, *space)``. All axes after the third are channels.

    ``channel_count`` is the number of channels in ``dataset.json``. If it equals the number of volumes in the file, or
    is ``VOLUMES_ARE_CHANNELS``, the volumes are channels. Otherwise, a time series is refused, and a possible time
    series is reported as a guess. Voxels keep their type, or become float32 or float64 if the header scales them. A
    file with two axes is a 2-D scan. A file with three axes is a volume, even if it has one slice.
    """
    scan = _format(path).scan(path, channel_count)
    refuse_non_finite(path, scan.array)
    return scan


def read_case(images: Sequence[Path], channel_count: int | None = None, *, same_grid: bool = True) -> Scan:
    """Read the files of a case, one per channel, as ``(C, *space)``. With ``same_grid``, refuse different grids.

    If ``channel_count`` is the number of files, gray pictures that are stored with three colors have one channel.
    """
    counts = [1 if channel_count == len(images) and _format(path) is PICTURE else channel_count for path in images]
    scans = [read_scan(path, count) for path, count in zip(images, counts, strict=True)]
    geometry = scans[0].geometry
    for path, scan in zip(images, scans, strict=True):
        if same_grid and (difference := grid_difference(geometry, scan.geometry)):
            finding = f"its grid differs from {images[0].name}: {difference}"
            raise UserError(Code.GEOMETRY_MISMATCH, path, finding, "resample all channels of a case to one grid")
    if len(scans) == 1:
        return scans[0]
    guesses = tuple(guess for scan in scans for guess in scan.guesses)
    return Scan(np.concatenate([scan.array for scan in scans]), geometry, guesses)


def read_label(path: Path, image: Path | None = None, classes: Mapping[int, str] | None = None) -> Scan:
    """Read a label map ``(*space)`` as uint8 or uint16. A DICOM label needs its ``image`` and class names.

    A picture has the geometry of its ``image`` if that is a DICOM picture of the same size, such as a radiograph.
    """
    read = _format(path).label
    if read is not None:
        scan = read(path)
        if _format(path) is PICTURE and image is not None and image.exists() and is_dicom_scan(image):
            geometry = read_geometry(image)
            scan = replace(scan, geometry=geometry) if geometry.shape == scan.geometry.shape else scan
    elif image is not None and is_dicom_scan(image) and is_label_map(path):
        scan = read_dicom_label(path, image, classes or {})
    else:
        finding = "not a DICOM segmentation or structure set"
        if is_label_map(path):
            finding = "a DICOM label can be read only on the grid of its DICOM image"
        raise UserError(Code.SCAN_UNSUPPORTED, path, finding, "save it as NIfTI, NRRD or MHA")
    refuse_non_finite(path, scan.array)
    if len(scan.array) != 1:
        is_color = _format(path) is PICTURE
        finding = f"a label map with {'colors' if is_color else f'{len(scan.array)} channels'}"
        remedy = "save one class number per " + ("pixel, as a gray value or palette index" if is_color else "voxel")
        raise UserError(Code.LABEL_INVALID, path, finding, remedy)
    return replace(scan, array=class_numbers(path, scan.array[0]))


def class_numbers(path: Path, labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels ``(*space)`` as uint8, or uint16 if a value is above 255. Refuse fractions and negative values.

    Values that differ from an integer by at most ``ROUNDING`` become this integer.
    """
    if labels.dtype.kind == "f":
        integers = np.rint(labels)
        _refuse_labels(path, labels, np.abs(labels - integers) > ROUNDING, "not an integer", "save class numbers")
        labels = integers
    if labels.min() < 0:
        _refuse_labels(path, labels, labels < 0, "negative", "number the classes from 0, the background")
    top = int(labels.max())
    if top > 65535:
        _refuse_labels(path, labels, labels > 65535, "above 65535", "number the classes 0, 1, 2, ...")
    return _smallest_type(labels, top)


def write_label(path: Path, labels: NDArray[Any], geometry: Geometry) -> None:
    """Write a label map ``(*space)`` as NIfTI in uint8 or uint16, or as an 8-bit picture if the suffix is ``.png``."""
    if labels.dtype.kind not in "bui":
        raise ValueError(f"labels of type {labels.dtype} are not integers")
    low, top = int(labels.min()), int(labels.max())
    if low < 0 or top > 65535:
        raise ValueError(f"labels from {low} to {top} are not in 0 to 65535")
    if labels.shape != geometry.shape:
        raise ValueError(f"labels of shape {labels.shape} on a grid of {geometry.shape}")
    if path.suffix.lower() == ".png":
        if labels.ndim != 2 or top > 255:
            raise ValueError(f"labels of shape {labels.shape} up to {top} are not an 8-bit picture")
        pictures.write_label_picture(path, _smallest_type(labels, top))
        return
    nifti.write_nifti(path, _smallest_type(labels, top)[None], geometry)


def write_scan(path: Path, array: NDArray[Any], geometry: Geometry, *, slope: float = 1.0) -> None:
    """Write ``(C, *space)`` or ``(*space)`` as NIfTI (float16 as float32). Readers multiply the voxels by ``slope``."""
    channels = array[None] if array.ndim == len(geometry.shape) else array
    if channels.shape[1:] != geometry.shape:
        raise ValueError(f"voxels of shape {array.shape} on a grid of {geometry.shape}")
    widened = {"bool": np.uint8, "float16": np.float32}.get(array.dtype.name, array.dtype)
    nifti.write_nifti(path, channels.astype(widened, copy=False), geometry, slope)


def _smallest_type(labels: NDArray[Any], top: int) -> NDArray[Any]:
    return labels.astype(np.uint8 if top <= 255 else np.uint16, copy=False)


def refuse_non_finite(path: str | Path, array: NDArray[Any]) -> None:
    """Raise a UserError if voxels ``(C, *space)`` are NaN, infinite or too large for float32."""
    if array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array) if array.itemsize <= 4 else ~(np.abs(array) <= MAX_FLOAT32)
    if count := int(np.count_nonzero(bad)):
        channel, *voxel = _first(bad)
        within = f" of channel {channel + 1}" if len(array) > 1 else ""
        kinds = f"NaN, infinite or above {MAX_FLOAT32:.2g}" if array.itemsize > 4 else "NaN or infinite"
        finding = f"{count} of {array.size} voxels are {kinds}, the first at {tuple(voxel)}{within}"
        raise UserError(Code.SCAN_DAMAGED, path, finding, "replace these voxels by a number, such as the value of air")


def _refuse_labels(path: Path, labels: NDArray[Any], bad: NDArray[np.bool_], what: str, remedy: str) -> None:
    if bad.any():
        voxel = _first(bad)
        raise UserError(Code.LABEL_INVALID, path, f"the label {labels[voxel]:g} at voxel {voxel} is {what}", remedy)


def _first(bad: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(int(index) for index in np.unravel_index(int(bad.argmax()), bad.shape))


def _suffix(path: Path) -> str | None:
    name = path.name.lower()
    return next((suffix for suffix in FORMATS if name.endswith(suffix) and name != suffix), None)


def _format(path: Path) -> Format:
    suffix = _suffix(path)
    if path.is_dir() and (suffix is None or dicom.contains_dicom(path)):
        return DICOM
    if suffix is None and has_dicom_content(path):
        return DICOM
    if suffix is None:
        remedy = f"use {READABLE} files with their usual suffixes"
        raise UserError(Code.NOT_A_SCAN, path, "the file ending is not a supported scan format", remedy)
    return FORMATS[suffix]
