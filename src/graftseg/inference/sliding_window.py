"""Sliding-window inference whose memory does not grow with the size of the image along the first axis."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.core.errors import Code, UserError
from graftseg.recipes.settings import InferenceSettings

Segment = Callable[[Tensor], Tensor]  # a function from images ``(B, C, *space)`` to probabilities ``(B, K, *space)``

PLANES_AT_ONCE = 8  # number of finished planes that are processed at once, which limits the memory
BIG_WINDOW = 32**3
"""Number of voxels of a window from which a CPU predicts one window at a time, because more would save no time."""

Fit = Literal["crop", "stretch"]
Index = tuple[int, ...]
Slabs = Iterator[tuple[int, Tensor]]  # the first plane and the values ``(K, n, *rest)`` of each slab


def window_starts(size: int, patch: int, stride: int) -> list[int]:
    """Return the first voxel of each window along one axis. The last window ends at the end of the axis."""
    last = max(size - patch, 0)
    return [min(i * stride, last) for i in range(-(-last // stride) + 1)]


def window_count(shape: Index, patch: Index, settings: InferenceSettings, fit: Fit = "crop") -> int:
    """Return the number of windows or slices of a prepared image of this shape."""
    slices = prod(shape[2:]) if len(patch) == 2 else 1
    if fit == "stretch":
        return slices
    axes = zip(shape[: len(patch)], patch, _stride(patch, settings), strict=True)
    return slices * prod(len(window_starts(*axis)) for axis in axes)


def windows_at_once(patch: Index, settings: InferenceSettings, device: torch.device | str) -> int:
    """Return the number of windows of one forward pass."""
    is_big = torch.device(device).type == "cpu" and prod(patch) >= BIG_WINDOW and len(patch) == 3
    return 1 if is_big else settings.windows_per_forward


def is_slicewise(image: Tensor, patch: Index) -> bool:
    """Return whether an image ``(C, *space)`` is a volume for a network of slices. Raise an error if it is neither."""
    axes = image.ndim - 1
    if len(patch) == axes:
        return False
    if len(patch) == 2 and axes == 3:
        return True
    finding = f"the patch has {len(patch)} axes, but the scan has {axes} spatial axes"
    raise UserError(Code.RECIPE_MISMATCH, "patch", finding, f"predict with a network for {axes}-D scans")


@torch.inference_mode()
def probability_slabs(
    segment: Segment,
    image: Tensor,
    patch: Index,
    settings: InferenceSettings,
    *,
    device: torch.device | str | None = None,
) -> Slabs:
    """Yield the probabilities of an image ``(C, *space)`` in slabs: the first plane of a slab and ``(K, n, *rest)``.

    Slabs cover the first spatial axis in order and have at most ``PLANES_AT_ONCE`` planes. With a 2-D patch, a volume
    is predicted slice by slice, and slabs ``(K, n, X, Y)`` cover the *last* spatial axis. Axes shorter than the patch
    are zero-padded on both sides, and the padding is removed from the result. Only the windows of one forward pass are
    moved to ``device`` (by default that of the image), as float32.
    """
    slicewise = is_slicewise(image, patch)
    stride = _stride(patch, settings)
    if slicewise:
        image, patch, stride = image.movedim(-1, 1), (1, *patch), (1, *stride)
    left, padded = _pad(image, patch)
    target = image.device if device is None else device
    count = settings.windows_per_forward if slicewise else windows_at_once(patch, settings, target)
    crop = (slice(None), slice(None), *_box(left[1:], tuple(image.shape[2:])))

    def forward(starts: list[Index]) -> Tensor:
        # Convert to float32 before stacking, because autocast on a CPU does not support float16.
        windows = torch.stack([padded[(slice(None), *_box(start, patch))].to(target).float() for start in starts])
        return segment(windows.squeeze(2)).unsqueeze(2) if slicewise else segment(windows)

    shape = tuple(padded.shape[1:])
    axes = [window_starts(*axis) for axis in zip(shape, patch, stride, strict=True)]
    windows = Windows(axes, patch, tuple(shape[1:]), _weights(shape, patch, settings))
    for begin, slab in _rolling_average(forward, windows, count):
        # a slab may lie completely in the padding after the image, where its end would be negative
        first, last = max(left[0] - begin, 0), max(left[0] + image.shape[1] - begin, 0)
        if (inside := slab[crop][:, first:last]).shape[1]:
            yield begin + first - left[0], inside


@dataclass
class Windows:
    """The windows of an image."""

    starts: list[list[int]]  # starts of the windows along each axis
    patch: Index  # size of a window
    rest: Index  # size of a plane of the image
    weights: Tensor  # weights of the voxels of a window

    def weight_sums(self, first: int, last: int) -> Tensor:
        """Return the sums of the weights ``(last - first, *rest)`` of the planes from ``first`` to ``last``."""
        total = self.weights.new_zeros((last - first, *self.rest))
        first_axis, *other_axes = self.starts
        for start in first_axis:
            low, high = max(first, start), min(last, start + self.patch[0])
            if low < high:
                weights = self.weights[low - start : high - start]
                for position in product(*other_axes):
                    total[(slice(low - first, high - first), *_box(position, self.patch[1:]))] += weights
        return total


def _rolling_average(forward: Callable[[list[Index]], Tensor], windows: Windows, count: int) -> Slabs:
    """Yield the weighted mean of all windows, each plane as soon as no later window covers it.

    A forward pass takes ``count`` windows. The buffer ``(K, patch[0], *rest)`` contains the weighted sums of the planes
    from ``begin``.
    """
    buffer, begin, patch = torch.empty(0), 0, windows.patch
    positions = list(product(*windows.starts))
    for batch in (positions[first : first + count] for first in range(0, len(positions), count)):
        for start, probabilities in zip(batch, forward(batch), strict=True):
            if not buffer.numel():
                windows.weights = windows.weights.to(probabilities.device)
                buffer = windows.weights.new_zeros((len(probabilities), patch[0], *windows.rest))
            if finished := start[0] - begin:
                yield from _finished_planes(buffer, windows, begin, finished)
                _roll(buffer, finished)
                begin = start[0]
            window = buffer[(slice(None), slice(None), *_box(start[1:], patch[1:]))]
            window.addcmul_(probabilities.float(), windows.weights)
    yield from _finished_planes(buffer, windows, begin, buffer.shape[1])


def _finished_planes(buffer: Tensor, windows: Windows, begin: int, planes: int) -> Slabs:
    """Yield the weighted mean of the first ``planes`` planes of the buffer, a few planes at a time."""
    for first in range(0, planes, PLANES_AT_ONCE):
        last = min(first + PLANES_AT_ONCE, planes)
        yield begin + first, buffer[:, first:last] / windows.weight_sums(begin + first, begin + last)


def _roll(buffer: Tensor, planes: int) -> None:
    """Remove the first ``planes`` planes of ``(K, n, *rest)`` in place, and append planes of zeros."""
    remaining = buffer.shape[1] - planes
    for start in range(0, remaining, planes):
        stop = min(start + planes, remaining)
        buffer[:, start:stop] = buffer[:, start + planes : stop + planes]
    buffer[:, remaining:] = 0


def _stride(patch: Index, settings: InferenceSettings) -> Index:
    if settings.stride is None:
        return tuple(max(1, int(size * (1 - settings.overlap))) for size in patch)
    return settings.stride


def _pad(image: Tensor, patch: Index) -> tuple[Index, Tensor]:
    """Zero-pad an image to at least the size of the patch. Return the padding before each axis and the padded image."""
    missing = [max(wanted - size, 0) for wanted, size in zip(patch, image.shape[1:], strict=True)]
    left = tuple(pad // 2 for pad in missing)
    if not any(missing):
        return left, image
    sides = [(before, pad - before) for before, pad in zip(left, missing, strict=True)]
    return left, F.pad(image, [side for pair in reversed(sides) for side in pair])


def _weights(shape: Index, patch: Index, settings: InferenceSettings) -> Tensor:
    # Without overlap, weights of 1 keep the mean of a single value exact.
    may_overlap = any(size not in (1, full) for size, full in zip(patch, shape, strict=True))
    return gaussian_weights(patch) if may_overlap and settings.window == "gaussian" else torch.ones(patch)


@lru_cache(maxsize=4)
def gaussian_weights(patch: Index) -> Tensor:
    """Return the weights of a window: a Gaussian with a standard deviation of 1/8 of each side.

    Weights below 0.001 are raised to 0.001. The weights equal MONAI's ``compute_importance_map`` bit for bit.
    """
    weights = torch.ones(())
    for size in patch:
        offsets = torch.arange(size, dtype=torch.float32) - (size - 1) / 2
        weights = weights.unsqueeze(-1) * torch.exp(offsets**2 / (-2 * (size / 8) ** 2))
    return weights.clamp(min=1e-3)


def _box(start: Index, size: Index) -> tuple[slice, ...]:
    return tuple(slice(begin, begin + length) for begin, length in zip(start, size, strict=True))
