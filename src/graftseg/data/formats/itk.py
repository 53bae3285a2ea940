"""NRRD and MetaImage files (``.nrrd``, ``.nhdr``, ``.mha``, ``.mhd``), the formats of ITK.

All numbers of a header are checked before voxels are read. A header that refers to a file outside of its folder is
refused.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data.formats.header_text import MAX_AXES, MAX_HEADER_BYTES, Header
from graftseg.data.formats.metaimage import LOCAL, metaimage_fields, read_metaimage
from graftseg.data.formats.nrrd import MAGIC, nrrd_fields, read_nrrd
from graftseg.data.formats.scan import FourthAxis, Scan, lps_geometry, read_head, refuse_absent
from graftseg.data.formats.voxel_data import read_voxels, refuse_size

SUFFIXES: tuple[str, ...] = (".nrrd", ".nhdr", ".mha", ".mhd")
HEADERS = (".nhdr", ".mhd")  # suffixes of headers with the voxels in another file


def itk_files(path: Path) -> list[Path]:
    """Return the file. If its voxels are in a separate file, return that file too."""
    try:
        refuse_absent(path)
        head = read_head(path, MAX_HEADER_BYTES)
        fields, _ = (nrrd_fields if head.startswith(MAGIC) else metaimage_fields)(path, head)
        name = fields.text("datafile") or fields.text("elementdatafile", LOCAL)
        return [path] if name.upper() == LOCAL else [path, fields.data_file(name)]
    except UserError:
        # the error is raised again when the scan is read
        return [path]


def itk_geometry(path: Path, channel_count: int | None = None) -> Geometry:
    """Return the geometry from the header. Refuse a time series, unless ``dataset.json`` lists a channel per volume."""
    return _geometry(path, _read_header(path, channel_count))


def read_itk(path: Path, channel_count: int | None = None) -> Scan:
    """Read voxels ``(C, *space)`` of an image or label map. Vector components or the fourth axis become channels."""
    header = _read_header(path, channel_count)
    geometry = _geometry(path, header)
    voxels: NDArray[Any] = read_voxels(path, header)
    sizes = list(header.sizes)
    sizes.insert(header.channel_axis, header.channels)
    # numpy has the slowest axis first
    array = np.moveaxis(voxels.reshape(sizes[::-1]), len(sizes) - 1 - header.channel_axis, 0)
    shape = geometry.shape
    channels = array.reshape(-1, *shape[::-1]).transpose(0, *range(len(shape), 0, -1))
    return Scan(channels, geometry, _fourth_axis(header).guesses(path, channel_count))


def _read_header(path: Path, channel_count: int | None) -> Header:
    refuse_absent(path)
    header = _parse(path)
    refuse_size(path, header)
    if not 2 <= len(header.sizes) <= MAX_AXES:
        finding = f"the header lists {len(header.sizes)} axes"
        raise UserError(Code.SCAN_UNSUPPORTED, path, finding, "save two or three spatial axes")
    for axis in (_fourth_axis(header), FourthAxis(header.channels, 1.0)):
        axis.refuse_time(path, channel_count)
    return header


def _parse(path: Path) -> Header:
    head = read_head(path, MAX_HEADER_BYTES)
    return (read_nrrd if head.startswith(MAGIC) else read_metaimage)(path, head)


def _fourth_axis(header: Header) -> FourthAxis:
    return FourthAxis(header.sizes[3] if len(header.sizes) > 3 else 1, float(header.spacing[-1]), header.says_time)


def _geometry(path: Path, header: Header) -> Geometry:
    shape = header.sizes[:3]
    count = len(shape)
    direction, spacing, origin = header.directions[:count, :count], header.spacing[:count], header.origin[:count]
    with np.errstate(over="ignore", invalid="ignore"):
        is_finite = np.isfinite(direction * spacing).all() and np.isfinite(origin).all()
        is_usable = is_finite and spacing.min() > 0 and abs(np.linalg.det(direction)) >= 1e-6
    if not is_usable:
        finding = "the header has no valid voxel size and orientation"
        raise UserError(Code.SCAN_HEADER, path, finding, "export the scan again")
    return lps_geometry(shape, direction, spacing, origin, is_placed=header.is_placed)
