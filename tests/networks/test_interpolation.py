"""Interpolation by matrix products compared with PyTorch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from graftseg.networks.interpolation import Interpolation3d, upsample_3d_by_matmul


@given(st.tuples(*[st.integers(1, 4)] * 5), st.sampled_from([2, 4]), st.booleans())
@settings(deadline=None, max_examples=50)
def test_matmul_equals_pytorch_trilinear_interpolation(
    shape: tuple[int, int, int, int, int], factor: int, align_corners: bool
) -> None:
    """Values and gradients, up to float32 rounding of the matrices."""
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(shape, generator=generator).double().requires_grad_()
    upstream = torch.randn(*shape[:2], *(factor * size for size in shape[2:]), generator=generator).double()
    results = (
        upsample_3d_by_matmul(x, factor, align_corners=align_corners),
        F.interpolate(x, scale_factor=float(factor), mode="trilinear", align_corners=align_corners),
    )
    pairs = [(result, *torch.autograd.grad(result, x, upstream)) for result in results]
    for ours, theirs in zip(*pairs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("align_corners", "expected"),
    [(True, [0.0, 1.0, 2.0, 3.0]), (False, [0.0, 0.75, 2.25, 3.0])],
)
def test_a_line_by_hand(align_corners: bool, expected: list[float]) -> None:
    line = torch.tensor([0.0, 3.0]).view(1, 1, 1, 1, 2)
    for larger in (
        Interpolation3d(align_corners=align_corners)(line),
        upsample_3d_by_matmul(line, 2, align_corners=align_corners),
    ):
        assert larger.shape == (1, 1, 2, 2, 4)
        torch.testing.assert_close(larger, torch.tensor(expected).expand(1, 1, 2, 2, 4))


def test_matmul_keeps_channels_last_and_precision() -> None:
    x = torch.randn(2, 3, 4, 5, 6).contiguous(memory_format=torch.channels_last_3d)
    assert upsample_3d_by_matmul(x, 2, align_corners=True).is_contiguous(memory_format=torch.channels_last_3d)
    assert upsample_3d_by_matmul(x.bfloat16(), 2, align_corners=False).dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_does_not_change_the_precision_of_a_volume(dtype: torch.dtype) -> None:
    """Small differences between the logits of a pyramid must not be rounded away."""
    x = torch.randn(1, 2, 4, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = upsample_3d_by_matmul(x, 8, align_corners=False)
    with torch.autocast("cpu", torch.bfloat16):
        result = upsample_3d_by_matmul(x, 8, align_corners=False)
    assert result.dtype == dtype and torch.equal(result, expected)
