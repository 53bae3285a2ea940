# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
"""3x3x3 and 3x3 convolutions with few channels as Triton kernels that go through a volume plane by plane.

A program holds a tile of a plane and walks along the first axis. Of each plane it reads what the nine (or three) taps
within it need and adds to three results at once, those of the planes before, at and behind it: a voxel is read a third
as often as by a kernel that makes one result at a time, and the products are three times as wide. Three neighbours
along the last axis, with all their channels, are one run of channels-last memory.

A column of the accumulator belongs to one of the three results, by the number of its plane modulo three: nothing is
moved as the program goes on, only the weights take turns.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _row(x, sample, at, dy, p, yy, zz, X, Y, Z, P, C: tl.constexpr, W: tl.constexpr):
    """Three neighbours along the last axis in the row ``dy`` away, all channels: ``(BM, W)``, zero outside."""
    j = tl.arange(0, W)
    end = tl.where((at >= 0) & (at < X), P, 0)
    rows = (p < end) & (yy + dy >= 0) & (yy + dy < Y)
    low, high = (zz > 0)[:, None] | (j >= C)[None, :], (zz < Z - 1)[:, None] | (j < 2 * C)[None, :]
    inside = rows[:, None] & low & high & (j < 3 * C)[None, :]
    return tl.load(x + (((sample * X + at) * P + p + dy * Z - 1) * C)[:, None] + j[None, :], mask=inside, other=0.0)


@triton.jit
def _convolve_kernel(
    x, w, y, X, Y, Z, P, planes,
    C: tl.constexpr, COUT: tl.constexpr, W: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    yy, zz = p // Z, p % Z
    first, sample = tl.program_id(1) * planes, tl.program_id(2)
    j, column = tl.arange(0, W), tl.arange(0, N)
    block, co = column // COUT, column % COUT
    acc = tl.zeros((BM, N), dtype=tl.float32)
    for step in range(planes + 2):
        at = first - 1 + step
        # the tap that leads from the result of a column to this plane; a plane before the first counts as the last
        tap = (at + 4 - block) % 3
        for row in tl.static_range(ROWS):
            a = _row(x, sample, at, row - ROWS // 2, p, yy, zz, X, Y, Z, P, C, W)
            place = ((tap[None, :] * ROWS + row) * 3 * C + j[:, None]) * COUT + co[None, :]
            b = tl.load(w + place, mask=(j < 3 * C)[:, None] & (block < 3)[None, :], other=0.0)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
        done, whole = at - 1, block == (at + 2) % 3
        keep = (p < tl.where((done >= first) & (done < X), P, 0))[:, None] & whole[None, :]
        place = ((sample * X + done) * P + p)[:, None] * COUT + co[None, :]
        tl.store(y + place, acc.to(y.dtype.element_ty), mask=keep)
        acc = tl.where(whole[None, :], 0.0, acc)


@triton.jit
def _weight_kernel(
    x, dy, out, X, Y, Z, P, planes,
    C: tl.constexpr, COUT: tl.constexpr, W: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BM: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Each program sums over its tile and planes, for one row of taps; ``out`` is ``(programs, ROWS, W, N)``."""
    p = tl.program_id(0) * BM + tl.arange(0, BM)
    yy, zz = p // Z, p % Z
    chunks = tl.cdiv(X, planes)
    first, sample = tl.program_id(1) % chunks * planes, tl.program_id(1) // chunks
    row = tl.program_id(2)
    j, column = tl.arange(0, W), tl.arange(0, N)
    block, co = column // COUT, column % COUT
    acc = tl.zeros((W, N), dtype=tl.float32)
    for step in range(planes):
        at = first + step
        a = _row(x, sample, at, row - ROWS // 2, p, yy, zz, X, Y, Z, P, C, W)
        # a column of ones that nothing reads, which made the other kernel of this kind faster in float32
        a = tl.where((j == 3 * C)[None, :], 1.0, a).to(x.dtype.element_ty)
        result = at + 1 - block
        held = (block < 3) & (result >= 0) & (result < X)
        place = ((sample * X + result)[None, :] * P + p[:, None]) * COUT + co[None, :]
        g = tl.load(dy + place, mask=(p < tl.where(at < X, P, 0))[:, None] & held[None, :], other=0.0)
        acc = tl.dot(tl.trans(a), g, acc, input_precision=PRECISION)
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(out + ((program * ROWS + row) * W + j[:, None]) * N + column[None, :], acc)


def convolve(x: Tensor, weight: Tensor, *, planes: int, **launch: Any) -> Tensor:
    """Convolution with zeros around; ``weight`` is ``(out, in, 3, 3, 3)``, or ``(out, in, 3, 3)`` for images."""
    space, rows = _space(x)
    batch, channels, width = x.shape[0], x.shape[1], weight.shape[0]
    x = _last(x)
    w = weight.to(x.dtype).movedim(1, -1).movedim(0, -1).contiguous()
    y = torch.empty((batch, width, *x.shape[2:]), device=x.device, dtype=x.dtype, memory_format=_format(x))
    plane = space[1] * space[2]
    _convolve_kernel[(triton.cdiv(plane, launch["BM"]), triton.cdiv(space[0], planes), batch)](
        x, w, y, *space, plane, planes,
        C=channels, COUT=width, W=triton.next_power_of_2(3 * channels), N=triton.next_power_of_2(3 * width), ROWS=rows,
        PRECISION=_precision(), **launch,
    )  # fmt: skip
    return y


def convolve_weight(x: Tensor, dy: Tensor, *, planes: int, **launch: Any) -> Tensor:
    """The gradient of ``convolve``'s weight, in float32."""
    space, rows = _space(x)
    batch, channels, width = x.shape[0], x.shape[1], dy.shape[1]
    x, dy = _last(x), _last(dy)
    plane = space[1] * space[2]
    tiles, chunks = triton.cdiv(plane, launch["BM"]), batch * triton.cdiv(space[0], planes)
    wide, across = triton.next_power_of_2(3 * channels + 1), triton.next_power_of_2(3 * width)
    out = torch.empty((tiles * chunks, rows, wide, across), device=x.device)
    _weight_kernel[(tiles, chunks, rows)](
        x, dy, out, *space, plane, planes,
        C=channels, COUT=width, W=wide, N=across, ROWS=rows, PRECISION=_precision(), **launch,
    )  # fmt: skip
    summed = out.sum(0)[:, : 3 * channels, : 3 * width].view(rows, 3, channels, 3, width)
    dw = summed.permute(4, 2, 3, 0, 1) if x.dim() == 5 else summed[0].permute(3, 1, 2, 0)
    return dw.contiguous(memory_format=_format(x))


def _space(x: Tensor) -> tuple[list[int], int]:
    """Sizes of the walk, of the rows and of the runs, and the rows of taps: an image is a volume of one row."""
    if x.dim() == 5:
        return list(x.shape[2:]), 3
    return [x.shape[2], 1, x.shape[3]], 1


def _format(x: Tensor) -> torch.memory_format:
    return torch.channels_last_3d if x.dim() == 5 else torch.channels_last


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=_format(x))


def _precision() -> str:
    return "tf32" if torch.backends.cudnn.allow_tf32 else "ieee"
