"""The range of intensities of a scan that a picture shows, from black to white."""

from typing import Any

import numpy as np
import numpy.typing as npt

PERCENTILES = (1.0, 25.0, 75.0, 99.0)
MAX_REACH = 3.0  # largest distance of the window from the quartiles, in interquartile ranges
MAX_VALUES = 1_000_000  # number of voxels above which percentiles are computed from evenly spaced voxels
Window = tuple[float, float]


def gray_window(scan: npt.NDArray[Any]) -> Window:
    """Return the darkest and the brightest intensity to show. The second value is larger than the first.

    The window reaches from the 1st to the 99th percentile, without outliers. Voxels with the smallest value are padding
    or background and are ignored. If most other voxels are equal, the window is the full range.
    """
    flat = np.asarray(scan).reshape(-1, order="A")  # in the order in memory, because a copy of a CT takes seconds
    step = -(-flat.size // MAX_VALUES) | 1  # odd, because a step that divides the row length visits only some columns
    values = flat[::step].astype(np.float64)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    lowest, highest = float(values.min()), float(values.max())
    inner = values[values > lowest]
    if inner.size:
        first, lower, upper, last = (float(value) for value in np.percentile(inner, PERCENTILES))
        reach = MAX_REACH * (upper - lower)
        low, high = max(first, lower - reach), min(last, upper + reach)
        if high > low:
            return low, high
    return lowest, highest if highest > lowest else lowest + 1.0


def to_gray(image: npt.NDArray[Any], window: Window | None = None) -> npt.NDArray[np.uint8]:
    """Return gray values from 0 to 255, by default with the window of the image itself. NaN is black."""
    low, high = gray_window(image) if window is None else window
    values = np.nan_to_num(np.asarray(image, dtype=np.float64), nan=low, posinf=high, neginf=low)
    return np.asarray(np.rint(np.clip((values - low) / (high - low), 0.0, 1.0) * 255), dtype=np.uint8)
