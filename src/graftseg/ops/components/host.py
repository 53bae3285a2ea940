"""Components on the CPU with cc3d: their numbers, the largest ones, and removal of small ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graftseg.core.types import NEIGHBORS

Labels = npt.NDArray[Any]


def resolve_connectivity(axes: int, connectivity: int | None) -> int:
    """Return the connectivity, by default the number of axes. Raise a ValueError if it does not fit the axes.

    As in scipy, the connectivity is the number of axes along which neighbors may differ.
    """
    resolved = axes if connectivity is None else connectivity
    if (axes, resolved) not in NEIGHBORS:
        raise ValueError(f"a connectivity of {resolved} does not fit label maps of {axes} axes")
    return resolved


def largest_component_of(labels: Labels, classes: int, connectivity: int | None = None) -> Labels:
    """Keep the largest component of every foreground class of a label map ``(*space)``, as ``largest_components``."""
    components, count = number_components(labels, resolve_connectivity(labels.ndim, connectivity))
    if count <= 1 and labels.max(initial=0) < classes and labels.min(initial=0) >= 0:
        return labels.copy()  # nothing to remove
    sizes, class_of = _sizes_and_classes(components, count, labels)
    is_kept = np.zeros(count + 1, dtype=bool)
    for value in range(1, classes):
        is_kept[_largest(components, np.flatnonzero(class_of == value), sizes, 1)] = True
    return np.where(is_kept[components], labels, 0).astype(labels.dtype)


def number_components(labels: Labels, connectivity: int) -> tuple[Labels, int]:
    """Number the components of all classes at once; voxels of different classes are never joined."""
    import cc3d

    if labels.dtype.kind not in "ui":
        raise TypeError(f"label maps must be integers, not {labels.dtype}")
    components, count = cc3d.connected_components(
        np.ascontiguousarray(labels), connectivity=NEIGHBORS[labels.ndim, connectivity], return_N=True
    )
    return components, int(count)


def filter_components(labels: Tensor, keep: Mapping[int, int], min_voxels: Mapping[int, float]) -> Tensor:
    """Remove components of the listed classes from a label map ``(*space)``. Removed voxels become background.

    - ``keep``: number of largest components to keep, by class. Of equal sizes, the first in the array are kept.
    - ``min_voxels``: smallest size of a component to keep, by class.

    Components of a class with both entries must meet both conditions. Voxels connect at faces, edges and corners.
    Components are found on the CPU.
    """
    host = labels.cpu().numpy()
    classes = sorted({*keep, *min_voxels})
    chosen = np.where(np.isin(host, classes), host, 0)
    components, count = number_components(chosen, host.ndim)
    sizes, class_of = _sizes_and_classes(components, count, chosen)
    is_removed = np.isin(class_of, classes)
    for value in classes:
        members = np.flatnonzero(class_of == value)
        largest = _largest(components, members, sizes, keep.get(value, len(members)))
        is_removed[largest[sizes[largest] >= min_voxels.get(value, 0)]] = False
    return torch.from_numpy(np.where(is_removed[components], 0, host).astype(host.dtype)).to(labels.device)


def _sizes_and_classes(components: Labels, count: int, labels: Labels) -> tuple[Labels, Labels]:
    """Return the size and the class of every component."""
    class_of = np.zeros(count + 1, dtype=np.int64)
    class_of[components.ravel()] = labels.ravel()
    return np.bincount(components.ravel(), minlength=count + 1), class_of


def _largest(components: Labels, members: Labels, sizes: Labels, count: int) -> Labels:
    """Return the ``count`` largest of the components ``members``. Of equal sizes, the first in the array are chosen."""
    if len(members) <= count:
        return members
    limit = np.sort(sizes[members])[-count]
    larger, tied = members[sizes[members] > limit], members[sizes[members] == limit]
    if len(tied) > count - len(larger):
        flat = components.ravel()
        _, first = np.unique(flat[np.isin(flat, tied)], return_index=True)
        tied = tied[np.argsort(first)][: count - len(larger)]
    return np.concatenate([larger, tied])
