"""Slow reference of largest components: class by class, with scipy."""

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from graftseg.ops.components.host import resolve_connectivity

Labels = npt.NDArray[Any]


def largest_component_by_definition(
    labels: Labels, classes: int, connectivity: int | None = None, only: Collection[int] | None = None
) -> Labels:
    """Keep the largest component of every foreground class of a label map ``(*space)``, the first if tied.

    Classes that are not in ``only`` keep all components.
    """
    structure = ndimage.generate_binary_structure(labels.ndim, resolve_connectivity(labels.ndim, connectivity))
    kept = np.zeros_like(labels)
    for value in range(1, classes):
        if only is not None and value not in only:
            kept[labels == value] = value
            continue
        components, count = ndimage.label(labels == value, structure=structure)
        if count:
            _, first, sizes = np.unique(components[components > 0], return_index=True, return_counts=True)
            largest = np.flatnonzero(sizes == sizes.max())
            kept[components == 1 + largest[first[largest].argmin()]] = value
    return kept
