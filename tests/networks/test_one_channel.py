"""The convolution of one-channel images as a sum of shifted images, compared with PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graftseg.networks import unet
from graftseg.networks.layers import convolve_one_channel, prefers_convolve_one_channel
from graftseg.networks.unet import Convolution2d


def operands(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(2, 1, 5, 7), torch.randn(3, 1, 3, 3), torch.randn(3)
    return x.to(dtype), weight.to(dtype).requires_grad_(), bias.to(dtype)


def test_one_channel_values_and_gradients_equal_a_convolution() -> None:
    x, weight, bias = operands(torch.float64)
    upstream = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    ours, theirs = convolve_one_channel(x, weight, bias, torch.float64), F.conv2d(x, weight, bias, padding=1)
    torch.testing.assert_close(ours, theirs)
    (a,), (b,) = (torch.autograd.grad((y * upstream).sum(), weight) for y in (ours, theirs))
    torch.testing.assert_close(a, b)


def test_result_is_channels_last_and_rounded_once() -> None:
    x, weight, bias = operands(torch.float32)
    y = convolve_one_channel(x, weight, bias, torch.bfloat16)
    assert y.dtype == torch.bfloat16
    assert y.is_contiguous(memory_format=torch.channels_last)
    exact = F.conv2d(x.bfloat16().double(), weight.bfloat16().double(), bias.double(), padding=1)
    torch.testing.assert_close(y.double(), exact, rtol=2**-8, atol=1e-5)


def test_written_out_only_if_compiled_in_reduced_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, _ = operands(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert not prefers_convolve_one_channel(x)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        assert prefers_convolve_one_channel(x)
        assert not prefers_convolve_one_channel(x.expand(-1, 2, -1, -1))
    assert not prefers_convolve_one_channel(x)


@pytest.mark.slow
def test_compiled_layer_equals_uncompiled_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unet, "accelerated", lambda x: True)
    used: list[torch.dtype] = []

    def recording(x: Tensor, weight: Tensor, bias: Tensor, dtype: torch.dtype) -> Tensor:
        used.append(dtype)
        return convolve_one_channel(x, weight, bias, dtype)

    monkeypatch.setattr(unet, "convolve_one_channel", recording)
    x, _, _ = operands(torch.float32)
    layer = Convolution2d(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        compiled, plain = torch.compile(layer, backend="eager")(x), layer(x)
    assert used == [torch.bfloat16]
    assert compiled.dtype == plain.dtype == torch.bfloat16
    torch.testing.assert_close(compiled, plain, rtol=2**-7, atol=1e-2)
