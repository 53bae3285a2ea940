"""The published preparations of Pancreas-CT: resampled to 1 mm, windowed and cropped around the label.

============ ============================================ ==================================================
             pancreas (CoraNet, BCP)                      pancreas-62 (DTC, MC-Net)
============ ============================================ ==================================================
spacing      the pixels' for all three axes: how far      that of the label map's header, which these papers
             slices lie apart is ignored                  write over the scan's
image        linear                                       cubic spline
label        nearest                                      nearest
intensities  clipped to -125 ... 275 HU, then the range   clipped to -125 ... 275 HU, then z-scores of the
             of the whole volume to 0 ... 1               crop
crop         25 voxels around the label's box, at least   25 voxels around the label's box in x and y, the
             96 a side                                    box at least 96 wide; all of z
============ ============================================ ==================================================

The axes of scan and label map are both turned to left, posterior, superior (that of DICOM slices) by their headers. The
origin of a label map is not compared: the release's label maps do not have that of their series.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Case, Geometry
from graftseg.data.benchmarks.crops import Bounds, cropped, label_box, widened
from graftseg.data.benchmarks.placeless import without_geometry
from graftseg.data.dataset import label_path
from graftseg.data.formats.dicom_series import read_series, series_geometry
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.grid import Grid, plan_grid, to_grid
from graftseg.data.intensity import IntensitySettings, normalize
from graftseg.data.scans import Scan, read_geometry, read_label, read_scan

AXES = "LPS"
WINDOW = (-125.0, 275.0)
MARGIN = 25
LEAST = 96
Spacing = tuple[float, float, float]


@dataclass(frozen=True)
class PancreasFiles:
    """A scan, DICOM or NIfTI, and the label map that it is cropped around."""

    protocol: Literal["pancreas", "pancreas-62"]

    def image(self, case: Case) -> Scan:
        """The image; the label map, the last of the case's files, only says where to crop."""
        *paths, label = case.images
        scan = _read_image(paths)
        grid, box = self._plan(paths, scan.geometry, label)[1:]
        upright = _upright(scan.array[0], scan.geometry)
        image = self._crop(_windowed(self._resampled(upright, grid)), box)
        if self.protocol == "pancreas-62":
            image = normalize(image[None], IntensitySettings(rule="zscore"))[0]
        return without_geometry(image[None], image.shape)

    def label(self, case: Case) -> Scan:
        """The label map, cropped alike."""
        *paths, _ = case.images
        resampled, _, box = self._plan(paths, _image_geometry(paths), label_path(case))
        label = self._crop(resampled, box)
        return without_geometry(label, label.shape)

    def _plan(self, paths: Sequence[Path], image: Geometry, label: Path) -> tuple[NDArray[Any], Grid, Bounds]:
        """The resampled label map, the grid of 1 mm and the box to crop."""
        scan = read_label(label)
        upright = _upright(scan.array, scan.geometry)
        shape = _turned(image).prepared_shape
        if upright.shape != shape:
            finding = f"the label map has {upright.shape} voxels where {paths[0].name} and its slices make {shape}"
            raise UserError(Code.BENCHMARK_MISMATCH, label, finding, "keep the label map of the same scan")
        grid = plan_grid(_stretched(shape, self._spacing(image, scan.geometry)), orientation=None, spacing=(1, 1, 1))
        resampled = to_grid(upright, grid, labels=True)
        box = label_box(resampled)
        if box is None:
            raise UserError(
                Code.BENCHMARK_MISMATCH,
                label,
                "the label map is empty and the scan is cropped around it",
                "restore the file",
            )
        return resampled, grid, self._box(box, resampled.shape)

    def _spacing(self, image: Geometry, label: Geometry) -> Spacing:
        if self.protocol == "pancreas":
            pixel = _turned(image).prepared_spacing[0]
            return pixel, pixel, pixel
        x, y, z = _turned(label).prepared_spacing
        return x, y, z

    def _resampled(self, upright: NDArray[Any], grid: Grid) -> NDArray[Any]:
        if self.protocol == "pancreas":
            return to_grid(upright, grid, labels=False)
        from scipy.ndimage import zoom

        factors = [new / old for new, old in zip(grid.prepared_shape, upright.shape, strict=True)]
        return np.asarray(zoom(upright.astype(np.float32), factors, order=3, mode="nearest", grid_mode=True))

    def _box(self, box: Bounds, shape: Sequence[int]) -> Bounds:
        if self.protocol == "pancreas":
            return widened(box, shape, MARGIN, LEAST)
        return (*(_in_plane(bounds, size) for bounds, size in zip(box[:2], shape, strict=False)), (0, shape[2]))

    def _crop(self, array: NDArray[Any], box: Bounds) -> NDArray[Any]:
        return cropped(array, box, LEAST if self.protocol == "pancreas" else 0)


def _windowed(image: NDArray[Any]) -> NDArray[Any]:
    """Clipped to the window, then the volume's range to [0, 1]."""
    windowed: NDArray[Any] = normalize(image.clip(*WINDOW)[None], IntensitySettings(rule="minmax"))[0]
    return windowed


def _in_plane(bounds: tuple[int, int], size: int) -> tuple[int, int]:
    """The published rule counts from the first voxel to the last, so a box ends one voxel before its margin."""
    first, last = bounds[0], bounds[1] - 1
    pad = max(LEAST - (last - first), 0) // 2
    return max(first - pad - MARGIN, 0), min(last + pad + MARGIN, size)


def _read_image(paths: Sequence[Path]) -> Scan:
    if not is_nifti(paths[0]):
        return read_series(paths)
    scan = read_scan(paths[0])
    if scan.array.shape[0] != 1 or len(scan.geometry.shape) != 3:
        raise UserError(Code.BENCHMARK_MISMATCH, paths[0], "not a volume of one channel", "convert the series again")
    return scan


def _image_geometry(paths: Sequence[Path]) -> Geometry:
    return read_geometry(paths[0]) if is_nifti(paths[0]) else series_geometry(paths)


def _turned(geometry: Geometry) -> Grid:
    return plan_grid(geometry, orientation=AXES, spacing=None)


def _upright(array: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
    """The voxels along the axes left, posterior, superior, as the header says."""
    return to_grid(array, _turned(geometry), labels=True)


def _stretched(shape: tuple[int, ...], spacing: Spacing) -> Geometry:
    """A grid of that shape and spacing."""
    matrix = np.diag([*spacing, 1.0])
    return Geometry(shape, tuple(tuple(float(value) for value in row) for row in matrix))
