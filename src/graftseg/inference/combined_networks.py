"""Networks made of other networks: averages, flips and stacked channels."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import torch
from torch import Tensor

from graftseg.inference.sliding_window import Segment


def mean_of(segments: Sequence[Segment]) -> Segment:
    """Return a network that averages the probabilities of several networks. A single network is returned unchanged."""
    if len(segments) == 1:
        return segments[0]
    return lambda images: _mean(segment(images) for segment in segments)


def flipped(segment: Segment, axes: tuple[int, ...]) -> Segment:
    """Return a network that flips the image along some axes and flips the probabilities back."""
    return lambda images: segment(images.flip(axes)).flip(axes)


def over_flips(segment: Segment, axes: Sequence[int] | None = None) -> Segment:
    """Return a network that averages over all flips, first none, along the spatial ``axes``, by default all axes."""

    def averaged(images: Tensor) -> Tensor:
        views = subsets(range(2, images.ndim) if axes is None else [2 + axis for axis in axes])
        return _mean(flipped(segment, view)(images) for view in views)

    return averaged


def stack_channels(first: Segment, second: Segment) -> Segment:
    """Return a network with the probabilities of both networks stacked along the channels."""
    return lambda images: torch.cat([first(images).float(), second(images).float()], dim=1)


def subsets(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all subsets of some axes, the empty subset first."""
    return list(chain.from_iterable(combinations(axes, count) for count in range(len(axes) + 1)))


def _mean(results: Iterable[Tensor]) -> Tensor:
    """Return the mean of tensors. Only their running sum is kept in memory."""
    remaining, count = iter(results), 1
    total = next(remaining).float()
    for result in remaining:
        total, count = total + result.float(), count + 1
    return total / count
