"""Scans, whatever their format: their voxels, and where these lie in the world.

A table says which format a name stands for; the package ``formats`` opens the files. A folder of DICOM slices is a scan
as a file is.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.formats import dicom, itk, nifti, pictures
from graftseg.data.formats.fourth_axis import VOLUMES_ARE_CHANNELS as VOLUMES_ARE_CHANNELS
from graftseg.data.formats.scan import MAX_BYTES as MAX_BYTES
from graftseg.data.formats.scan import Format
from graftseg.data.formats.scan import Scan as Scan
from graftseg.data.grid import grid_difference as grid_difference

NIFTI = Format(nifti.nifti_geometry, nifti.read_nifti, nifti.read_nifti)
ITK = Format(itk.itk_geometry, itk.read_itk, itk.read_itk)
Read = TypeVar("Read")


def _whatever_is_named(read: Callable[[Path], Read]) -> Callable[[Path, int | None], Read]:
    """Read a format in which there is no doubt about what is a channel."""
    return lambda path, named: read(path)


PICTURE = Format(
    _whatever_is_named(pictures.picture_geometry),
    _whatever_is_named(pictures.read_picture),
    pictures.read_label_picture,
)
DICOM = Format(_whatever_is_named(dicom.dicom_geometry), _whatever_is_named(dicom.read_dicom), None)

FORMATS: dict[str, Format] = {
    **dict.fromkeys(nifti.SUFFIXES, NIFTI),
    **dict.fromkeys(itk.SUFFIXES, ITK),
    **dict.fromkeys(pictures.SUFFIXES, PICTURE),
    **dict.fromkeys(dicom.SUFFIXES, DICOM),
}
LARGEST = float(np.finfo(np.float32).max)
READABLE = "NIfTI, NRRD, MHA, PNG, TIFF or DICOM"


def is_scan(path: Path) -> bool:
    """Whether a path is a scan: a file by its name, a folder by the DICOM slices in it."""
    return dicom.holds_slices(path) if path.is_dir() else _suffix(path) is not None


def is_label_map(path: Path) -> bool:
    """Whether a file can be a label map by its name; DICOM is read for images only."""
    suffix = _suffix(path)
    return suffix is not None and FORMATS[suffix].label is not None and not path.is_dir()


def is_header(path: Path) -> bool:
    """Whether a file is, by its name, the header of a scan whose voxels are in another file."""
    return path.name.lower().endswith(itk.HEADERS)


def scan_stem(path: Path) -> str:
    """The name of a scan without ``.nii.gz`` or another ending of scans; a folder's name is whole."""
    return path.name if path.is_dir() else path.name[: len(path.name) - len(_suffix(path) or "")]


def files_of(path: Path) -> list[Path]:
    """The files that a scan consists of, by name: the slices of a folder, a header with its voxels, or the one file."""
    if path.is_dir():
        return dicom.slice_files(path)
    return itk.itk_files(path) if _suffix(path) in itk.SUFFIXES else [path]


def read_geometry(path: Path, named: int | None = None) -> Geometry:
    """Where the voxels lie, from the header alone: only reading shows whether the voxels are sound."""
    return _format(path).geometry(path, named)


def read_scan(path: Path, named: int | None = None) -> Scan:
    """Read one file, or a folder of DICOM slices, as ``(C, *space)``: all axes after the third are channels.

    A time series is refused and a possible time series is reported as a guess, unless the file has ``named`` volumes or
    ``named`` is ``VOLUMES_ARE_CHANNELS``. Voxels keep their type, or become floats if the header scales them.
    A file with two axes is a 2-D scan, a file with three axes a volume, even if it is one slice thick.
    """
    scan = _format(path).scan(path, named)
    refuse_non_finite(path, scan.array)
    return scan


def read_case(images: Sequence[Path], named: int | None = None) -> Scan:
    """Read the files of one case, one a channel, as ``(C, *space)``; all must lie on one grid."""
    scans = [read_scan(path, named) for path in images]
    geometry = scans[0].geometry
    for path, scan in zip(images, scans, strict=True):
        if difference := grid_difference(geometry, scan.geometry):
            finding = f"its grid is not that of {images[0].name}: {difference}"
            raise UserError(Code.LABEL_INVALID, path, finding, "bring all channels of a case to one grid")
    if len(scans) == 1:
        return scans[0]
    guesses = tuple(guess for scan in scans for guess in scan.guesses)
    return Scan(np.concatenate([scan.array for scan in scans]), geometry, guesses)


def read_label(path: Path) -> Scan:
    """Read a label map as ``(*space)``, uint8, or uint16 if a value is above 255.

    Labels stored as floats are taken if all of them are whole numbers.
    """
    read = _format(path).label
    if read is None:
        raise UserError(Code.LABEL_INVALID, path, "a label map is not read from DICOM", "save it as NIfTI, NRRD or MHA")
    scan = read(path)
    refuse_non_finite(path, scan.array)
    if len(scan.array) != 1:
        raise UserError(
            Code.LABEL_INVALID, path, f"a label map of {len(scan.array)} channels", "save one class number a voxel"
        )
    return replace(scan, array=class_numbers(path, scan.array[0]))


def class_numbers(path: Path, labels: NDArray[Any]) -> NDArray[Any]:
    """The label map ``(*space)`` of a file as uint8, or uint16 if a value is above 255; all must be whole numbers."""
    if labels.dtype.kind == "f":
        _refuse_labels(path, labels, labels != np.rint(labels), "not a whole number", "save class numbers")
    if labels.min() < 0:
        _refuse_labels(path, labels, labels < 0, "negative", "number the classes from 0, the background")
    top = int(labels.max())
    if top > 65535:
        _refuse_labels(path, labels, labels > 65535, "above 65535", "number the classes from 0 upwards")
    return _smallest(labels, top)


def write_label(path: Path, labels: NDArray[Any], geometry: Geometry) -> None:
    """Write a label map ``(*space)`` on the given grid, as uint8, or uint16 if a value is above 255.

    The file is NIfTI, or PNG by its name: then a picture of at most 255, without any grid.
    """
    if labels.dtype.kind not in "bui":
        raise ValueError(f"labels of type {labels.dtype} are not integers")
    low, top = int(labels.min()), int(labels.max())
    if low < 0 or top > 65535:
        raise ValueError(f"labels from {low} to {top} do not fit 0 to 65535")
    if labels.shape != geometry.shape:
        raise ValueError(f"labels of shape {labels.shape} on a grid of {geometry.shape}")
    if path.suffix.lower() == ".png":
        if labels.ndim != 2 or top > 255:
            raise ValueError(f"labels of shape {labels.shape} up to {top} are no picture of 8 bits")
        pictures.write_label_picture(path, _smallest(labels, top))
        return
    nifti.write_nifti(path, _smallest(labels, top)[None], geometry)


def write_scan(path: Path, array: NDArray[Any], geometry: Geometry, *, slope: float = 1.0) -> None:
    """Write ``(C, *space)`` or ``(*space)`` on the given grid; booleans become uint8 and float16 float32.

    Whoever reads the file finds ``slope`` times these numbers.
    """
    channels = array[None] if array.ndim == len(geometry.shape) else array
    if channels.shape[1:] != geometry.shape:
        raise ValueError(f"voxels of shape {array.shape} on a grid of {geometry.shape}")
    widened = {"bool": np.uint8, "float16": np.float32}.get(array.dtype.name, array.dtype)
    nifti.write_nifti(path, channels.astype(widened, copy=False), geometry, slope)


def _smallest(labels: NDArray[Any], top: int) -> NDArray[Any]:
    return labels.astype(np.uint8 if top <= 255 else np.uint16, copy=False)


def refuse_non_finite(path: Path, array: NDArray[Any]) -> None:
    """Raise a UserError that names the first voxel of ``(C, *space)`` that is no number, or none for 32 bits."""
    if array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array) if array.itemsize <= 4 else ~(np.abs(array) <= LARGEST)
    if count := int(np.count_nonzero(bad)):
        channel, *voxel = _first(bad)
        within = f" of channel {channel + 1}" if len(array) > 1 else ""
        beyond = f", or beyond {LARGEST:.2g}" if array.itemsize > 4 else ""
        finding = f"{count} of {array.size} voxels are NaN or infinite{beyond}, the first at {tuple(voxel)}{within}"
        raise UserError(Code.LABEL_INVALID, path, finding, "replace them by a number, such as the value of air")


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
    if path.is_dir() and (suffix is None or dicom.holds_slices(path)):
        return DICOM
    if suffix is None:
        raise UserError(
            Code.NOT_A_SCAN, path, "not a scan by its name", f"use {READABLE} files with their usual endings"
        )
    return FORMATS[suffix]
