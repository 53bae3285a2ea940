"""A scan on a coarse grid, whatever its scale of intensities: what two copies of one scan have in common."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 16
FEWEST = 64
Floats = NDArray[np.float32]


def coarse_view(array: NDArray[Any], side: int = SIDE) -> Floats | None:
    """Block means of ``(C, *space)`` as one vector of length 1, so that a product of two is their correlation.

    Every channel is cut into at most ``side`` blocks along each axis and freed of its mean and scale, so a scan that
    was multiplied, or had something added, gives the same vector. None where there is too little to compare: fewer than
    ``FEWEST`` blocks, or nothing but one value.
    """
    means = [_block_means(channel, side) for channel in array]
    if means[0].size < FEWEST:
        return None
    vectors = [vector for channel in means if (vector := _unit(channel.ravel())) is not None]
    if len(vectors) < len(means):
        return None
    return np.concatenate(vectors).astype(np.float32) / np.float32(np.sqrt(len(means)))


def _block_means(channel: NDArray[Any], side: int) -> NDArray[np.float64]:
    blocks = channel
    # Slabs that lie together in memory are read once, and what is left of them is small.
    for axis in sorted(range(channel.ndim), key=lambda axis: -abs(channel.strides[axis])):
        count = min(side, channel.shape[axis])
        cuts = np.arange(1, count) * channel.shape[axis] // count
        blocks = np.stack([slab.mean(axis, dtype=np.float64) for slab in np.split(blocks, cuts, axis)], axis)
    return np.asarray(blocks, dtype=np.float64)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64] | None:
    centered = vector - vector.mean()
    length = float(np.linalg.norm(centered))
    # What is left of a constant is rounding.
    if length <= 1e-9 * max(1.0, float(np.abs(vector).max())) * np.sqrt(len(vector)):
        return None
    return np.asarray(centered / length)
