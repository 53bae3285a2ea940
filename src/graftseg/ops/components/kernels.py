# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
"""Connected components by union-find, as Triton kernels.

A voxel is identified by its index in C order over the whole batch. ``parents`` contains a forest: the parent of a
foreground voxel is an earlier voxel of the same component, except that a root is its own parent. Background has parent
-1. Each program processes ``BLOCK`` consecutive voxels, one in each lane. Five kernels run in sequence:

- ``runs`` joins each run of equal labels in a row.
- ``merge`` joins rows.
- ``count`` writes the size of each component at its root to ``sizes``.
- ``choose`` writes the size and root of the largest component of each sample and class to ``best``.
- ``keep`` writes the result.

Programs of ``merge`` change the same forest concurrently. To see that the result is correct, consider a graph with two
kinds of edges: links from voxels to their parents, and pairs ``(high, low)`` of voxels that still have to be joined.
Every step is atomic and never splits a component of this graph:

- If a link ``high -> p`` with ``p <= low`` is read, the pair becomes ``(p, low)``; high, p and low stay connected.
- Otherwise ``atomic_min`` replaces the current link ``high -> old`` by ``high -> min(old, low)``, and the pair becomes
  ``(old, low)``; again all three stay connected. If ``old`` is ``high`` or ``low``, the pair is joined.

The larger index of a pair decreases with every step, even if other programs change the forest. So no program waits for
another, and all terminate. At the end no pair is left, and the components of the graph are the trees. Parents only
decrease, so the root of a tree is the first voxel of its component. A program may read an outdated parent. This parent
belongs to the same component, so it costs an extra step but never changes the result. ``merge`` bypasses the L1 cache
when it reads parents, to avoid this extra step.

``count`` shortens paths while other programs follow them. This is safe: any parent that is read is an ancestor.
"""

import triton
import triton.language as tl

MAX_INT32 = tl.constexpr(0x7FFFFFFF)
# In each block, ``count`` adds the sizes of up to four components with one atomic addition per component. For further
# components, it needs one atomic addition per voxel.
GROUPED_COMPONENTS = tl.constexpr(4)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _any(lanes):
    return tl.max(lanes.to(tl.int32), axis=0) > 0


@triton.jit
def _own_voxels(voxels, BLOCK: tl.constexpr):
    """Return the indices of this program's voxels, and a mask of the indices below ``voxels``.

    The mask is computed with 64 bits, because indices of the last block may not fit in 32 bits.
    """
    wide = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    return wide.to(tl.int32), wide < voxels


@triton.jit
def _class_of(labels, voxel, here, classes):
    label = tl.load(labels + voxel, mask=here, other=0).to(tl.int64)
    return tl.where((label > 0) & (label < classes), label, 0).to(tl.int32)


@triton.jit(do_not_specialize=["columns", "classes", "slots"])
def runs(labels, classes_of, parents, sizes, best, voxels, columns, classes, slots, BLOCK: tl.constexpr):
    """Write the class and the parent of every voxel, and set ``best`` and the sizes of possible roots to 0.

    The parent is the first voxel of the run. If the run started in an earlier block, the parent is the last voxel of
    the previous block.
    """
    voxel, here = _own_voxels(voxels, BLOCK)
    class_here = _class_of(labels, voxel, here, classes)
    before = _class_of(labels, voxel - 1, here & (voxel % columns > 0), classes)
    starts = class_here != before
    lane = tl.arange(0, BLOCK)
    # the running maximum carries the first voxel of a run to all voxels of the run
    parent = tl.where(starts, voxel, tl.where(lane == 0, voxel - 1, -1))
    parent = tl.associative_scan(parent, 0, _larger)
    tl.store(classes_of + voxel, class_here.to(tl.uint8), mask=here)
    tl.store(parents + voxel, tl.where(class_here > 0, parent, -1), mask=here)
    tl.store(sizes + voxel, tl.zeros_like(voxel), mask=here & starts)
    tl.store(best + voxel, tl.zeros_like(voxel).to(tl.int64), mask=(voxel >= 0) & (voxel < slots))


@triton.jit
def _join(parents, first, second, lanes):
    """Join the trees of two voxels in the given lanes."""
    first = tl.load(parents + first, mask=lanes, other=0, volatile=True)
    second = tl.load(parents + second, mask=lanes, other=0, volatile=True)
    high, low = tl.maximum(first, second), tl.minimum(first, second)
    lanes = lanes & (high != low)
    while _any(lanes):
        parent = tl.load(parents + high, mask=lanes, other=0, volatile=True)
        lowered = lanes & (parent > low)
        old = tl.atomic_min(parents + high, low, mask=lowered, sem="relaxed")
        parent = tl.where(lowered, old, parent)
        lanes = lanes & (parent != high) & (parent != low)
        high, low = tl.maximum(parent, low), tl.minimum(parent, low)


@triton.jit
def _join_row(classes_of, parents, voxel, class_here, first, last, offset, lanes, OBLIQUE: tl.constexpr):
    """Join the runs of this row with the runs of the same class that they touch in the row at ``offset``.

    Two runs may touch at several voxels, but one join is enough. If the runs share columns, the two voxels in the first
    shared column are joined. Otherwise the runs touch only diagonally, and their ends are joined if ``OBLIQUE``.
    """
    other = voxel + offset
    left = tl.load(classes_of + voxel - 1, mask=lanes & ~first, other=0).to(tl.int32) == class_here
    across = tl.load(classes_of + other, mask=lanes, other=0).to(tl.int32) == class_here
    across_left = tl.load(classes_of + other - 1, mask=lanes & ~first, other=0).to(tl.int32) == class_here
    # where both runs continue from the left, an earlier column has already joined them
    straight = lanes & across & ~(left & across_left)
    if OBLIQUE:
        right = tl.load(classes_of + voxel + 1, mask=lanes & ~last, other=0).to(tl.int32) == class_here
        across_right = tl.load(classes_of + other + 1, mask=lanes & ~last, other=0).to(tl.int32) == class_here
        to_left = lanes & across_left & ~across & ~left
        _join(parents, voxel, tl.where(to_left, other - 1, other), straight | to_left)
        _join(parents, voxel, other + 1, lanes & across_right & ~across & ~right)
    else:
        _join(parents, voxel, other, straight)


@triton.jit(do_not_specialize=["depth", "rows", "columns"])
def merge(
    classes_of, parents, voxels, depth, rows, columns,
    CONNECTIVITY: tl.constexpr, VOLUME: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Join every voxel with its neighbors in earlier rows."""
    voxel, here = _own_voxels(voxels, BLOCK)
    class_here = tl.load(classes_of + voxel, mask=here, other=0).to(tl.int32)
    lanes = class_here > 0
    if _any(lanes):
        column, line = voxel % columns, voxel // columns
        row = line % rows
        first, last = column == 0, column == columns - 1
        above = lanes & (row > 0)
        _join_row(classes_of, parents, voxel, class_here, first, last, -columns, above, CONNECTIVITY > 1)
        if VOLUME:
            behind = lanes & ((line // rows) % depth > 0)
            back = -rows * columns
            _join_row(classes_of, parents, voxel, class_here, first, last, back, behind, CONNECTIVITY > 1)
            if CONNECTIVITY > 1:
                up, down = behind & (row > 0), behind & (row < rows - 1)
                _join_row(classes_of, parents, voxel, class_here, first, last, back - columns, up, CONNECTIVITY > 2)
                _join_row(classes_of, parents, voxel, class_here, first, last, back + columns, down, CONNECTIVITY > 2)


@triton.jit
def count(parents, sizes, voxels, BLOCK: tl.constexpr):
    """Point every voxel to its root and count the voxels of every component."""
    voxel, here = _own_voxels(voxels, BLOCK)
    root = tl.load(parents + voxel, mask=here, other=-1)
    lanes = root >= 0
    walking = lanes
    while _any(walking):
        parent = tl.load(parents + root, mask=walking, other=0)
        walking = walking & (parent != root)
        root = tl.where(walking, parent, root)
    tl.store(parents + voxel, root, mask=lanes)
    counted = 0
    while _any(lanes) & (counted < GROUPED_COMPONENTS):
        earliest = tl.min(tl.where(lanes, root, MAX_INT32), axis=0)
        members = lanes & (root == earliest)
        tl.atomic_add(sizes + earliest, tl.sum(members.to(tl.int32), axis=0), sem="relaxed")
        lanes = lanes & (root != earliest)
        counted += 1
    tl.atomic_add(sizes + root, tl.full((BLOCK,), 1, tl.int32), mask=lanes, sem="relaxed")


@triton.jit(do_not_specialize=["space", "classes"])
def choose(classes_of, parents, sizes, best, voxels, space, classes, BLOCK: tl.constexpr):
    """Find the best root of each sample and class: the largest size, then the earliest root.

    ``best`` only increases. An outdated value is too small and causes only an unnecessary ``atomic_max``.
    """
    voxel, here = _own_voxels(voxels, BLOCK)
    roots = here & (tl.load(parents + voxel, mask=here, other=-1) == voxel)
    if _any(roots):
        size = tl.load(sizes + voxel, mask=roots, other=0).to(tl.int64)
        class_here = tl.load(classes_of + voxel, mask=roots, other=0).to(tl.int32)
        sample = voxel // space
        # the high 32 bits are the size; the low 32 bits are larger for an earlier voxel of the sample
        key = (size << 32) | (sample * space - voxel + MAX_INT32).to(tl.int64)
        slot = sample * classes + class_here
        current = tl.load(best + slot, mask=roots, other=0, volatile=True)
        tl.atomic_max(best + slot, key, mask=roots & (key > current), sem="relaxed")


@triton.jit(do_not_specialize=["space", "classes"])
def keep(kept, classes_of, parents, best, voxels, space, classes, BLOCK: tl.constexpr):
    """Write the class of a voxel if its root is the best of this sample and class, else background."""
    voxel, here = _own_voxels(voxels, BLOCK)
    class_here = tl.load(classes_of + voxel, mask=here, other=0).to(tl.int32)
    lanes = class_here > 0
    root = tl.load(parents + voxel, mask=lanes, other=0)
    sample = voxel // space
    key = tl.load(best + sample * classes + class_here, mask=lanes, other=0)
    # compare the low bits of the key, computed as in ``choose``, because they identify the root
    kept_here = lanes & (sample * space - root + MAX_INT32 == (key & MAX_INT32))
    tl.store(kept + voxel, tl.where(kept_here, class_here, 0).to(kept.dtype.element_ty), mask=here)
