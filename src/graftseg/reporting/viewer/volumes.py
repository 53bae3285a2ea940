"""Volumes as the browser needs them: NIfTI bytes with axes that point right, anterior and superior (RAS).

The browser draws into voxels in the order of these bytes, so a drawing can be turned back to the grid of the scan
exactly.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.types import Geometry
from graftseg.data.formats.nifti import encode_nifti
from graftseg.data.grid import plan_grid

SHOWN_TYPES = ("uint8", "int16", "uint16", "float32")
"""Voxel types that the browser reads. Other types become float32."""


@dataclass(frozen=True)
class Turn:
    """The reorientation of a scan ``(*space)`` to a volume with axes right, anterior, superior.

    Volumes are turned by their affine. A 2-D scan becomes one slice that is shown as stored: its first axis points to
    the right of the screen and its second axis points down.
    """

    order: tuple[int, ...]
    flips: tuple[bool, ...]
    spacing: tuple[float, ...]

    @classmethod
    def of(cls, geometry: Geometry) -> "Turn":
        """Return the reorientation of scans with this geometry."""
        if len(geometry.shape) == 2:
            # the screen shows the patient's right on the left and anterior on top
            return cls((0, 1), (True, True), geometry.spacing)
        grid = plan_grid(geometry, orientation="RAS", spacing=None)
        return cls(grid.order, grid.flips, grid.prepared_spacing)

    def to_volume(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array ``(*space)`` of the scan as a volume ``(x, y, z)``. The result is a view."""
        turned = np.flip(array.transpose(self.order), self._flipped)
        return turned if turned.ndim == 3 else turned[..., None]

    def to_scan(self, volume: NDArray[Any]) -> NDArray[Any]:
        """Return a volume ``(x, y, z)`` as an array ``(*space)`` of the scan. The result is contiguous."""
        turned = volume if len(self.order) == 3 else volume[..., 0]
        return np.ascontiguousarray(np.flip(turned, self._flipped).transpose(np.argsort(self.order)))

    @property
    def _flipped(self) -> tuple[int, ...]:
        return tuple(axis for axis, flip in enumerate(self.flips) if flip)


def as_nifti(volume: NDArray[Any], spacing: tuple[float, ...], slope: float = 1.0) -> bytes:
    """Return the bytes of a NIfTI file. Its affine contains only the spacing, so that no reader turns the volume."""
    steps = (*spacing, *(1.0,) * (3 - len(spacing)), 1.0)
    affine = tuple(tuple(row) for row in np.diag(steps).tolist())
    shown = volume if volume.dtype.name in SHOWN_TYPES else volume.astype(np.float32)
    return encode_nifti(shown[None], Geometry(shown.shape, affine), slope)
