"""Sliding-window inference whose memory does not grow with the size of the image along the first axis."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice, product
from math import prod
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.core.errors import Code, UserError
from graftseg.recipes.settings import InferenceSettings

Segment = Callable[[Tensor], Tensor]
"""A function from images ``(B, C, *space)`` to probabilities ``(B, K, *space)``."""

Fit = Literal["crop", "stretch"]
Index = tuple[int, ...]
Item = TypeVar("Item")


def window_starts(size: int, patch: int, stride: int) -> list[int]:
    """Return the first voxel of each window along one axis.

    Windows start every ``stride`` voxels. The last window ends at the end of the axis.
    """
    last = max(size - patch, 0)
    return [min(i * stride, last) for i in range(-(-last // stride) + 1)]


def windows_along(shape: Index, patch: Index, settings: InferenceSettings) -> list[list[int]]:
    """Return the window starts along each axis of an image of this shape."""
    return [window_starts(*axis) for axis in zip(shape, patch, _stride(patch, settings), strict=True)]


def window_count(shape: Index, patch: Index, settings: InferenceSettings, fit: Fit = "crop") -> int:
    """Return the number of windows or slices of a prepared image of this shape."""
    slices = prod(shape[2:]) if len(patch) == 2 else 1
    if fit == "stretch":
        return slices
    return slices * prod(map(len, windows_along(shape[: len(patch)], patch, settings)))


def is_slicewise(image: Tensor, patch: Index) -> bool:
    """Return whether an image ``(C, *space)`` is a volume and the network takes slices."""
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
) -> Iterator[tuple[int, Tensor]]:
    """Yield the probabilities of an image ``(C, *space)`` in slabs: the start of a slab and ``(K, n, *rest)``.

    Slabs come in order, cover the first spatial axis once, and are at most as thick as the patch. With a 2-D patch a
    volume is predicted slice by slice: the slab axis is the *last* spatial axis, ``start`` counts slices and a slab is
    ``(K, n, X, Y)``. Axes shorter than the patch are zero-padded on both sides, and the padding is removed from the
    result. Only the windows of one forward pass are moved to ``device`` (default: the device of the image), as float32.
    """
    slicewise = is_slicewise(image, patch)
    stride = _stride(patch, settings)
    if slicewise:
        image, patch, stride = image.movedim(-1, 1), (1, *patch), (1, *stride)
    left, padded = _pad(image, patch)
    crop = (slice(None), *_box(left, tuple(image.shape[1:])))

    def forward(starts: list[Index]) -> Tensor:
        target = image.device if device is None else device
        # Convert to float32 before stacking, because autocast on a CPU does not support float16.
        windows = torch.stack([padded[(slice(None), *_box(start, patch))].to(target).float() for start in starts])
        return segment(windows.squeeze(2)).unsqueeze(2) if slicewise else segment(windows)

    for begin, slab in _rolling_average(forward, tuple(padded.shape[1:]), patch, stride, settings):
        yield begin, slab[crop]


def _rolling_average(
    forward: Callable[[list[Index]], Tensor], shape: Index, patch: Index, stride: Index, settings: InferenceSettings
) -> Iterator[tuple[int, Tensor]]:
    """Yield the weighted mean of all windows. Planes are yielded and dropped once no later window covers them.

    The buffer ``(K + 1, patch[0], *rest)`` contains the weighted sums and, in its last channel, the sum of weights.
    """
    axes = [window_starts(*axis) for axis in zip(shape, patch, stride, strict=True)]
    buffer, weights, begin = torch.empty(0), _weights(shape, patch, settings), 0
    for starts in _batched(product(*axes), settings.windows_per_forward):
        for start, probabilities in zip(starts, forward(starts).float(), strict=True):
            if not buffer.numel():
                weights = weights.to(probabilities.device)
                buffer = probabilities.new_zeros((len(probabilities) + 1, patch[0], *shape[1:]))
            if final := start[0] - begin:
                yield begin, buffer[:-1, :final] / buffer[-1:, :final]
                _roll(buffer, final)
                begin = start[0]
            window = buffer[(slice(None), slice(None), *_box(start[1:], patch[1:]))]
            window[:-1] += probabilities * weights
            window[-1] += weights
    yield begin, buffer[:-1] / buffer[-1:]


def _roll(buffer: Tensor, planes: int) -> None:
    """Shift ``(K, n, *rest)`` by some planes in place and fill the last planes with zeros."""
    kept = buffer.shape[1] - planes
    for start in range(0, kept, planes):
        moved = slice(start, min(start + planes, kept))
        buffer[:, moved] = buffer[:, moved.start + planes : moved.stop + planes]
    buffer[:, kept:] = 0


def _stride(patch: Index, settings: InferenceSettings) -> Index:
    if settings.stride is None:
        return tuple(max(1, int(size * (1 - settings.overlap))) for size in patch)
    pairs = zip(settings.stride, patch, strict=False)
    if len(settings.stride) != len(patch) or any(step > size for step, size in pairs):
        finding = f"{settings.stride} does not fit windows of {patch} voxels"
        remedy = f"give {len(patch)} numbers, each at most the size of the window along its axis"
        raise UserError(Code.SETTING_INVALID, "inference.stride", finding, remedy)
    return settings.stride


def _pad(image: Tensor, patch: Index) -> tuple[Index, Tensor]:
    """Zero-pad an image to at least the size of the patch. Return the padding before each axis and the padded image."""
    missing = [max(size - have, 0) for size, have in zip(patch, image.shape[1:], strict=True)]
    left = tuple(pad // 2 for pad in missing)
    if not any(missing):
        return left, image
    sides = [(before, pad - before) for before, pad in zip(left, missing, strict=True)]
    return left, F.pad(image, [side for pair in reversed(sides) for side in pair])


def _weights(shape: Index, patch: Index, settings: InferenceSettings) -> Tensor:
    # Without overlap, weights of 1 keep the mean of a single value exact.
    overlapping = any(size not in (1, full) for size, full in zip(patch, shape, strict=True))
    return gaussian_weights(patch) if overlapping and settings.window == "gaussian" else torch.ones(patch)


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


def _batched(items: Iterable[Item], count: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, count)):
        yield batch
