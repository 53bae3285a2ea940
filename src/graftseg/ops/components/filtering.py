"""Removal of components of some classes: all but the N largest, or those below a size."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from graftseg.ops.components.host import number_components


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
    sizes = np.bincount(components.ravel(), minlength=count + 1)
    class_of = np.zeros(count + 1, dtype=np.int64)
    class_of[components.ravel()] = chosen.ravel()
    is_removed = np.zeros(count + 1, dtype=np.bool_)
    for value in classes:
        members = np.flatnonzero(class_of == value)
        is_removed[members[sizes[members] < min_voxels.get(value, 0)]] = True
        is_removed[_smaller(components, members, sizes, keep.get(value, len(members)))] = True
    return torch.from_numpy(np.where(is_removed[components], 0, host).astype(host.dtype)).to(labels.device)


def _smaller(
    components: NDArray[Any], members: NDArray[np.intp], sizes: NDArray[np.intp], count: int
) -> NDArray[np.intp]:
    """Return the members except the ``count`` largest. Of equal sizes, the first in the array counts as larger."""
    if len(members) <= count:
        return members[:0]
    limit = np.sort(sizes[members])[-count]
    flat = components.ravel()
    tied = members[sizes[members] == limit]
    _, first = np.unique(flat[np.isin(flat, tied)], return_index=True)
    tied_in_order = tied[np.argsort(first)]
    places_for_tied = count - np.count_nonzero(sizes[members] > limit)
    return np.concatenate([members[sizes[members] < limit], tied_in_order[places_for_tied:]])
