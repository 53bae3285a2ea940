# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-decorators=False
"""3x3 convolution of images to a few classes, forward and all gradients, as Triton kernels.

Images are channels-last: the channels of a pixel are contiguous. In the forward kernel, each of the nine taps is a
matrix product of pixels x channels with channels x classes. The backward kernel reads a matrix G from the gradient of
the logits: rows are pixels, columns are pairs of tap and class. G times the weights is the gradient of the features.
The transposed features times G is the gradient of the weights. Block sizes were tuned on an H200.

Arguments of the kernels:

- ``M``: number of pixels of the batch.
- ``H, W``: height and width of an image.
- ``C``: channels of the features.
- ``K``, ``KP``: number of classes, and this number padded for a matrix product.
- ``COLUMNS``: padded number of pairs of tap and class.
- ``BM``: pixels per block.
- ``tiles``: number of pixel blocks per program.
- ``wk, wc, wt``: strides of the weight between classes, channels and taps.
- ``dk, dp``: strides of the gradient of the logits between classes and pixels.
- ``di``: offset to add for each earlier image, because pixels are numbered across images.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from graftseg.networks.convolution_triton import PROGRAMS, split

FORWARD_LAUNCH = {"BM": 128, "num_warps": 4, "num_stages": 3}  # "BM" is the number of pixels per block
BACKWARD_LAUNCH = {"BM": 64, "num_warps": 4, "num_stages": 1}
MIN_DOT_SIZE = 16  # smallest size of Triton's matrix products


@triton.jit
def _logits_kernel(
    x, w, bias, y, M, H, W, wk, wc, wt,
    C: tl.constexpr, K: tl.constexpr, KP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Compute the logits of one block of pixels."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    column, row = m % W, (m // W) % H
    c, k = tl.arange(0, C), tl.arange(0, KP)
    acc = tl.zeros((BM, KP), dtype=tl.float32) + tl.load(bias + k, mask=k < K, other=0.0)[None, :]
    for tap in tl.static_range(9):
        dr, dc = tap // 3 - 1, tap % 3 - 1
        inside = (row + dr >= 0) & (row + dr < H) & (column + dc >= 0) & (column + dc < W) & (m < M)
        offset = (m + dr * W + dc)[:, None] * C + c[None, :]
        a = tl.load(x + offset, mask=inside[:, None], other=0.0).to(tl.float32)
        b = tl.load(w + k[None, :] * wk + c[:, None] * wc + tap * wt, mask=(k < K)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="tf32")
    tl.store(y + m[:, None] * K + k[None, :], acc, mask=(m < M)[:, None] & (k < K)[None, :])


@triton.jit
def _gradients_kernel(
    dy, x, w, dx, sums, M, H, W, tiles, wk, wc, wt, dk, dp, di,
    C: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Compute gradients for a part of the pixels. ``g`` is the part of G for these pixels."""
    kk, c = tl.arange(0, COLUMNS), tl.arange(0, C)
    tap, k = kk // K, kk % K
    dr, dc = tap // 3 - 1, tap % 3 - 1
    b = tl.load(w + k[:, None] * wk + c[None, :] * wc + tap[:, None] * wt, mask=(tap < 9)[:, None], other=0.0)
    acc, total = tl.zeros((C, COLUMNS), dtype=tl.float32), tl.zeros((COLUMNS,), dtype=tl.float32)
    begin = tl.program_id(0) * tiles
    for tile in range(begin, begin + tiles):
        m = tile * BM + tl.arange(0, BM)
        column, row, image = m % W, (m // W) % H, m // (W * H)
        pr, pc = row[:, None] - dr[None, :], column[:, None] - dc[None, :]
        inside = (pr >= 0) & (pr < H) & (pc >= 0) & (pc < W) & (tap < 9)[None, :] & (m < M)[:, None]
        offset = (m * dp + image * di)[:, None] + (k * dk - (dr * W + dc) * dp)[None, :]
        g = tl.load(dy + offset, mask=inside, other=0.0)
        feature_offset = m[:, None] * C + c[None, :]
        a = tl.load(x + feature_offset, mask=(m < M)[:, None], other=0.0).to(tl.float32)
        d = tl.dot(g, b, input_precision="tf32")
        tl.store(dx + feature_offset, d.to(dx.dtype.element_ty), mask=(m < M)[:, None])
        acc = tl.dot(tl.trans(a), g, acc, input_precision="tf32")
        total += tl.sum(g, 0)
    rows = sums + tl.program_id(0) * (C + 1) * COLUMNS
    tl.store(rows + c[:, None] * COLUMNS + kk[None, :], acc)  # rows 0 to C - 1: the weight gradient
    tl.store(rows + C * COLUMNS + kk, total)  # row C: sums of g; its columns for the center tap are the bias gradient


def logits(x: Tensor, weight: Tensor, bias: Tensor, **launch: Any) -> Tensor:
    """Convert ``(B, C, H, W)`` to channels-last float32 ``(B, K, H, W)`` by a weight ``(K, C, 3, 3)`` for K classes."""
    x, (weight, weight_strides) = x.contiguous(memory_format=torch.channels_last), _with_strides(weight)
    (batch, channels, height, width), classes = x.shape, weight.shape[0]
    shape, count = (batch, classes, height, width), batch * height * width
    y = torch.empty(shape, device=x.device, dtype=torch.float32, memory_format=torch.channels_last)
    chosen = FORWARD_LAUNCH | launch
    padded = max(MIN_DOT_SIZE, triton.next_power_of_2(classes))
    _logits_kernel[(triton.cdiv(count, chosen["BM"]),)](
        x, weight, bias.contiguous(), y, count, height, width, *weight_strides,
        C=channels, K=classes, KP=padded, **chosen,
    )  # fmt: skip
    return y


def logits_gradients(dy: Tensor, x: Tensor, weight: Tensor, **launch: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of features (in their precision), weight and bias."""
    dw = torch.empty_like(weight)
    x, (weight, weight_strides) = x.contiguous(memory_format=torch.channels_last), _with_strides(weight)
    (batch, channels, height, width), classes = x.shape, weight.shape[0]
    pixels, count = height * width, batch * height * width
    if not dy.is_contiguous():
        dy = dy.contiguous(memory_format=torch.channels_last)
    dy_strides = (pixels, 1, (classes - 1) * pixels) if dy.is_contiguous() else (1, classes, 0)
    dx, chosen = torch.empty_like(x), BACKWARD_LAUNCH | launch
    columns = max(MIN_DOT_SIZE, triton.next_power_of_2(9 * classes))
    splits, tiles = split(count, chosen["BM"], PROGRAMS)
    sums = torch.empty((splits, channels + 1, columns), device=x.device)
    _gradients_kernel[(splits,)](
        dy, x, weight, dx, sums, count, height, width, tiles, *weight_strides, *dy_strides,
        C=channels, K=classes, COLUMNS=columns, **chosen,
    )  # fmt: skip
    totals = sums.sum(0)[:, : 9 * classes].view(channels + 1, 3, 3, classes)
    return dx, dw.copy_(totals[:-1].permute(3, 0, 1, 2)), totals[-1, 1, 1].clone()


def _with_strides(weight: Tensor) -> tuple[Tensor, tuple[int, int, int]]:
    """Return the weight and its strides between classes, channels and taps.

    The nine taps are equally spaced in contiguous and in channels-last memory. A weight of another format is copied.
    """
    if weight.stride(2) != 3 * weight.stride(3):
        weight = weight.contiguous()
    return weight, (weight.stride(0), weight.stride(1), weight.stride(3))
