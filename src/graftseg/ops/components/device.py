"""Largest components on a GPU. Allocated memory and launched kernels do not depend on the label values.

``kernels`` explains the tables ``parents``, ``sizes`` and ``best``.
"""

import torch
from torch import Tensor

MAX_INDEX = 2**31 - 1  # the kernels index voxels, and pairs of sample and class, with signed 32-bit integers
BLOCK, WARPS = 512, 4  # voxels and warps per program, except in ``merge``
# with a single warp, ``merge`` needs no barrier to check that all voxels of its program are joined
MERGE_BLOCK, MERGE_WARPS = 32, 1


def largest_components_by_kernels(labels: Tensor, classes: int, connectivity: int) -> Tensor:
    """Return ``largest_components`` for validated arguments, computed by five kernels on the current stream."""
    voxels = labels.numel()
    for number, what in ((voxels, "voxels"), (len(labels) * classes, "pairs of sample and class")):
        if number > MAX_INDEX:
            raise ValueError(f"{number} {what} are too many for one call; the maximum is {MAX_INDEX}")
    from graftseg.ops.components import kernels

    volume = labels.ndim == 4
    depth = labels.shape[1] if volume else 1
    rows, columns = labels.shape[-2:]
    space = depth * rows * columns
    source = labels.detach().contiguous()
    kept = torch.empty_like(source)
    classes_of = torch.empty(voxels, dtype=torch.uint8, device=labels.device)
    parents = torch.empty(voxels, dtype=torch.int32, device=labels.device)
    sizes = torch.empty_like(parents)
    best = torch.empty(len(labels) * classes, dtype=torch.int64, device=labels.device)
    grid = (-(-max(voxels, len(best)) // BLOCK),)
    merge_grid = (-(-voxels // MERGE_BLOCK),)
    launch = {"BLOCK": BLOCK, "num_warps": WARPS}
    with torch.cuda.device(labels.get_device()):
        kernels.runs[grid](source, classes_of, parents, sizes, best, voxels, columns, classes, len(best), **launch)
        kernels.merge[merge_grid](
            classes_of, parents, voxels, depth, rows, columns,
            CONNECTIVITY=connectivity, VOLUME=volume, BLOCK=MERGE_BLOCK, num_warps=MERGE_WARPS,
        )  # fmt: skip
        kernels.count[grid](parents, sizes, voxels, **launch)
        kernels.choose[grid](classes_of, parents, sizes, best, voxels, space, classes, **launch)
        kernels.keep[grid](kept, classes_of, parents, best, voxels, space, classes, **launch)
    return kept
