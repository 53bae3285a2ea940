"""Convolutions of the 3-D networks: PyTorch on a CPU, the faster of cuDNN and our kernels on a GPU.

Results are equal up to rounding. Volumes and weights stay in channels-last format, which ``torch.compile`` does not
preserve for PyTorch's 3-D convolutions. On a GPU, a bias before a norm gets no gradient: the norm subtracts the mean,
so the gradient is zero up to rounding.
"""

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.core.devices import has_triton
from graftseg.networks.acceleration import accelerated, tf32_allowed
from graftseg.networks.channels_last import empty_channels_last, to_channels_last

# Launch parameters of our kernels. A key is the precision and the number of channels of the volume that the kernel
# reads: the input, or for INPUT_GRADIENT_LAUNCHES the gradient of the output. Layers without an entry use cuDNN, which
# was faster on an H200. "BM" is the number of matrix rows per block. Entries with "planes" use convolution_pairs, where
# "planes" is the number of planes per program.
FORWARD_LAUNCHES: dict[tuple[torch.dtype, int], dict[str, int]] = {
    (torch.bfloat16, 1): {"BM": 256, "num_warps": 4, "num_stages": 2},
    (torch.bfloat16, 16): {"BM": 64, "num_warps": 4, "num_stages": 1, "planes": 28},
    (torch.float32, 1): {"BM": 256, "num_warps": 4, "num_stages": 4},
}
INPUT_GRADIENT_LAUNCHES: dict[tuple[torch.dtype, int], dict[str, int]] = {
    (torch.bfloat16, 16): {"BM": 64, "num_warps": 4, "num_stages": 1, "planes": 28},
    (torch.float32, 16): {"BM": 256, "num_warps": 8, "num_stages": 1, "planes": 14},
}
WEIGHT_GRADIENT_LAUNCHES: dict[tuple[torch.dtype, int], dict[str, int]] = {
    (torch.bfloat16, 1): {"BM": 128, "num_warps": 4, "num_stages": 3},
    (torch.bfloat16, 16): {"BM": 64, "num_warps": 4, "num_stages": 3, "planes": 56},
    (torch.bfloat16, 32): {"BM": 64, "num_warps": 8, "num_stages": 3, "planes": 56},
    (torch.float32, 1): {"BM": 256, "num_warps": 4, "num_stages": 2},
    (torch.float32, 16): {"BM": 64, "num_warps": 4, "num_stages": 1, "planes": 28},
    (torch.float32, 32): {"BM": 64, "num_warps": 4, "num_stages": 2},
}
MAX_FINE_CHANNELS = 32  # maximum channels of the finer volume for our 2x2x2 kernels (weight gradients: half)
MIN_CHANNELS = 16  # smallest size of Triton's matrix products
DTYPES = (torch.bfloat16, torch.float32)
HAS_TRITON = has_triton()
MAX_ELEMENTS = 2**31  # kernels index elements with 32 bits
MIN_CAPABILITY = (9, 0)  # the block sizes need the shared memory of a Hopper GPU


class Convolution3d(nn.Conv3d):
    """3x3x3 convolution with zero padding, for use before a norm."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, in, *space)`` to ``(B, out, *space)``."""
        if _has_wrong_cpu_gradient(x):
            with torch.autocast("cpu", enabled=False):
                return super().forward(x.to(self.weight.dtype))
        if _needs_onednn(x):
            return torch.mkldnn_convolution(x, self.weight, self.bias, (1, 1, 1), (1, 1, 1), (1, 1, 1), 1)
        voxels = x.numel() // self.in_channels
        if not _accelerated(x, voxels * max(self.in_channels, self.out_channels)):
            return super().forward(x)
        y = convolve(*_cast(x, self.weight))
        return _add_bias(y, self.bias)


class Halving3d(nn.Conv3d):
    """2x2x2 convolution of stride 2, for use before a norm."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 2, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, in, *space)`` to ``(B, out, *space / 2)``."""
        if not _accelerated(x, x.numel()) or any(size % 2 for size in x.shape[2:]):
            return super().forward(x)
        y: Tensor = halve(*_cast(x, self.weight))
        return _add_bias(y, self.bias)


class Doubling3d(nn.ConvTranspose3d):
    """2x2x2 transposed convolution of stride 2, for use before a norm."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(in_channels, out_channels, 2, stride=2)

    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:
        """Convert ``(B, in, *space)`` to ``(B, out, *space * 2)``."""
        if not _accelerated(x, x.numel() // self.in_channels * 8 * self.out_channels):
            return super().forward(x, output_size)
        y: Tensor = double(*_cast(x, self.weight))
        return _add_bias(y, self.bias)


def _accelerated(x: Tensor, elements: int) -> bool:
    """Return whether our kernels convolve ``x``. ``elements`` is the size of the larger of input and output."""
    return accelerated(x) and HAS_TRITON and elements < MAX_ELEMENTS


def _has_wrong_cpu_gradient(x: Tensor) -> bool:
    """Return whether a bug of oneDNN on a CPU would leave most of the weight gradient unset (PyTorch 2.13).

    The bug appears in bfloat16 if the first axis of the volume has two voxels. Only the coarsest level is so small, and
    float32 costs little there.
    """
    return x.device.type == "cpu" and x.shape[2] == 2 and torch.is_autocast_enabled("cpu")


def _needs_onednn(x: Tensor) -> bool:
    """Return whether PyTorch would convolve one small image without oneDNN, which is up to 17 times as slow.

    Gradients have the same problem, so this is only about predictions.
    """
    return (
        x.device.type == "cpu"
        and x.shape[0] == 1
        and x.dtype is torch.float32
        and not torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    )


def _cast(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Cast input and weight to the autocast precision, as PyTorch's convolutions do."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else weight.dtype
    return x.to(dtype), weight.to(dtype)


def _add_bias(y: Tensor, bias: Tensor | None) -> Tensor:
    """Add the bias without gradient; compiled code fuses this with the norm."""
    if bias is None:
        raise ValueError("a convolution before a norm needs a bias")
    return y + bias.detach().to(y.dtype).view(1, -1, 1, 1, 1)


@torch.library.custom_op("graftseg::convolve", mutates_args=())
def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """Compute a 3x3x3 convolution with zero padding."""
    launch = _launch(FORWARD_LAUNCHES, x, weight.shape[0])
    if launch:
        y: Tensor = _kernels(launch).convolve(x, weight, **launch)
        return y
    return to_channels_last(F.conv3d(to_channels_last(x), to_channels_last(weight), padding=1))


@torch.library.custom_op("graftseg::convolve_input", mutates_args=())
def convolve_input(dy: Tensor, weight: Tensor) -> Tensor:
    """Return the gradient of the input of ``convolve``: a convolution with flipped taps."""
    launch = _launch(INPUT_GRADIENT_LAUNCHES, dy, weight.shape[1])
    if launch:
        dx: Tensor = _kernels(launch).convolve(dy, weight.flip(2, 3, 4).transpose(0, 1), **launch)
        return dx
    return _gradient(
        dy, empty_channels_last(dy, (dy.shape[0], weight.shape[1], *dy.shape[2:])), weight, "input", stride=1
    )


@torch.library.custom_op("graftseg::convolve_weight", mutates_args=())
def convolve_weight(x: Tensor, dy: Tensor) -> Tensor:
    """Return the gradient of the weight of ``convolve``, in the precision of ``x``."""
    launch = _launch(WEIGHT_GRADIENT_LAUNCHES, x, dy.shape[1])
    if launch:
        dw: Tensor = _kernels(launch).convolve_weight(x, dy, **launch)
        return dw.to(x.dtype)
    return _gradient(dy, x, empty_channels_last(x, (dy.shape[1], x.shape[1], 3, 3, 3)), "weight", stride=1)


@torch.library.custom_op("graftseg::halve", mutates_args=())
def halve(x: Tensor, weight: Tensor) -> Tensor:
    """Compute a 2x2x2 convolution of stride 2; ``weight`` is ``(coarse channels, fine channels, 2, 2, 2)``."""
    if weight.shape[1] <= MAX_FINE_CHANNELS and suits_kernels(x, *weight.shape[:2]):
        y: Tensor = _kernels().halve(x, weight)
        return y
    return to_channels_last(F.conv3d(to_channels_last(x), to_channels_last(weight), stride=2))


@torch.library.custom_op("graftseg::double", mutates_args=())
def double(x: Tensor, weight: Tensor) -> Tensor:
    """Compute a 2x2x2 transposed convolution of stride 2; the axes of ``weight`` are as in ``halve``."""
    if weight.shape[1] <= MAX_FINE_CHANNELS and suits_kernels(x, *weight.shape[:2]):
        y: Tensor = _kernels().double(x, weight)
        return y
    return to_channels_last(F.conv_transpose3d(to_channels_last(x), to_channels_last(weight), stride=2))


@torch.library.custom_op("graftseg::strided_weight", mutates_args=())
def strided_weight(fine: Tensor, coarse: Tensor) -> Tensor:
    """Return the gradient of the weight of ``halve`` and ``double``, in the precision of ``fine``."""
    fine_channels, coarse_channels = fine.shape[1], coarse.shape[1]
    if fine_channels <= MAX_FINE_CHANNELS // 2 and suits_kernels(fine, fine_channels, coarse_channels):
        dw: Tensor = _kernels().strided_weight(fine, coarse)
        return dw.to(fine.dtype)
    return _gradient(
        coarse, fine, empty_channels_last(fine, (coarse_channels, fine_channels, 2, 2, 2)), "weight", stride=2
    )


def _gradient(dy: Tensor, x: Tensor, weight: Tensor, of: str, *, stride: int) -> Tensor:
    """Return cuDNN's gradient ``of`` the ``input`` (x) or the ``weight``, whose own values are not used."""
    gradients = torch.ops.aten.convolution_backward(
        to_channels_last(dy), to_channels_last(x), to_channels_last(weight), None,
        [stride] * 3, [2 - stride] * 3, [1] * 3, False, [0] * 3, 1, [of == "input", of == "weight", False],
    )  # fmt: skip
    return to_channels_last(gradients[0] if of == "input" else gradients[1])


def _launch(table: dict[tuple[torch.dtype, int], dict[str, int]], x: Tensor, out: int) -> dict[str, int] | None:
    """Return launch parameters of our kernels, or None to use cuDNN."""
    launch = table.get((x.dtype, x.shape[1]))
    # the kernels of convolution_pairs process pairs along the last axis, whose size must therefore be even
    if launch is None or not suits_kernels(x, out) or ("planes" in launch and x.shape[-1] % 2):
        return None
    return launch


def suits_kernels(x: Tensor, *channels: int) -> bool:
    """Return whether our kernels support the GPU, the precision and the channels.

    Sizes of Triton's matrix products must be powers of two and at least 16. In float32, TF32 must be allowed.
    """
    exact = x.dtype == torch.float32 and not tf32_allowed()
    fits = (
        x.dtype in DTYPES
        and not exact
        and all(count >= MIN_CHANNELS and count & (count - 1) == 0 for count in channels)
    )
    return fits and (not x.is_cuda or _capability(x.get_device()) >= MIN_CAPABILITY)


@cache
def _capability(device: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


def _kernels(launch: Mapping[str, int] = MappingProxyType({})) -> Any:
    if "planes" in launch:
        from graftseg.networks import convolution_pairs

        return convolution_pairs
    from graftseg.networks import convolution_triton

    return convolution_triton


convolve.register_fake(lambda x, weight: empty_channels_last(x, (x.shape[0], weight.shape[0], *x.shape[2:])))
convolve_input.register_fake(lambda dy, weight: empty_channels_last(dy, (dy.shape[0], weight.shape[1], *dy.shape[2:])))
convolve_weight.register_fake(lambda x, dy: empty_channels_last(x, (dy.shape[1], x.shape[1], 3, 3, 3)))
halve.register_fake(
    lambda x, weight: empty_channels_last(x, (x.shape[0], weight.shape[0], *(n // 2 for n in x.shape[2:])))
)
double.register_fake(
    lambda x, weight: empty_channels_last(x, (x.shape[0], weight.shape[1], *(n * 2 for n in x.shape[2:])))
)
strided_weight.register_fake(lambda fine, coarse: empty_channels_last(fine, (coarse.shape[1], fine.shape[1], 2, 2, 2)))


def save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    """Save the first two inputs of an operator for its backward pass."""
    ctx.save_for_backward(inputs[0], inputs[1])


def _backward(
    of_input: Callable[[Tensor, Tensor], Tensor], of_weight: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[Any, Tensor], tuple[Tensor | None, Tensor]]:
    """Return a backward pass from the gradients ``of_input(dy, weight)`` and ``of_weight(x, dy)``."""

    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors
        return of_input(dy, weight) if ctx.needs_input_grad[0] else None, of_weight(x, dy)

    return backward


convolve.register_autograd(_backward(convolve_input, convolve_weight), setup_context=save_inputs)
halve.register_autograd(_backward(double, strided_weight), setup_context=save_inputs)
double.register_autograd(_backward(halve, lambda x, dy: strided_weight(dy, x)), setup_context=save_inputs)
