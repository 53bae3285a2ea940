"""Volumes in the form that the browser reads: NIfTI bytes with axes that point right, anterior and superior (RAS).

The voxels of a drawing have the order of these bytes, so a drawing can be turned back to the grid of the scan exactly.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.types import Geometry
from graftseg.data.formats.nifti import encode_header
from graftseg.data.grid import Grid, plan_grid, to_oriented_axes, to_source_axes

SHOWN_TYPES = ("uint8", "int16", "uint16", "float32")
"""Voxel types that the browser reads. Other types become float32."""
HEADER_BYTES = 352
PART_BYTES = 2 * 2**20  # approximate size of the parts in which a volume is sent
PART_VOXELS = 2**18  # number of voxels that are converted at once, so that they stay in the cache of the processor
COMPACT = np.dtype(np.int16)


@dataclass(frozen=True)
class Turn:
    """The reorientation of a scan ``(*space)`` to a volume with axes right, anterior, superior.

    Volumes are turned by their affine. A 2-D scan becomes one slice that is shown as stored: its first axis points to
    the right of the screen and its second axis points down.
    """

    grid: Grid

    @classmethod
    def of(cls, geometry: Geometry) -> "Turn":
        """Return the reorientation of scans with this geometry."""
        if len(geometry.shape) == 2:
            # the screen shows the patient's right on the left and anterior on top
            return cls(Grid(geometry.shape, (0, 1), (True, True), geometry.shape, geometry.spacing))
        return cls(plan_grid(geometry, orientation="RAS", spacing=None))

    @property
    def spacing(self) -> tuple[float, ...]:
        """Return the spacing of the volume, with two numbers for a 2-D scan."""
        return self.grid.prepared_spacing

    def to_volume(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array ``(*space)`` of the scan as a volume ``(x, y, z)``. The result is a view."""
        turned = to_oriented_axes(array, self.grid)
        return turned if turned.ndim == 3 else turned[..., None]

    def to_scan(self, volume: NDArray[Any]) -> NDArray[Any]:
        """Return a volume ``(x, y, z)`` as an array ``(*space)`` of the scan. The result is contiguous."""
        return to_source_axes(volume if len(self.grid.order) == 3 else volume[..., 0], self.grid)


def as_nifti(volume: NDArray[Any], spacing: tuple[float, ...], slope: float = 1.0) -> bytes:
    """Return the bytes of a NIfTI file. The affine contains only the spacing, so that no reader turns the volume."""
    return b"".join(nifti_parts(volume, spacing, slope))


def nifti_parts(volume: NDArray[Any], spacing: tuple[float, ...], slope: float = 1.0) -> Iterator[bytes]:
    """Yield the header and then some slices at a time, so that the whole file is never in memory."""
    steps = (*spacing, *(1.0,) * (3 - len(spacing)), 1.0)
    affine = tuple(tuple(row) for row in np.diag(steps).tolist())
    yield encode_header(shown_type(volume), Geometry(volume.shape, affine), slope)
    depth = volume.shape[2]
    count = max(1, PART_BYTES * depth // max(1, volume.nbytes))
    for first in range(0, depth, count):
        yield voxel_bytes(volume[..., first : first + count])


def nifti_size(volume: NDArray[Any]) -> int:
    """Return the number of bytes of ``as_nifti``."""
    return HEADER_BYTES + volume.size * shown_type(volume).itemsize


def center_slices(volume: NDArray[Any]) -> bytes:
    """Return the voxels of the axial, the coronal and the sagittal slice in the middle, in the type of ``as_nifti``."""
    x, y, z = (size // 2 for size in volume.shape)
    return b"".join(map(voxel_bytes, (volume[:, :, z], volume[:, y, :], volume[x, :, :])))


def voxel_bytes(array: NDArray[Any]) -> bytes:
    """Return voxels as the browser reads them: little endian, the first axis varies fastest."""
    return array.T.astype(shown_type(array).newbyteorder("<"), copy=False).tobytes()


def shown_type(array: NDArray[Any]) -> np.dtype[Any]:
    """Return the voxel type in the browser."""
    return array.dtype if array.dtype.name in SHOWN_TYPES else np.dtype(np.float32)


def compact(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array as int16 if this is smaller and keeps all values. Scans in DICOM, for example, are float32."""
    if array.itemsize <= COMPACT.itemsize or not array.size:
        return array
    result = np.empty_like(array, COMPACT)
    source, target = array.ravel("K"), result.ravel("K")  # in the order in memory
    limits = np.iinfo(COMPACT)
    for first in range(0, source.size, PART_VOXELS):
        part = source[first : first + PART_VOXELS]
        if not (part.min() >= limits.min and part.max() <= limits.max):  # also true for NaN
            return array
        target[first : first + PART_VOXELS] = part
        if not np.array_equal(target[first : first + PART_VOXELS], part):
            return array
    return result
