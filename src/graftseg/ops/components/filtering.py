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

    Of a class in ``keep``, the given number of largest components is kept. Of a class in ``min_voxels``, components
    with at least the given number of voxels are kept. A class in both must meet both conditions, and a class in neither
    is unchanged. Voxels connect at faces, edges and corners. If components have the same size, the first in the array
    are kept. Components are found on the CPU.
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
    places = np.flatnonzero(np.isin(flat, tied))
    _, first = np.unique(flat[places], return_index=True)
    in_order = tied[np.argsort(first)]
    return np.concatenate(
        [members[sizes[members] < limit], in_order[count - np.count_nonzero(sizes[members] > limit) :]]
    )
