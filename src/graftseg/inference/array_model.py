"""A trained run that predicts arrays in memory, for use in other Python programs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder, ensemble_members
from graftseg.core.types import Geometry
from graftseg.data.formats.scan import Scan
from graftseg.data.grid import is_valid_affine
from graftseg.data.scans import refuse_non_finite
from graftseg.inference.ensemble import Checkpoint, Ensemble, folder_of_network

WHERE = "array"  # the location in error messages about an array


@dataclass(frozen=True, repr=False)
class ArrayModel:
    """The loaded networks of a run. ``network`` says which network is used and why, if a run has several."""

    networks: Ensemble
    network: str = ""

    def __repr__(self) -> str:
        return f"<ArrayModel of {', '.join(self.classes)}>"

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the class names, background first. The index of a class is its value in the label map."""
        return self.networks.classes

    def predict(self, array: ArrayLike, affine: ArrayLike | None = None) -> NDArray[np.uint8]:
        """Return the label map ``(*space)`` of a scan ``(C, *space)`` or ``(*space)`` on the same voxel grid.

        ``affine`` is the 4x4 matrix from voxel index to world coordinates in millimeters (right, anterior, superior),
        as in NIfTI. A 2-D scan without an affine has pixels of 1 mm, like a picture. The result equals the label map
        that ``graftseg predict`` writes for the same scan in a NIfTI file. An array with three axes is a
        2-D scan with channels if the network takes 2-D scans with as many channels as the first axis has values.
        Otherwise, it is a volume. The array is not changed.
        """
        channels = self._as_channels(np.asarray(array))
        refuse_non_finite(WHERE, channels)
        if affine is None:
            if channels.ndim == 4:
                finding = f"missing, but an array of shape {channels.shape[1:]} is a volume"
                remedy = "pass the affine of the scan, or for a color picture pixels.transpose(2, 1, 0)"
                raise UserError(Code.SCAN_HEADER, "affine", finding, remedy)
            affine = np.eye(4)
        scan = Scan(channels, _geometry(channels.shape[1:], np.asarray(affine)))
        return self.networks.predict_scan(scan, WHERE).labels

    def _as_channels(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array as ``(C, *space)``. Raise a UserError if it cannot be a scan."""
        if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
            finding = f"unsupported type {array.dtype}"
            raise UserError(Code.SCAN_UNSUPPORTED, WHERE, finding, "pass real numbers of at most 64 bits")
        if array.ndim not in (2, 3, 4) or not array.size:
            finding = f"the shape {array.shape} is not the shape of a scan"
            raise UserError(Code.SCAN_UNSUPPORTED, WHERE, finding, "pass (C, *space) or (*space) with 2 or 3 axes")
        may_be_2d = self.networks.recipe.data.dimensions == 2 and len(array) == self.networks.channels
        has_channels = array.ndim == 4 or (array.ndim == 3 and may_be_2d)
        return array if has_channels else array[None]


def load_model(
    run: RunFolder, device: torch.device, overrides: Iterable[str], checkpoint: Checkpoint, fold: int | None
) -> ArrayModel:
    """Load the networks that ``graftseg predict`` uses. Raise a UserError if the settings are invalid."""
    folder, shipped = folder_of_network(run, checkpoint, fold)
    networks = Ensemble.load(ensemble_members(folder, fold), device, overrides, checkpoint)
    networks.try_out()
    return ArrayModel(networks, "" if shipped is None else shipped.sentence)


def _geometry(shape: tuple[int, ...], affine: NDArray[Any]) -> Geometry:
    """Return the geometry of a grid in millimeters. Raise a UserError if the affine is invalid."""
    is_numeric = affine.shape == (4, 4) and affine.dtype.kind in "iuf"
    if not is_numeric or not is_valid_affine(affine.astype(np.float64)):
        finding = "not a 4x4 matrix with a valid voxel size and orientation"
        raise UserError(Code.SCAN_HEADER, "affine", finding, "pass the affine of the scan, such as image.affine")
    return Geometry(shape, tuple(tuple(float(value) for value in row) for row in affine))
