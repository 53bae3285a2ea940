"""The published preparations of Pancreas-CT: resampled to 1 mm, windowed and cropped around the label.

=============== ============================================ ==================================================
                pancreas (CoraNet, BCP)                      pancreas-62 (DTC, MC-Net)
=============== ============================================ ==================================================
assumed spacing pixel spacing of the scan for all three      spacing of the label map; the spacing of the scan
                axes; the slice distance is ignored          is ignored
image           linear interpolation                         cubic spline interpolation
label           nearest neighbor                             nearest neighbor
intensities     clipped to -125 ... 275 HU, then the         clipped to -125 ... 275 HU, then z-scores of the
                volume is scaled to 0 ... 1                  crop
crop            label box with a margin of 25 voxels, at     label box of at least 96 voxels with a margin of 25
                least 96 voxels per side                     voxels in x and y; all of z
=============== ============================================ ==================================================

Scan and label map are reoriented to left, posterior, superior (the axes of DICOM slices) according to their headers.
Origins are not compared, because the origins of the released label maps differ from the origins of their series.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.benchmarks.h5 import image_scan, label_scan
from graftseg.data.dataset import label_path
from graftseg.data.formats.dicom_series import read_series, series_geometry
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.grid import Grid, plan_grid, to_grid
from graftseg.data.intensity import IntensitySettings, normalize
from graftseg.data.pieces import foreground_box
from graftseg.data.scans import Scan, read_geometry, read_label, read_scan

AXES = "LPS"
WINDOW = (-125.0, 275.0)  # HU
MARGIN = 25  # voxels around the label
MIN_SIZE = 96  # voxels per side
Spacing = tuple[float, float, float]
Number = TypeVar("Number", bound=np.generic)
Bounds = tuple[tuple[int, int], ...]
"""Start and stop voxel along each axis. The stop voxel is not included."""


@dataclass(frozen=True)
class PancreasFiles:
    """Reader of DICOM or NIfTI scans that are cropped around their label maps."""

    protocol: Literal["pancreas", "pancreas-62"]

    def image(self, case: Case) -> Scan:
        """Read the image. The label map, which is the last file of the case, is used only for the crop."""
        *paths, label = case.images
        scan = _read_image(paths)
        grid, box = self._plan(paths, scan.geometry, label)[1:]
        oriented = _to_lps(scan.array[0], scan.geometry)
        clipped = self._resampled(oriented, grid).clip(*WINDOW)
        image = self._crop(normalize(clipped[None], IntensitySettings(rule="minmax"))[0], box)
        if self.protocol == "pancreas-62":
            image = normalize(image[None], IntensitySettings(rule="zscore"))[0]
        return image_scan(image)

    def label(self, case: Case) -> Scan:
        """Read the label map with the same crop as the image."""
        *paths, _ = case.images
        geometry = read_geometry(paths[0]) if is_nifti(paths[0]) else series_geometry(paths)
        resampled, _, box = self._plan(paths, geometry, label_path(case))
        return label_scan(self._crop(resampled, box))

    def _plan(self, paths: Sequence[Path], image: Geometry, label: Path) -> tuple[NDArray[Any], Grid, Bounds]:
        """Return the resampled label map, the grid with a spacing of 1 mm, and the crop box."""
        scan = read_label(label)
        oriented = _to_lps(scan.array, scan.geometry)
        shape = _lps_grid(image).prepared_shape
        if oriented.shape != shape:
            finding = f"the label map has {oriented.shape} voxels, but the scan {paths[0].name} has {shape}"
            raise UserError(Code.BENCHMARK_MISMATCH, label, finding, "keep the label map of the same scan")
        affine = np.diag([*self._spacing(image, scan.geometry), 1.0])
        grid = plan_grid(Geometry(shape, tuple(map(tuple, affine.tolist()))), orientation=None, spacing=(1, 1, 1))
        resampled = to_grid(oriented, grid, labels=True)
        box = foreground_box(resampled)
        if box is None:
            raise UserError(Code.LABELS_EMPTY, label, "the label map for the crop is empty", "restore the file")
        return resampled, grid, self._box([(part.start, part.stop) for part in box], resampled.shape)

    def _spacing(self, image: Geometry, label: Geometry) -> Spacing:
        if self.protocol == "pancreas":
            pixel = _lps_grid(image).prepared_spacing[0]
            return pixel, pixel, pixel
        x, y, z = _lps_grid(label).prepared_spacing
        return x, y, z

    def _resampled(self, oriented: NDArray[Any], grid: Grid) -> NDArray[Any]:
        if self.protocol == "pancreas":
            return to_grid(oriented, grid, labels=False)
        from scipy.ndimage import zoom

        factors = [new / old for new, old in zip(grid.prepared_shape, oriented.shape, strict=True)]
        return np.asarray(zoom(oriented.astype(np.float32), factors, order=3, mode="nearest", grid_mode=True))

    def _box(self, box: Sequence[tuple[int, int]], shape: Sequence[int]) -> Bounds:
        if self.protocol == "pancreas":
            return widened(box, shape, MARGIN, MIN_SIZE)
        return (*(_in_plane(bounds, size) for bounds, size in zip(box[:2], shape[:2], strict=True)), (0, shape[2]))

    def _crop(self, array: NDArray[Any], box: Bounds) -> NDArray[Any]:
        return cropped(array, box, MIN_SIZE if self.protocol == "pancreas" else 0)


def _in_plane(bounds: tuple[int, int], size: int) -> tuple[int, int]:
    """Return the bounds of the published crop, which is one voxel short: the excluded stop is ``last + margin``."""
    first, last = bounds[0], bounds[1] - 1
    pad = max(MIN_SIZE - (last - first), 0) // 2
    return max(first - pad - MARGIN, 0), min(last + pad + MARGIN, size)


def _read_image(paths: Sequence[Path]) -> Scan:
    if not is_nifti(paths[0]):
        return read_series(paths)
    scan = read_scan(paths[0])
    if scan.array.shape[0] != 1 or len(scan.geometry.shape) != 3:
        raise UserError(Code.BENCHMARK_MISMATCH, paths[0], "not a volume with one channel", "convert the series again")
    return scan


def _lps_grid(geometry: Geometry) -> Grid:
    return plan_grid(geometry, orientation=AXES, spacing=None)


def _to_lps(array: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """Reorient voxels to left, posterior, superior, according to the header."""
    return to_grid(array, _lps_grid(geometry), labels=True)


def widened(box: Sequence[tuple[int, int]], shape: Sequence[int], margin: int, min_size: int) -> Bounds:
    """Add a margin to a box, then grow it evenly to at least ``min_size`` voxels per axis, within the image."""
    grown = []
    for (first, last), size in zip(box, shape, strict=True):
        start, stop = max(first - margin, 0), min(last + margin, size)
        if (missing := min_size - (stop - start)) > 0:
            start = min(max(start - missing // 2, 0), max(size - min_size, 0))
            stop = min(start + min_size, size)
        grown.append((start, stop))
    return tuple(grown)


def cropped(array: NDArray[Number], box: Bounds, min_size: int) -> NDArray[Number]:
    """Return the voxels in the box, padded with zeros to at least ``min_size`` voxels per axis."""
    inside = array[tuple(slice(start, stop) for start, stop in box)]
    missing = [max(min_size - size, 0) for size in inside.shape]
    return np.pad(inside, [(lack // 2, lack - lack // 2) for lack in missing])
