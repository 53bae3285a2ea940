"""Numbers of components, and largest components, on the CPU with cc3d."""

from typing import Any

import numpy as np
import numpy.typing as npt

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
    sizes = np.bincount(components.ravel(), minlength=count + 1)
    class_of = np.zeros(count + 1, dtype=np.int64)
    class_of[components.ravel()] = labels.ravel()
    is_kept = np.zeros(count + 1, dtype=bool)
    for value in range(1, classes):
        members = np.flatnonzero(class_of == value)
        if len(members):
            is_kept[_first_largest(components, members, sizes)] = True
    return np.where(is_kept[components], labels, 0).astype(labels.dtype)


def _first_largest(components: Labels, members: Labels, sizes: Labels) -> int:
    """Return the largest of the components ``members``. Of equal sizes, return the first in the array."""
    tied = members[sizes[members] == sizes[members].max()]
    if len(tied) == 1:
        return int(tied[0])
    flat = components.ravel()
    return int(flat[np.isin(flat, tied).argmax()])


def number_components(labels: Labels, connectivity: int) -> tuple[Labels, int]:
    """Number the components of all classes at once; voxels of different classes are never joined."""
    import cc3d

    if labels.dtype.kind not in "ui":
        raise TypeError(f"label maps must be integers, not {labels.dtype}")
    components, count = cc3d.connected_components(
        np.ascontiguousarray(labels), connectivity=NEIGHBORS[labels.ndim, connectivity], return_N=True
    )
    return components, int(count)
