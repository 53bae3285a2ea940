"""Pieces: the connected components of each class in a label map. Islands are pieces that are probably errors."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.types import NEIGHBORS

SIZES_KEPT = 16  # number of pieces per class whose sizes are stored
ISLAND_SHARE = 0.01  # an island is smaller than this share of the largest piece
ISLAND_VOXELS = 10  # an island also has at most this number of voxels,
ISLAND_CLASS_SHARE = 0.001  # or at most this share of all voxels of its class


@dataclass(frozen=True)
class Pieces:
    """The connected components (pieces) of one class in one label map. Voxels connect at faces, edges and corners.

    An island, usually an annotation error, is smaller than ``ISLAND_SHARE`` of the largest piece. It also has at most
    ``ISLAND_VOXELS`` voxels or at most ``ISLAND_CLASS_SHARE`` of the class.
    """

    voxels: int
    count: int
    sizes: tuple[int, ...]  # voxel counts of the ``SIZES_KEPT`` largest pieces
    islands: int = 0
    island_voxels: int = 0
    island_sizes: tuple[int, int] = (0, 0)  # of the smallest and the largest island
    island_at: tuple[int, ...] | None = None  # a voxel of the largest island


def pieces_of(labels: NDArray[Any]) -> dict[int, Pieces]:
    """Return the pieces of every class of a label map ``(*space)``, by label value."""
    import cc3d

    box = foreground_box(labels)
    if box is None:
        return {}
    inner, corner = labels[box], tuple(part.start for part in box)
    numbered = cc3d.connected_components(np.ascontiguousarray(inner), connectivity=NEIGHBORS[inner.ndim, inner.ndim])
    inside = inner > 0
    numbers, values = numbered[inside], inner[inside]
    sizes = np.bincount(numbers)
    class_of = np.zeros(len(sizes), dtype=np.int64)
    class_of[numbers] = values
    pieces = {}
    for value in np.unique(class_of[1:]):
        members = np.flatnonzero(class_of == value)
        members = members[np.argsort(-sizes[members], kind="stable")]
        pieces[int(value)] = _pieces(members, sizes[members], numbered, corner)
    return pieces


def _pieces(members: NDArray[Any], sizes: NDArray[Any], numbered: NDArray[Any], corner: tuple[int, ...]) -> Pieces:
    """Describe the pieces numbered ``members``, which are sorted by size, largest first."""
    total = int(sizes.sum())
    kept = tuple(int(size) for size in sizes[:SIZES_KEPT])
    small = (sizes < ISLAND_SHARE * sizes[0]) & (sizes <= max(ISLAND_VOXELS, ISLAND_CLASS_SHARE * total))
    if not small.any():
        return Pieces(total, len(members), kept)
    first = np.unravel_index(int((numbered == members[small][0]).argmax()), numbered.shape)
    largest_island_at = tuple(int(index) + offset for index, offset in zip(first, corner, strict=True))
    islands = sizes[small]
    extremes = (int(sizes[-1]), int(islands[0]))
    return Pieces(total, len(members), kept, len(islands), int(islands.sum()), extremes, largest_island_at)


def foreground_box(labels: NDArray[Any]) -> tuple[slice, ...] | None:
    """Return the smallest box that contains all foreground of a label map ``(*space)``, or None without foreground."""
    inside = labels > 0
    box = []
    for axis in range(labels.ndim):
        filled = np.flatnonzero(inside.any(axis=tuple(other for other in range(labels.ndim) if other != axis)))
        if not len(filled):
            return None
        box.append(slice(int(filled[0]), int(filled[-1]) + 1))
    return tuple(box)
