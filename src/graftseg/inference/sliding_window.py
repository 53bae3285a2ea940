"""A network slid over an image of any size, in memory that does not grow with the image's first axis."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice, product
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from graftseg.core.errors import Code, UserError
from graftseg.recipes.settings import InferenceSettings

Segment = Callable[[Tensor], Tensor]
"""From images ``(B, C, *space)`` to probabilities ``(B, K, *space)``."""

Index = tuple[int, ...]
Item = TypeVar("Item")


def window_starts(size: int, patch: int, stride: int) -> list[int]:
    """Where the windows along one axis begin: every ``stride`` voxels, the last one flush with the end.

    There are ``ceil((size - patch) / stride) + 1`` of them, at ``min(i * stride, size - patch)``.
    """
    last = max(size - patch, 0)
    return [min(i * stride, last) for i in range(-(-last // stride) + 1)]


def windows_along(shape: Index, patch: Index, settings: InferenceSettings) -> list[list[int]]:
    """Where the windows begin along each axis of an image of this shape."""
    return [window_starts(*axis) for axis in zip(shape, patch, _stride(patch, settings), strict=True)]


def is_slicewise(image: Tensor, patch: Index) -> bool:
    """Whether an image ``(C, *space)`` is a volume for a network that sees slices only."""
    axes = image.ndim - 1
    if len(patch) == axes:
        return False
    if len(patch) == 2 and axes == 3:
        return True
    raise UserError(
        Code.RECIPE_MISMATCH,
        "patch",
        f"{len(patch)} axes, while the scan has {axes} axes of space",
        "predict with a network that was trained on scans of this kind",
    )


@torch.inference_mode()
def probability_slabs(
    segment: Segment,
    image: Tensor,
    patch: Index,
    settings: InferenceSettings,
    *,
    device: torch.device | str | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Yield the probabilities of an image ``(C, *space)`` in slabs: where one starts, and ``(K, n, *rest)``.

    Slabs come in order and cover the first axis of space once; none is thicker than the patch. A volume and
    a 2-D patch are treated slice by slice: then the slab axis is the *last* axis of space, ``start`` counts
    slices and a slab is ``(K, n, X, Y)``. Axes shorter than the patch are padded by zeros on both sides, and
    the padding is cut off again. Only the windows of one forward pass are moved to ``device`` (by default
    where the image is), as float32.
    """
    slicewise = is_slicewise(image, patch)
    stride = _stride(patch, settings)
    if slicewise:
        image, patch, stride = image.movedim(-1, 1), (1, *patch), (1, *stride)
    left, padded = _pad(image, patch)
    crop = (slice(None), *_box(left, tuple(image.shape[1:])))

    def forward(starts: list[Index]) -> Tensor:
        target = image.device if device is None else device
        # in float32 before they are put together: autocast on a CPU knows no float16
        windows = torch.stack([padded[(slice(None), *_box(start, patch))].to(target).float() for start in starts])
        return segment(windows.squeeze(2)).unsqueeze(2) if slicewise else segment(windows)

    for begin, slab in _rolling_average(forward, tuple(padded.shape[1:]), patch, stride, settings):
        yield begin, slab[crop]


def _rolling_average(
    forward: Callable[[list[Index]], Tensor],
    shape: Index,
    patch: Index,
    stride: Index,
    settings: InferenceSettings,
) -> Iterator[tuple[int, Tensor]]:
    """Weighted mean of all windows over a voxel; planes that no later window reaches are yielded and dropped.

    The buffer ``(K + 1, patch[0], *rest)`` holds the weighted sums and, as its last channel, the weights.
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
    """Drop the first planes of ``(K, n, *rest)``, move up the others and clear the last, in place."""
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
        raise UserError(
            Code.RECIPE_MISMATCH,
            "inference.stride",
            f"{settings.stride} does not fit windows of {patch} voxels",
            f"give {len(patch)} numbers, none larger than the window along its axis",
        )
    return settings.stride


def _pad(image: Tensor, patch: Index) -> tuple[Index, Tensor]:
    """An image at least as large as the patch, zeros on both sides, and where the image starts in it."""
    missing = [max(size - have, 0) for size, have in zip(patch, image.shape[1:], strict=True)]
    left = tuple(pad // 2 for pad in missing)
    if not any(missing):
        return left, image
    sides = [(before, pad - before) for before, pad in zip(left, missing, strict=True)]
    return left, F.pad(image, [side for pair in reversed(sides) for side in pair])


def _weights(shape: Index, patch: Index, settings: InferenceSettings) -> Tensor:
    # Where windows cannot overlap a mean is the value itself; weights of one keep it so to the last bit.
    overlapping = any(size not in (1, full) for size, full in zip(patch, shape, strict=True))
    return gaussian_weights(patch) if overlapping and settings.window == "gaussian" else torch.ones(patch)


@lru_cache(maxsize=4)
def gaussian_weights(patch: Index) -> Tensor:
    """Return the weights of a window: a Gaussian with a standard deviation of 1/8 of each side, at least 0.001.

    The weights equal MONAI's ``compute_importance_map`` bit for bit.
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
