"""Networks for prediction only: batch norms become part of the convolutions, and a CPU runs fused layers.

In eval mode, a batch norm multiplies each channel by a constant and adds a constant. The two constants are folded into
the weights and the bias of the previous convolution. On a CPU, oneDNN then computes convolution, bias and ReLU in one
pass over the memory. Results are equal up to rounding. The layers have no gradients.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from graftseg.networks.heads import Head2d, Head3d

CONVOLUTIONS = (nn.Conv2d, nn.Conv3d)
FOLDABLE = (*CONVOLUTIONS, nn.ConvTranspose2d, nn.ConvTranspose3d)


def fuse(network: nn.Module) -> None:
    """Fuse the layers of a network in eval mode, in place. Sequences of other layers are unchanged."""
    for part in list(network.modules()):
        if isinstance(part, nn.Sequential):
            _fold_batch_norms(part)
    if next(network.parameters()).device.type == "cpu" and has_fused_convolution():
        _fuse_convolutions(network)


def has_fused_convolution() -> bool:
    """Return whether this build of PyTorch has oneDNN's fused convolution."""
    has_onednn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return has_onednn and hasattr(torch.ops.mkldnn, "_convolution_pointwise")


class FusedConvolution(nn.Module):
    """A convolution and an optional ReLU or leaky ReLU by oneDNN. Without ``dtype``, autocast decides the precision."""

    def __init__(self, convolution: nn.Conv2d | nn.Conv3d, activation: nn.Module, dtype: torch.dtype | None) -> None:
        super().__init__()
        layout = torch.channels_last if isinstance(convolution, nn.Conv2d) else torch.channels_last_3d
        self.weight = nn.Parameter(convolution.weight.detach().contiguous(memory_format=layout), requires_grad=False)
        self.bias = convolution.bias
        self.layout, self.dtype = layout, dtype
        self.geometry = (convolution.padding, convolution.stride, convolution.dilation, convolution.groups)
        self.activation: tuple[str, list[float]] = ("none", [])
        if isinstance(activation, nn.ReLU):
            self.activation = ("relu", [])
        elif isinstance(activation, nn.LeakyReLU):
            self.activation = ("leaky_relu", [activation.negative_slope])
        self._cast: dict[torch.dtype, tuple[Tensor, Tensor | None]] = {}

    def forward(self, x: Tensor) -> Tensor:
        """Convert ``(B, in, *space)`` to ``(B, out, *space)`` in channels-last format."""
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else self.weight.dtype
        weight, bias = self._parameters_in(self.dtype or dtype)
        x = x.to(weight.dtype, memory_format=self.layout)
        y: Tensor = torch.ops.mkldnn._convolution_pointwise(x, weight, bias, *self.geometry, *self.activation, "")
        return y

    def _parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        if dtype not in self._cast:
            self._cast[dtype] = (self.weight.to(dtype), None if self.bias is None else self.bias.detach().to(dtype))
        return self._cast[dtype]


def _fold_batch_norms(sequence: nn.Sequential) -> None:
    for index in range(1, len(sequence)):
        convolution, norm = sequence[index - 1], sequence[index]
        if isinstance(convolution, FOLDABLE) and isinstance(norm, _BatchNorm) and norm.running_var is not None:
            _fold(convolution, norm)
            sequence[index] = nn.Identity()


@torch.no_grad()
def _fold(convolution: _ConvNd, norm: _BatchNorm) -> None:
    """Change weights and bias of a convolution so that it includes the batch norm. Compute in float64."""
    assert norm.running_mean is not None and norm.running_var is not None
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    scale = scale if norm.weight is None else scale * norm.weight.double()
    shift = -norm.running_mean.double() if convolution.bias is None else convolution.bias - norm.running_mean.double()
    bias = shift * scale if norm.bias is None else shift * scale + norm.bias.double()
    axis = 1 if convolution.transposed else 0
    shape = [-1 if dim == axis else 1 for dim in range(convolution.weight.dim())]
    convolution.weight.copy_(convolution.weight * scale.view(shape))
    convolution.bias = nn.Parameter(bias.to(convolution.weight.dtype), requires_grad=False)


def _fuse_convolutions(module: nn.Module) -> None:
    """Replace convolutions by fused convolutions, with the activation that follows in a sequence."""
    layers = list(module.named_children())
    for name, layer in layers:
        if isinstance(layer, (Head2d, Head3d)):
            setattr(module, name, FusedConvolution(layer, nn.Identity(), layer.weight.dtype))
        elif not isinstance(layer, CONVOLUTIONS):
            _fuse_convolutions(layer)
        elif isinstance(layer.padding, tuple) and layer.padding_mode == "zeros":
            activation_name = _next_activation(layers, name) if isinstance(module, nn.Sequential) else None
            activation = nn.Identity() if activation_name is None else dict(layers)[activation_name]
            setattr(module, name, FusedConvolution(layer, activation, None))
            if activation_name is not None:
                setattr(module, activation_name, nn.Identity())


def _next_activation(layers: list[tuple[str, nn.Module]], name: str) -> str | None:
    """Return the name of the activation that follows a layer, or None if another layer comes first."""
    names = [layer_name for layer_name, _ in layers]
    for next_name, layer in layers[names.index(name) + 1 :]:
        if isinstance(layer, nn.ReLU | nn.LeakyReLU):
            return next_name
        if not isinstance(layer, nn.Identity):
            return None
    return None
