"""Coarse view of a scan, independent of intensity scaling, to detect copies."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SIDE = 16
MIN_BLOCKS = 64
Floats = NDArray[np.float32]


def coarse_view(array: NDArray[Any], side: int = SIDE) -> Floats | None:
    """Return the block means of ``(C, *space)`` as a unit vector; the product of two vectors is their correlation.

    Every channel is divided into at most ``side`` blocks along each axis and normalized, so the vector does not change
    if the intensities are multiplied or shifted. Return None if there are fewer than ``MIN_BLOCKS`` blocks or if a
    channel is constant.
    """
    means = [_block_means(channel, side) for channel in array]
    if means[0].size < MIN_BLOCKS:
        return None
    vectors = [vector for channel in means if (vector := _unit(channel.ravel())) is not None]
    if len(vectors) < len(means):
        return None
    return np.concatenate(vectors).astype(np.float32) / np.float32(np.sqrt(len(means)))


def _block_means(channel: NDArray[Any], side: int) -> NDArray[np.float64]:
    blocks = channel
    # start with the axis of the largest stride: contiguous slabs are read once, and the rest is small
    for axis in sorted(range(channel.ndim), key=lambda axis: -abs(channel.strides[axis])):
        count = min(side, channel.shape[axis])
        cuts = np.arange(1, count) * channel.shape[axis] // count
        blocks = np.stack([slab.mean(axis, dtype=np.float64) for slab in np.split(blocks, cuts, axis)], axis)
    return np.asarray(blocks, dtype=np.float64)


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64] | None:
    centered = vector - vector.mean()
    length = float(np.linalg.norm(centered))
    # the norm of a constant vector is only rounding error
    if length <= 1e-9 * max(1.0, float(np.abs(vector).max())) * np.sqrt(len(vector)):
        return None
    return np.asarray(centered / length)
