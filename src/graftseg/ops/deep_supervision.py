"""Deep supervision: losses of the logits of all decoder levels, as in nnU-Net."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor


def deep_loss(loss: Callable[..., Tensor], logits: Sequence[Tensor], *targets: Tensor) -> Tensor:
    """Return the weighted mean of ``loss(logits, *targets)`` over the levels; see ``levels``."""
    parts = [weight * loss(*tensors) for weight, tensors in levels(logits, *targets)]
    return sum(parts[1:], parts[0])


def deep_terms(
    terms: Callable[[Tensor, Tensor], dict[str, Tensor]], logits: Sequence[Tensor], labels: Tensor
) -> dict[str, Tensor]:
    """Return the weighted mean of every term of ``terms(logits, labels)`` over the levels; see ``levels``."""
    parts = [(weight, terms(*tensors)) for weight, tensors in levels(logits, labels)]
    first, found = parts[0]
    means = {name: first * value for name, value in found.items()}
    for weight, found in parts[1:]:
        means = {name: value + weight * found[name] for name, value in means.items()}
    return means


def levels(logits: Sequence[Tensor], *targets: Tensor) -> Iterator[tuple[float, tuple[Tensor, ...]]]:
    """Yield the weight, the logits and the targets ``(..., *space)`` of every level, finest first.

    The weight halves from level to level, and all weights sum to 1. Targets are subsampled to the size of the logits.
    """
    total = sum(0.5**level for level in range(len(logits)))
    for level, coarse in enumerate(logits):
        subsampled = (subsample(target, 2**level, axes=coarse.dim() - 2) for target in targets)
        yield 0.5**level / total, (coarse, *subsampled)


def subsample(target: Tensor, step: int, axes: int) -> Tensor:
    """Return every ``step``-th voxel along each of the last ``axes`` axes, beginning with voxel ``step // 2``."""
    index: tuple[Any, ...] = (..., *[slice(step // 2, None, step)] * axes)
    return target[index]
