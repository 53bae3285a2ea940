"""Largest connected components per sample and class, and removal of small components.

``device`` finds largest components on a GPU with the Triton ``kernels``, without synchronizing with the host. ``host``
finds components on the CPU with cc3d. The results are equal.
"""

from collections.abc import Collection
from functools import cache
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from graftseg.core.devices import has_triton
from graftseg.ops.components.host import filter_components, largest_component_of, resolve_connectivity

__all__ = ["filter_components", "largest_component_of", "largest_components"]

ComponentRule = bool | tuple[Annotated[int, Field(ge=1, le=10**9)], ...]
"""True selects all foreground classes, False none, and a tuple the listed class numbers."""
MAX_KERNEL_CLASSES = 256  # the kernels store a class in 8 bits


def chosen_classes(rule: ComponentRule) -> tuple[int, ...] | None:
    """Return the class numbers that a rule selects; None means all foreground classes."""
    if isinstance(rule, tuple):
        return rule
    return None if rule else ()


def largest_components(
    labels: Tensor, classes: int, connectivity: int | None = None, only: Collection[int] | None = None
) -> Tensor:
    """Keep the largest component of every sample and foreground class; all other voxels become background.

    - ``labels``: ``(B, *space)`` of an integer type, with two or three spatial axes. Values that are not a class become
      background.
    - ``connectivity``: number of axes along which neighbors may differ, from 1 (faces) to the number of axes (corners,
      the default).
    - ``only``: classes to reduce, by default all. Other classes keep all their voxels.

    If components have the same size, the first in the array is kept. The function is not differentiable.

    On a GPU with Triton, up to 256 classes are processed by a fixed sequence of kernels on the current stream, without
    a transfer to the host. Call the function once before CUDA graph capture to compile the kernels.
    """
    if labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex():
        raise TypeError(f"label maps must be integers, not {labels.dtype}")
    reduced: Tensor = _largest_components(labels, classes, resolve_connectivity(labels.ndim - 1, connectivity))
    if only is None:
        return reduced
    for value in range(1, classes):
        # compare with one number at a time: a list of numbers would be copied to the device
        if value not in only:
            reduced = torch.where(labels == value, labels, reduced)
    return reduced


@torch.library.custom_op("graftseg::largest_components", mutates_args=())
def _largest_components(labels: Tensor, classes: int, connectivity: int) -> Tensor:
    if labels.numel() == 0:
        return torch.empty_like(labels, memory_format=torch.contiguous_format)
    if labels.is_cuda and classes <= MAX_KERNEL_CLASSES and _has_triton():
        from graftseg.ops.components.device import largest_components_by_kernels

        return largest_components_by_kernels(labels, classes, connectivity)
    host = labels.detach().cpu().numpy()
    reduced = np.stack([largest_component_of(sample, classes, connectivity) for sample in host])
    return torch.from_numpy(reduced).to(labels.device)


@_largest_components.register_fake
def _(labels: Tensor, classes: int, connectivity: int) -> Tensor:
    return torch.empty_like(labels, memory_format=torch.contiguous_format)


_has_triton = cache(has_triton)
