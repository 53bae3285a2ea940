# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
"""3x3x3 convolutions with few channels as Triton kernels that compute pairs of voxels, plane by plane.

A pair is two neighbors along the last axis. Each kernel multiplies two matrices. A row of the left matrix has the four
input voxels that a pair needs for three taps along the last axis. In channels-last memory, the channels of these voxels
are contiguous. A program processes a block of pairs and moves along the first axis. Each plane that the program reads
contributes to three output planes. A voxel is therefore read six times instead of 27. Numbers of channels must be
powers of two and at least 16.

Arguments of the kernels:

- ``X, Y, Z``: size of a volume.
- ``Q``: number of pairs in a plane.
- ``planes``: number of planes per program.
- ``C, COUT``: input and output channels.
- ``BM``: number of pairs per block.

Variables: ``p`` are pairs, and ``(yy, zz)`` are the positions of their first voxels. ``j`` numbers the channels of the
four input voxels, ``n`` the channels of the two output voxels.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graftseg.networks.channels_last import empty_channels_last, to_channels_last


@triton.jit
def _load_neighbors(x, sample, plane, shift, p, yy, zz, X, Y, Z, Q, C: tl.constexpr):
    """Load the four voxels around each pair, moved by ``shift`` lines: ``(BM, 4 * C)``, zero outside the volume."""
    j = tl.arange(0, 4 * C)
    rows = (p < tl.where((plane >= 0) & (plane < X), Q, 0)) & (yy + shift >= 0) & (yy + shift < Y)
    low, high = (zz > 0)[:, None] | (j >= C)[None, :], (zz < Z - 2)[:, None] | (j < 3 * C)[None, :]
    start = (((sample * X + plane) * Y + yy + shift) * Z + zz - 1) * C
    return tl.load(x + start[:, None] + j[None, :], mask=rows[:, None] & low & high, other=0.0)


@triton.jit
def _convolve_kernel(
    x, w, y, X, Y, Z, Q, planes,
    C: tl.constexpr, COUT: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Compute ``planes`` output planes of one block of pairs. ``w`` is ``(3, 3, 4 * C, 2 * COUT)``.

    ``before``, ``here`` and ``behind`` are the sums for the output planes before, at and behind the input plane.
    """
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    yy, zz = p // (Z // 2), p % (Z // 2) * 2
    first, sample = tl.program_id(1) * planes, tl.program_id(2)
    j, n = tl.arange(0, 4 * C), tl.arange(0, 2 * COUT)
    weights = w + j[:, None] * (2 * COUT) + n[None, :]
    before = tl.zeros((BM, 2 * COUT), dtype=tl.float32)
    here = tl.zeros((BM, 2 * COUT), dtype=tl.float32)
    for step in range(planes + 2):
        plane = first - 1 + step
        behind = tl.zeros((BM, 2 * COUT), dtype=tl.float32)
        for row in tl.static_range(3):
            a = _load_neighbors(x, sample, plane, row - 1, p, yy, zz, X, Y, Z, Q, C)
            b2 = tl.load(weights + (6 + row) * 8 * C * COUT)
            b1 = tl.load(weights + (3 + row) * 8 * C * COUT)
            b0 = tl.load(weights + row * 8 * C * COUT)
            before = tl.dot(a, b2, before, input_precision="tf32")
            here = tl.dot(a, b1, here, input_precision="tf32")
            behind = tl.dot(a, b0, behind, input_precision="tf32")
        done = plane - 1
        keep = p < tl.where((done >= first) & (done < X), Q, 0)
        offset = ((sample * X + done) * Q + p)[:, None] * (2 * COUT) + n[None, :]
        tl.store(y + offset, before.to(y.dtype.element_ty), mask=keep[:, None])
        before, here = here, behind


@triton.jit
def _weight_kernel(
    x, dy, out, X, Y, Z, Q, planes,
    C: tl.constexpr, COUT: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Sum the weight gradient over some pairs, for one shift of lines.

    ``out`` is ``(programs, 3, 3, 4 * C, 2 * COUT)``.
    """
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    yy, zz = p // (Z // 2), p % (Z // 2) * 2
    chunks = tl.cdiv(X, planes)
    first, sample = tl.program_id(1) % chunks * planes, tl.program_id(1) // chunks
    row = tl.program_id(2)
    j, n = tl.arange(0, 4 * C), tl.arange(0, 2 * COUT)
    acc0 = tl.zeros((4 * C, 2 * COUT), dtype=tl.float32)
    acc1 = tl.zeros((4 * C, 2 * COUT), dtype=tl.float32)
    acc2 = tl.zeros((4 * C, 2 * COUT), dtype=tl.float32)
    for step in range(planes):
        plane = first + step
        a = tl.trans(_load_neighbors(x, sample, plane, row - 1, p, yy, zz, X, Y, Z, Q, C))
        offset = ((sample * X + plane) * Q + p)[:, None] * (2 * COUT) + n[None, :]
        g0 = tl.load(dy + offset + Q * 2 * COUT, mask=(p < tl.where(plane + 1 < X, Q, 0))[:, None], other=0.0)
        g1 = tl.load(dy + offset, mask=(p < tl.where(plane < X, Q, 0))[:, None], other=0.0)
        g2 = tl.load(
            dy + offset - Q * 2 * COUT, mask=(p < tl.where((plane > 0) & (plane < X), Q, 0))[:, None], other=0.0
        )
        acc0 = tl.dot(a, g0, acc0, input_precision="tf32")
        acc1 = tl.dot(a, g1, acc1, input_precision="tf32")
        acc2 = tl.dot(a, g2, acc2, input_precision="tf32")
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    sums = out + j[:, None] * (2 * COUT) + n[None, :]
    tl.store(sums + ((program * 3 + 0) * 3 + row) * 8 * C * COUT, acc0)
    tl.store(sums + ((program * 3 + 1) * 3 + row) * 8 * C * COUT, acc1)
    tl.store(sums + ((program * 3 + 2) * 3 + row) * 8 * C * COUT, acc2)


def convolve(x: Tensor, weight: Tensor, *, planes: int, **launch: Any) -> Tensor:
    """Compute a 3x3x3 convolution with zero padding. The last size is even. Each program writes ``planes`` planes."""
    x = to_channels_last(x)
    (batch, channels, *space), width = x.shape, weight.shape[0]
    w = weight.to(x.dtype).permute(2, 3, 4, 1, 0)
    wide = w.new_zeros(3, 3, 4, channels, 2, width)
    wide[:, :, 0:3, :, 0] = w
    wide[:, :, 1:4, :, 1] = w
    y = empty_channels_last(x, (batch, width, *space))
    pairs = space[1] * space[2] // 2
    _convolve_kernel[(triton.cdiv(pairs, launch["BM"]), triton.cdiv(space[0], planes), batch)](
        x, wide, y, *space, pairs, planes, C=channels, COUT=width, **launch
    )
    return y


def convolve_weight(x: Tensor, dy: Tensor, *, planes: int, **launch: Any) -> Tensor:
    """Return the gradient of the weight of ``convolve``, in float32."""
    x, dy = to_channels_last(x), to_channels_last(dy)
    (batch, channels, *space), width = x.shape, dy.shape[1]
    pairs = space[1] * space[2] // 2
    tiles, chunks = triton.cdiv(pairs, launch["BM"]), batch * triton.cdiv(space[0], planes)
    out = torch.empty((tiles * chunks, 3, 3, 4, channels, 2, width), device=x.device)
    _weight_kernel[(tiles, chunks, 3)](x, dy, out, *space, pairs, planes, C=channels, COUT=width, **launch)
    summed = out.sum(0)
    return to_channels_last((summed[:, :, 0:3, :, 0] + summed[:, :, 1:4, :, 1]).permute(4, 3, 0, 1, 2))
