"""The largest connected component of every sample and class."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Labels = npt.NDArray[Any]
NEIGHBOURS = {(2, 1): 4, (2, 2): 8, (3, 1): 6, (3, 2): 18, (3, 3): 26}


def largest_components(labels: Tensor, classes: int, connectivity: int | None = None) -> Tensor:
    """Keep the largest component of every sample and foreground class; all other voxels become background.

    ``labels`` is ``(B, *space)`` of an integer type. ``connectivity`` counts the axes in which neighbours may differ,
    from 1 (faces) to the number of axes (corners too, the default). Of components of the same size, the one that
    comes first in the array stays. A class without a voxel stays empty.
    """
    host = labels.detach().cpu().numpy()
    kept = np.stack([largest_component_of(sample, classes, connectivity) for sample in host])
    return torch.from_numpy(kept).to(labels.device)


def largest_component_of(labels: Labels, classes: int, connectivity: int | None = None) -> Labels:
    """The same for one label map ``(*space)``."""
    components, count = _label(labels, labels.ndim if connectivity is None else connectivity)
    if count <= 1 and labels.max() < classes:
        return labels.copy()
    sizes = np.bincount(components.ravel(), minlength=count + 1)
    class_of = np.zeros(count + 1, dtype=np.int64)
    class_of[components.ravel()] = labels.ravel()
    keep = np.zeros(count + 1, dtype=bool)
    for value in range(1, classes):
        members = np.flatnonzero(class_of == value)
        if len(members):
            keep[_first_largest(components, members, sizes)] = True
    return np.where(keep[components], labels, 0).astype(labels.dtype)


def _first_largest(components: Labels, members: Labels, sizes: Labels) -> int:
    tied = members[sizes[members] == sizes[members].max()]
    if len(tied) == 1:
        return int(tied[0])
    flat = components.ravel()
    return int(flat[np.isin(flat, tied).argmax()])


def _label(labels: Labels, connectivity: int) -> tuple[Labels, int]:
    """Number the components of all classes at once; voxels of different classes are never joined."""
    import cc3d

    if labels.dtype.kind not in "ui":
        raise TypeError(f"label maps are integers, not {labels.dtype}")
    if (labels.ndim, connectivity) not in NEIGHBOURS:
        raise ValueError(f"a connectivity of {connectivity} does not fit label maps of {labels.ndim} axes")
    components, count = cc3d.connected_components(
        np.ascontiguousarray(labels), connectivity=NEIGHBOURS[labels.ndim, connectivity], return_N=True
    )
    return components, int(count)
