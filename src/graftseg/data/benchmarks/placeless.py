"""Voxels whose place in the world no file tells."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.types import Geometry
from graftseg.data.scans import Scan


def without_geometry(array: NDArray[Any], shape: tuple[int, ...]) -> Scan:
    """A scan of voxels one millimetre apart, along axes as they are stored."""
    affine = tuple(tuple(float(value) for value in row) for row in np.eye(4))
    return Scan(array, Geometry(shape, affine, qform_code=0, sform_code=0))
