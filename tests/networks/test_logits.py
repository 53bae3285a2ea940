"""The 2-D head compared with PyTorch in float64; our kernels run in Triton's interpreter."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from graftseg.networks import heads
from graftseg.networks.heads import Head2d
from loops import for_each

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# a GPU multiplies float32 in TF32, which has three significant digits
ROUNDING = 2e-3 if torch.cuda.is_available() else 1e-5
# the interpreter truncates where a GPU rounds
BF16 = 2**-7
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
sizes = st.integers(1, 9)


def operands(dtype: torch.dtype, channels: int, classes: int, space: tuple[int, int], batch: int = 2) -> list[Tensor]:
    """Return features, weight, bias and the gradient of the logits."""
    generator = torch.Generator().manual_seed(sum(space) + channels + classes)
    shapes = [(batch, channels, *space), (classes, channels, 3, 3), (classes,), (batch, classes, *space)]
    x, weight, bias, dy = (torch.randn(shape, generator=generator).to(DEVICE) for shape in shapes)
    return [x.to(dtype), weight / 12, bias, dy]


def assert_agrees(x: Tensor, weight: Tensor, bias: Tensor, dy: Tensor) -> None:
    """Compare logits and all gradients with float64, relative to the largest value."""
    arguments = [tensor.detach().requires_grad_() for tensor in (x, weight, bias)]
    exact_arguments = [tensor.detach().double().requires_grad_() for tensor in arguments]
    y = heads.logits(*arguments)
    expected = F.conv2d(exact_arguments[0], exact_arguments[1], exact_arguments[2], padding=1)
    assert y.dtype == torch.float32
    gradients = torch.autograd.grad(y, arguments, dy)
    exact_gradients = torch.autograd.grad(expected, exact_arguments, dy.double())
    for name, result, exact in zip(("y", "dx", "dw", "db"), (y, *gradients), (expected, *exact_gradients), strict=True):
        rounding = BF16 if result.dtype == torch.bfloat16 else ROUNDING
        assert result.shape == exact.shape
        assert (result.double() - exact).abs().max() / exact.abs().max() < rounding, name
    assert tuple(gradient.dtype for gradient in gradients) == (x.dtype, torch.float32, torch.float32)


@for_each("dtype", [torch.float32, torch.bfloat16])
@for_each("channels", [3, 16, 32])
@for_each("classes", [1, 2, 4, 9])
def test_logits_and_gradients_equal_a_convolution(dtype: torch.dtype, channels: int, classes: int) -> None:
    assert_agrees(*operands(dtype, channels, classes, (6, 11)))


@needs_triton
@settings(max_examples=15, deadline=None)
@given(space=st.tuples(sizes, sizes), classes=st.integers(1, 14), batch=st.integers(1, 3))
def test_kernels_for_images_of_any_size(space: tuple[int, int], classes: int, batch: int) -> None:
    assert_agrees(*operands(torch.float32, 16, classes, space, batch))


@needs_triton
@pytest.mark.parametrize("shares", [1, 3])
def test_several_programs_share_the_pixels(shares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from graftseg.networks import logits_triton

    monkeypatch.setattr(logits_triton, "PROGRAMS", shares)
    assert_agrees(*operands(torch.float32, 16, 4, (21, 13)))


LAYOUTS: list[Any] = [
    pytest.param(lambda tensor: tensor.contiguous(), id="planes"),
    pytest.param(lambda tensor: tensor.contiguous(memory_format=torch.channels_last), id="channels-last"),
    pytest.param(lambda tensor: tensor.transpose(2, 3).contiguous().transpose(2, 3), id="turned"),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@for_each(("classes", "space"), [(4, (5, 8)), (1, (5, 8)), (4, (1, 1))])
def test_memory_formats_give_equal_results(layout: Any, classes: int, space: tuple[int, int]) -> None:
    """Also with a strided bias; gradients have the strides that a compiled network expects."""
    x, weight, bias, dy = operands(torch.float32, 16, classes, space)
    x, weight, dy, bias = layout(x), layout(weight), layout(dy), bias.repeat_interleave(2)[::2]
    assert_agrees(x, weight, bias, dy)
    torch.library.opcheck(heads.logits, (x, weight, bias), test_utils="test_faketensor")
    torch.library.opcheck(heads.logits_gradients, (dy, x, weight), test_utils="test_faketensor")


def test_unsupported_images_use_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty image, and an image without a batch axis."""
    monkeypatch.setattr(heads, "accelerated", lambda images: True)
    monkeypatch.setattr(heads, "HAS_TRITON", True)
    head = Head2d(16, 4)
    assert head(torch.zeros(0, 16, 4, 4)).shape == (0, 4, 4, 4)
    assert head(torch.zeros(16, 4, 4)).shape == (4, 4, 4)
    assert heads.can_use_logits(torch.zeros(1, 16, 4, 4), head.weight)


@pytest.mark.parametrize("channels", [3, 16])
def test_fake_tensors_match_real_results(channels: int) -> None:
    """A compiled network relies on shapes, strides and dtypes."""
    x, weight, bias, dy = operands(torch.bfloat16, channels, 4, (4, 6))
    x, weight = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, weight))
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(heads.logits, (x.requires_grad_(), weight, bias), test_utils=checks)
    torch.library.opcheck(heads.logits_gradients, (dy, x.detach(), weight), test_utils=checks[:2])


def test_logits_without_tf32_use_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels use TF32."""
    monkeypatch.setattr(heads, "suits_kernels", lambda *arguments: True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    x, weight, bias, _ = operands(torch.bfloat16, 16, 4, (4, 6))
    torch.testing.assert_close(heads.logits(x, weight, bias), F.conv2d(x.float(), weight, bias, padding=1))


@pytest.mark.parametrize(
    ("channels", "classes", "uses_kernels"), [(16, 4, True), (64, 14, True), (128, 4, False), (16, 15, False)]
)
def test_head_uses_kernels_if_supported(
    channels: int, classes: int, uses_kernels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The layer returns the same with and without kernels."""
    used: list[Tensor] = []

    original = heads.logits

    def recorded(*arguments: Tensor) -> Tensor:
        used.extend(arguments)
        y: Tensor = original(*arguments)
        return y

    head, x = Head2d(channels, classes), torch.randn(1, channels, 4, 4, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        plain = head(x)
        monkeypatch.setattr(heads, "accelerated", lambda images: True)
        monkeypatch.setattr(heads, "HAS_TRITON", True)
        monkeypatch.setattr(heads, "_uses_triton", lambda images: False)
        monkeypatch.setattr(heads, "logits", recorded)
        ours = head(x)
    assert bool(used) == uses_kernels
    assert ours.dtype == plain.dtype == torch.float32
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)
