"""Several networks, or one network on several views of an image, as one: the mean of their probabilities."""

from collections.abc import Iterable, Sequence
from itertools import chain, combinations

import torch
from torch import Tensor

from graftseg.inference.sliding_window import Segment


def mean_of(segments: Sequence[Segment]) -> Segment:
    """A network whose probabilities are the mean of others'; they run one after the other, one result is kept.

    The mean of one network is that network itself, to the last bit.
    """
    if not segments:
        raise ValueError("the mean of no network")
    if len(segments) == 1:
        return segments[0]
    return lambda images: _mean(segment(images) for segment in segments)


def over_flips(segment: Segment, axes: int = 3) -> Segment:
    """The mean over an image ``(B, C, *space)`` flipped along every subset of its first ``axes``, each flipped back.

    That are four views of a slice and eight of a volume, the first of them the image as it is.
    """

    def flipped(images: Tensor) -> Tensor:
        views = subsets(range(2, min(images.ndim, 2 + axes)))
        return _mean(segment(images.flip(view)).flip(view) for view in views)

    return flipped


def side_by_side(first: Segment, second: Segment) -> Segment:
    """Both networks' probabilities of an image, one after the other along the channels."""
    return lambda images: torch.cat([first(images).float(), second(images).float()], dim=1)


def subsets(axes: Sequence[int]) -> list[tuple[int, ...]]:
    """All subsets of some axes, the empty one first."""
    return list(chain.from_iterable(combinations(axes, count) for count in range(len(axes) + 1)))


def _mean(results: Iterable[Tensor]) -> Tensor:
    total, count = None, 0
    for result in results:
        total = result.float() if total is None else total + result.float()
        count += 1
    assert total is not None
    return total / count
