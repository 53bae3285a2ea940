# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
"""Convolutions of volumes as Triton kernels, for layers with few channels, where cuDNN is slow.

Each kernel multiplies two matrices. In the left matrix, rows are voxels and columns are pairs of tap and channel. This
matrix is never stored, because its entries are read directly from the volume. Volumes are channels-last: the channels
of a voxel are contiguous. Block sizes were tuned on an H200.

Arguments of the kernels:

- ``M``: number of voxels of the batch.
- ``X, Y, Z``: size of a volume. For 2x2x2 kernels, this is the size of the coarse volume.
- ``C, COUT``: input and output channels.
- ``BM``, ``BK``, ``BN``: voxels, columns and output channels per block.
- ``COLUMNS``: number of columns in all blocks.
- ``tiles``: number of voxel blocks per program.

Variables: ``m`` are voxels, ``kk`` columns and ``co`` output channels. ``a`` and ``b`` are blocks of the two matrices,
``g`` is a block of the output gradient. In the 2x2x2 kernels, ``group`` numbers the four pairs of a cube along the last
axis, and ``j`` the channels of both voxels of a pair.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graftseg.networks.channels_last import empty_channels_last, to_channels_last

MAX_BLOCK_COLUMNS = 128  # columns of the left matrix that a program processes at once
PROGRAMS = 1056  # maximum number of programs that share the voxels of a weight gradient
STRIDED_LAUNCH = {"BM": 128, "num_warps": 4, "num_stages": 2}  # launch parameters of the 2x2x2 kernels


@triton.jit
def _gather(x, m, kk, M, X, Y, Z, C: tl.constexpr):
    """Return entries of the left matrix: voxel ``m`` displaced by the tap of column ``kk``, zero outside the volume."""
    zz, t = m % Z, m // Z
    yy, xx = t % Y, (t // Y) % X
    tap, c = kk // C, kk % C
    dx, dy, dz = tap // 9 - 1, (tap // 3) % 3 - 1, tap % 3 - 1
    px, py, pz = xx[:, None] + dx[None, :], yy[:, None] + dy[None, :], zz[:, None] + dz[None, :]
    inside = (px >= 0) & (px < X) & (py >= 0) & (py < Y) & (pz >= 0) & (pz < Z)
    inside = inside & (tap < 27)[None, :] & (m < M)[:, None]
    offset = (m[:, None] + ((dx * Y + dy) * Z + dz)[None, :]) * C + c[None, :]
    return tl.load(x + offset, mask=inside, other=0.0)


@triton.jit
def _convolve_kernel(
    x, w, y, M, X, Y, Z,
    C: tl.constexpr, COUT: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Compute the output of one block of voxels."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    co = tl.arange(0, COUT)
    acc = tl.zeros((BM, COUT), dtype=tl.float32)
    for k0 in range(0, COLUMNS, BK):
        kk = k0 + tl.arange(0, BK)
        a = _gather(x, m, kk, M, X, Y, Z, C)
        b = tl.load(w + kk[:, None] * COUT + co[None, :], mask=(kk < 27 * C)[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32")
    tl.store(y + m[:, None] * COUT + co[None, :], acc.to(y.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def _weight_kernel(
    x, dy, out, M, X, Y, Z, tiles,
    C: tl.constexpr, COUT: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum the weight gradient over this program's share of the voxels, for one block of columns."""
    kk = tl.program_id(1) * BK + tl.arange(0, BK)
    co = tl.arange(0, COUT)
    acc = tl.zeros((BK, COUT), dtype=tl.float32)
    begin = tl.program_id(0) * tiles
    for tile in range(begin, begin + tiles):
        m = tile * BM + tl.arange(0, BM)
        a = _gather(x, m, kk, M, X, Y, Z, C)
        # without ones in the unused column after the last tap, the kernel was about three times slower in float32
        a = tl.where((kk == 27 * C)[None, :], 1.0, a).to(x.dtype.element_ty)
        g = tl.load(dy + m[:, None] * COUT + co[None, :], mask=(m < M)[:, None], other=0.0)
        acc = tl.dot(tl.trans(a), g, acc, input_precision="tf32")
    tl.store(out + (tl.program_id(0) * COLUMNS + kk[:, None]) * COUT + co[None, :], acc)


@triton.jit
def _halve_kernel(
    x, w, y, M, X, Y, Z,
    C: tl.constexpr, COUT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Reduce 2x2x2 voxels to one. Both voxels of a pair are loaded at once."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    zz, t = m % Z, m // Z
    yy, t = t % Y, t // Y
    xx, n = t % X, t // X
    j, co = tl.arange(0, 2 * C), tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for group in range(4):
        fine = ((n * 2 * X + 2 * xx + group // 2) * 2 * Y + 2 * yy + group % 2) * Z + zz
        a = tl.load(x + fine[:, None] * (2 * C) + j[None, :], mask=(m < M)[:, None], other=0.0)
        b = tl.load(w + (group * 2 * C + j)[:, None] * COUT + co[None, :])
        acc = tl.dot(a, b, acc, input_precision="tf32")
    tl.store(y + m[:, None] * COUT + co[None, :], acc.to(y.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def _double_kernel(
    x, w, y, M, X, Y, Z,
    C: tl.constexpr, COUT: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Expand each voxel to 2x2x2 voxels. A program writes one of the four pairs of each voxel."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    group = tl.program_id(1)
    zz, t = m % Z, m // Z
    yy, t = t % Y, t // Y
    xx, n = t % X, t // X
    j = tl.arange(0, 2 * COUT)
    acc = tl.zeros((BM, 2 * COUT), dtype=tl.float32)
    for k0 in range(0, C, BK):
        c = k0 + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * C + c[None, :], mask=(m < M)[:, None], other=0.0)
        b = tl.load(w + (c[:, None] * 4 + group) * (2 * COUT) + j[None, :])
        acc = tl.dot(a, b, acc, input_precision="tf32")
    fine = ((n * 2 * X + 2 * xx + group // 2) * 2 * Y + 2 * yy + group % 2) * Z + zz
    tl.store(y + fine[:, None] * (2 * COUT) + j[None, :], acc.to(y.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def _strided_weight_kernel(
    fine_values, coarse_values, out, M, X, Y, Z, tiles,
    CF: tl.constexpr, CC: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Sum products of fine and coarse channels for each tap: the weight gradient of ``halve`` and ``double``.

    ``CF, CC`` are the fine and the coarse channels.
    """
    group = tl.program_id(1)
    j, co = tl.arange(0, 2 * CF), tl.program_id(2) * BN + tl.arange(0, BN)
    acc = tl.zeros((2 * CF, BN), dtype=tl.float32)
    begin = tl.program_id(0) * tiles
    for tile in range(begin, begin + tiles):
        m = tile * BM + tl.arange(0, BM)
        zz, t = m % Z, m // Z
        yy, t = t % Y, t // Y
        xx, n = t % X, t // X
        fine = ((n * 2 * X + 2 * xx + group // 2) * 2 * Y + 2 * yy + group % 2) * Z + zz
        a = tl.load(fine_values + fine[:, None] * (2 * CF) + j[None, :], mask=(m < M)[:, None], other=0.0)
        g = tl.load(coarse_values + m[:, None] * CC + co[None, :], mask=(m < M)[:, None], other=0.0)
        acc = tl.dot(tl.trans(a), g, acc, input_precision="tf32")
    offset = ((tl.program_id(0) * 4 + group) * 2 * CF + j[:, None]) * CC + co[None, :]
    tl.store(out + offset, acc)


def convolve(x: Tensor, weight: Tensor, **launch: Any) -> Tensor:
    """Compute a 3x3x3 convolution with zero padding; ``weight`` is ``(out, in, 3, 3, 3)``."""
    x = to_channels_last(x)
    batch, channels, *space = x.shape
    width, count = weight.shape[0], x.numel() // channels
    w = weight.permute(2, 3, 4, 1, 0).reshape(27 * channels, width).to(x.dtype).contiguous()
    y = empty_channels_last(x, (batch, width, *space))
    block, columns = _columns(channels)
    _convolve_kernel[(triton.cdiv(count, launch["BM"]),)](
        x, w, y, count, *space,
        C=channels, COUT=width, BK=block, COLUMNS=columns, **launch,
    )  # fmt: skip
    return y


def convolve_weight(x: Tensor, dy: Tensor, **launch: Any) -> Tensor:
    """Return the gradient of the weight of ``convolve``, in float32."""
    x, dy = to_channels_last(x), to_channels_last(dy)
    (_, channels, *space), width = x.shape, dy.shape[1]
    count = x.numel() // channels
    block, columns = _columns(channels)
    splits, tiles = split(count, launch["BM"], PROGRAMS * block // columns)
    out = torch.empty((splits, columns, width), device=x.device)
    _weight_kernel[(splits, columns // block)](
        x, dy, out, count, *space, tiles,
        C=channels, COUT=width, BK=block, COLUMNS=columns, **launch,
    )  # fmt: skip
    return to_channels_last(out.sum(0)[: 27 * channels].view(3, 3, 3, channels, width).permute(4, 3, 0, 1, 2))


def halve(x: Tensor, weight: Tensor, **launch: Any) -> Tensor:
    """Compute a 2x2x2 convolution of stride 2; ``weight`` is ``(out, in, 2, 2, 2)``."""
    x = to_channels_last(x)
    batch, channels, *fine = x.shape
    space, width = [n // 2 for n in fine], weight.shape[0]
    count = batch * space[0] * space[1] * space[2]
    w = weight.permute(2, 3, 4, 1, 0).reshape(8 * channels, width).to(x.dtype).contiguous()
    y = empty_channels_last(x, (batch, width, *space))
    chosen = STRIDED_LAUNCH | {"BN": min(width, 64)} | launch
    _halve_kernel[(triton.cdiv(count, chosen["BM"]), width // chosen["BN"])](
        x, w, y, count, *space,
        C=channels, COUT=width, **chosen,
    )  # fmt: skip
    return y


def double(x: Tensor, weight: Tensor, **launch: Any) -> Tensor:
    """Compute a 2x2x2 transposed convolution of stride 2; ``weight`` is ``(in, out, 2, 2, 2)``."""
    x = to_channels_last(x)
    batch, channels, *space = x.shape
    width, count = weight.shape[1], x.numel() // channels
    w = weight.permute(0, 2, 3, 4, 1).reshape(channels, 8 * width).to(x.dtype).contiguous()
    y = empty_channels_last(x, (batch, width, *(2 * n for n in space)))
    chosen = STRIDED_LAUNCH | {"BK": min(channels, 64)} | launch
    _double_kernel[(triton.cdiv(count, chosen["BM"]), 4)](
        x, w, y, count, *space,
        C=channels, COUT=width, **chosen,
    )  # fmt: skip
    return y


def strided_weight(fine: Tensor, coarse: Tensor, **launch: Any) -> Tensor:
    """Return the float32 weight gradient ``(coarse channels, fine channels, 2, 2, 2)`` of ``halve`` and ``double``."""
    fine, coarse = to_channels_last(fine), to_channels_last(coarse)
    (_, fine_channels, *_), (_, coarse_channels, *space) = fine.shape, coarse.shape
    count = coarse.numel() // coarse_channels
    chosen = STRIDED_LAUNCH | {"BN": min(coarse_channels, 64)} | launch
    splits, tiles = split(count, chosen["BM"], PROGRAMS // 4)
    out = torch.empty((splits, 8 * fine_channels, coarse_channels), device=fine.device)
    _strided_weight_kernel[(splits, 4, coarse_channels // chosen["BN"])](
        fine, coarse, out, count, *space, tiles, CF=fine_channels, CC=coarse_channels, **chosen
    )  # fmt: skip
    return to_channels_last(out.sum(0).view(2, 2, 2, fine_channels, coarse_channels).permute(4, 3, 0, 1, 2))


def _columns(channels: int) -> tuple[int, int]:
    """Return the number of columns per block and in all blocks. At least one column after the last tap is unused."""
    block = min(MAX_BLOCK_COLUMNS, triton.next_power_of_2(27 * channels + 1))
    return block, triton.cdiv(27 * channels + 1, block) * block


def split(count: int, voxels: int, programs: int) -> tuple[int, int]:
    """Split ``count`` voxels into blocks of ``voxels``; return the numbers of programs and of blocks per program."""
    blocks = triton.cdiv(count, voxels)
    tiles = triton.cdiv(blocks, max(1, min(programs, blocks)))
    return triton.cdiv(blocks, tiles), tiles
