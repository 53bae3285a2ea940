"""3-D convolutions compared with PyTorch in float64; our kernels run in Triton's interpreter."""

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from graftseg.networks import convolution
from graftseg.networks.convolution import Convolution3d, Doubling3d, Halving3d
from graftseg.networks.layers import Norm
from graftseg.networks.vnet import VNet
from loops import for_each

# Triton's interpreter multiplies matrices of bfloat16 as if they were integers
needs_gpu = (pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"))
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# a GPU multiplies float32 in TF32, which has three significant digits
ROUNDING = 2e-3 if torch.cuda.is_available() else 1e-5
TOLERANCE = {torch.float32: ROUNDING, torch.bfloat16: 1e-2, torch.float64: 1e-12}
OPERATIONS: dict[str, tuple[Any, Callable[[Tensor, Tensor], Tensor]]] = {
    "convolve": (convolution.convolve, lambda x, w: F.conv3d(x, w, padding=1)),
    "halve": (convolution.halve, lambda x, w: F.conv3d(x, w, stride=2)),
    "double": (convolution.double, lambda x, w: F.conv_transpose3d(x, w, stride=2)),
}
Shape = tuple[int, int, int]


def inputs(name: str, dtype: torch.dtype, channels: tuple[int, int], space: Shape, batch: int = 2) -> list[Tensor]:
    """Return image and weight of an operation with ``space`` voxels on its coarse side."""
    generator = torch.Generator().manual_seed(sum(space) + channels[0])
    entry, out = channels
    size = 3 if name == "convolve" else 2
    shape = (entry, out) if name == "double" else (out, entry)
    fine = [2 * n for n in space] if name == "halve" else space
    shapes = [(batch, entry, *fine), (*shape, *[size] * 3)]
    # scaled as in a network, so that results are about 1
    scales = [1.0, (entry * (size**3 if name != "double" else 1)) ** -0.5]
    drawn = [s * torch.randn(shape, generator=generator) for s, shape in zip(scales, shapes, strict=True)]
    return [tensor.to(DEVICE, dtype) for tensor in drawn]


def assert_close(result: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    """Compare relative to the largest value, since sums of many products differ by that much."""
    assert result.dtype == dtype and result.shape == expected.shape
    error = (result.double() - expected).abs().max() / expected.abs().max()
    assert error < TOLERANCE[dtype]


def assert_agrees(name: str, dtype: torch.dtype, channels: tuple[int, int], space: Shape, batch: int = 2) -> None:
    """Compare result and gradients with float64."""
    operation, oracle = OPERATIONS[name]
    arguments = [tensor.requires_grad_() for tensor in inputs(name, dtype, channels, space, batch)]
    exact_arguments = [tensor.detach().double().requires_grad_() for tensor in arguments]
    result, expected = operation(*arguments), oracle(*exact_arguments)
    assert_close(result, expected, dtype)
    assert result.is_contiguous(memory_format=torch.channels_last_3d)
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE, dtype)
    gradients = torch.autograd.grad(result, arguments, upstream)
    exact_gradients = torch.autograd.grad(expected, exact_arguments, upstream.double())
    for gradient, exact_gradient in zip(gradients, exact_gradients, strict=True):
        assert_close(gradient, exact_gradient, dtype)


def kernels_used(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that records the names of called kernels."""
    used: list[str] = []
    original = convolution._kernels

    class RecordingKernels:
        def __init__(self, *launch: Any) -> None:
            self.kernels = original(*launch)

        def __getattr__(self, name: str) -> Any:
            used.append(name)
            return getattr(self.kernels, name)

    monkeypatch.setattr(convolution, "_kernels", RecordingKernels)
    return used


KERNELS = [
    ("convolve", torch.float32, (1, 16), ["convolve", "convolve_weight"]),
    ("convolve", torch.float32, (16, 16), ["convolve", "convolve_weight"]),
    ("convolve", torch.float32, (32, 16), ["convolve", "convolve_weight"]),
    ("convolve", torch.float32, (32, 32), ["convolve_weight"]),
    pytest.param("convolve", torch.bfloat16, (1, 16), ["convolve", "convolve_weight"], marks=needs_gpu),
    pytest.param("convolve", torch.bfloat16, (16, 16), ["convolve", "convolve", "convolve_weight"], marks=needs_gpu),
    pytest.param("convolve", torch.bfloat16, (32, 32), ["convolve_weight"], marks=needs_gpu),
    ("halve", torch.float32, (16, 32), ["halve", "double", "strided_weight"]),
    ("halve", torch.float32, (32, 64), ["halve", "double"]),
    pytest.param("halve", torch.bfloat16, (16, 32), ["halve", "double", "strided_weight"], marks=needs_gpu),
    ("double", torch.float32, (32, 16), ["double", "halve", "strided_weight"]),
    ("double", torch.float32, (128, 32), ["double", "halve"]),
    pytest.param("double", torch.bfloat16, (32, 16), ["double", "halve", "strided_weight"], marks=needs_gpu),
]


@needs_triton
@pytest.mark.parametrize(("name", "dtype", "channels", "used"), KERNELS)
def test_kernels(
    name: str, dtype: torch.dtype, channels: tuple[int, int], used: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = kernels_used(monkeypatch)
    assert_agrees(name, dtype, channels, (3, 2, 4))
    assert recorded == used


@needs_triton
def test_pair_kernels_need_an_even_last_size(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = kernels_used(monkeypatch)
    assert_agrees("convolve", torch.float32, (16, 16), (4, 4, 3))
    assert not recorded


def launch_tables() -> tuple[dict[tuple[torch.dtype, int], dict[str, int]], ...]:
    return (
        convolution.FORWARD_LAUNCHES,
        convolution.INPUT_GRADIENT_LAUNCHES,
        convolution.WEIGHT_GRADIENT_LAUNCHES,
    )


@needs_triton
def test_pair_kernels_across_tiles_and_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    for table in launch_tables():
        launch = {"BM": 16, "num_warps": 4, "num_stages": 1, "planes": 2}
        monkeypatch.setitem(table, (torch.float32, 16), launch)
    assert_agrees("convolve", torch.float32, (16, 16), (5, 7, 6))


@needs_triton
@given(
    st.sampled_from([("convolve", (1, 16)), ("convolve", (16, 16)), ("halve", (16, 32)), ("double", (32, 16))]),
    st.tuples(*[st.integers(1, 5)] * 3),
    st.integers(1, 3),
)
@settings(deadline=None, max_examples=12)
def test_kernels_for_any_size(kind: tuple[str, tuple[int, int]], space: Shape, batch: int) -> None:
    name, channels = kind
    assert_agrees(name, torch.float32, channels, space, batch)


@pytest.mark.parametrize("name", OPERATIONS)
def test_unsupported_channels_use_pytorch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton's matrix products need powers of two; a network may have any width."""
    used = kernels_used(monkeypatch)
    for channels in [(3, 5), (4, 2), (8, 16), (1, 24), (16, 24), (24, 48), (48, 24)]:
        for dtype in (torch.float32, torch.float64):
            assert_agrees(name, dtype, channels, (3, 2, 5))
    assert not used


def test_float32_without_tf32_uses_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our kernels use TF32, which a user may have disabled."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    used = kernels_used(monkeypatch)
    for name, channels in (("convolve", (16, 16)), ("halve", (16, 32)), ("double", (32, 16))):
        assert_agrees(name, torch.float32, channels, (2, 2, 4))
    assert not used


@for_each("axis", range(3))
@for_each("size", [1, 2, 3])
def test_bfloat16_weight_gradients_on_a_cpu_are_complete(axis: int, size: int) -> None:
    """oneDNN leaves most of the weight gradient unset if the first axis has two voxels."""
    space = [3, 3, 3]
    space[axis] = size
    torch.manual_seed(0)
    layer, x, upstream = Convolution3d(16, 16), torch.randn(2, 16, *space), torch.randn(2, 16, *space)
    (expected,) = torch.autograd.grad((layer(x) * upstream).sum(), layer.weight)
    for _ in range(3):
        # an unset gradient would contain the memory that was freed last
        torch.full_like(layer.weight, 1e30)
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        (gradient,) = torch.autograd.grad((y * upstream).sum(), layer.weight)
        torch.testing.assert_close(gradient, expected, rtol=0.05, atol=0.05 * expected.abs().max().item())


def test_float64_uses_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    used = kernels_used(monkeypatch)
    for name, channels in (("convolve", (1, 16)), ("halve", (16, 32)), ("double", (32, 16))):
        assert_agrees(name, torch.float64, channels, (2, 2, 3))
    assert not used


def test_launch_tables_contain_only_supported_channels() -> None:
    for table in launch_tables():
        assert table
        for (dtype, channels), launch in table.items():
            assert dtype in convolution.DTYPES
            assert channels & (channels - 1) == 0
            assert launch.keys() - {"planes"} == {"BM", "num_warps", "num_stages"}
            assert "planes" not in launch or channels >= convolution.MIN_CHANNELS
            assert all(launch[key] & (launch[key] - 1) == 0 for key in ("BM", "num_warps"))
    assert convolution.MIN_CHANNELS <= convolution.MAX_FINE_CHANNELS // 2


SMALL = [("convolve", (2, 3)), ("halve", (2, 4)), ("double", (4, 2))]


@pytest.mark.parametrize(("name", "channels"), SMALL)
def test_operators_have_a_schema_and_shapes(name: str, channels: tuple[int, int]) -> None:
    arguments = [tensor.requires_grad_() for tensor in inputs(name, torch.float32, channels, (2, 3, 2))]
    utilities = ("test_schema", "test_faketensor")
    outcome = torch.library.opcheck(OPERATIONS[name][0], tuple(arguments), test_utils=utilities)
    assert set(outcome.values()) == {"SUCCESS"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "channels"), SMALL)
def test_operators_pass_opcheck(name: str, channels: tuple[int, int]) -> None:
    arguments = [tensor.requires_grad_() for tensor in inputs(name, torch.float32, channels, (2, 3, 2))]
    assert set(torch.library.opcheck(OPERATIONS[name][0], tuple(arguments)).values()) == {"SUCCESS"}


@needs_triton
@pytest.mark.parametrize(("name", "channels"), [("convolve", (16, 16)), ("halve", (16, 32)), ("double", (32, 16))])
def test_operators_with_kernels_pass_opcheck(name: str, channels: tuple[int, int]) -> None:
    arguments = [tensor.requires_grad_() for tensor in inputs(name, torch.float32, channels, (2, 3, 2))]
    assert set(torch.library.opcheck(OPERATIONS[name][0], tuple(arguments)).values()) == {"SUCCESS"}


@pytest.mark.parametrize("name", ["convolve_input", "convolve_weight", "strided_weight"])
def test_gradient_operators_pass_opcheck(name: str) -> None:
    x, dy, weight = torch.randn(2, 3, 4, 4, 2), torch.randn(2, 5, 4, 4, 2), torch.randn(5, 3, 3, 3, 3)
    arguments = {
        "convolve_input": (dy, weight),
        "convolve_weight": (x, dy),
        "strided_weight": (x, dy[:, :, :2, :2, :1].contiguous()),
    }
    # these operators are only called in a backward pass
    utilities = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    outcome = torch.library.opcheck(getattr(convolution, name), arguments[name], test_utils=utilities)
    assert set(outcome.values()) == {"SUCCESS"}


LAYERS: list[tuple[Callable[[int, int], nn.Module], Callable[..., nn.Module], dict[str, int]]] = [
    (Convolution3d, nn.Conv3d, {"kernel_size": 3, "padding": 1}),
    (Halving3d, nn.Conv3d, {"kernel_size": 2, "stride": 2}),
    (Doubling3d, nn.ConvTranspose3d, {"kernel_size": 2, "stride": 2}),
]


@pytest.mark.parametrize(("own", "torch_layer", "options"), LAYERS)
def test_layers_on_a_cpu_equal_pytorch(
    own: Callable[[int, int], nn.Module], torch_layer: Callable[..., nn.Module], options: dict[str, int]
) -> None:
    """Parameters from the same seed, results and all gradients are bit-identical."""
    results = []
    for build in (own, lambda entry, out: torch_layer(entry, out, **options)):
        torch.manual_seed(0)
        layer = build(3, 5)
        assert layer.state_dict().keys() == {"weight", "bias"}
        parameters, result = list(layer.parameters()), layer(torch.randn(2, 3, 5, 4, 7))
        results.append([result, *parameters, *torch.autograd.grad(result.square().sum(), parameters)])
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(*results, strict=True))


@pytest.mark.parametrize(("batch", "grad", "calls"), [(1, False, 1), (1, True, 0), (2, False, 0)])
def test_one_small_image_without_gradients_uses_onednn(
    monkeypatch: pytest.MonkeyPatch, batch: int, grad: bool, calls: int
) -> None:
    seen = []

    def counted(*arguments: Any) -> Tensor:
        seen.append(arguments)
        return onednn(*arguments)

    onednn = torch.mkldnn_convolution
    monkeypatch.setattr(torch, "mkldnn_convolution", counted)
    layer, x = Convolution3d(3, 4), torch.randn(batch, 3, 5, 6, 7)
    with torch.set_grad_enabled(grad):
        y = layer(x)
    assert len(seen) == calls
    weight, bias = (part.detach().double() for part in layer.parameters())
    expected = F.conv3d(x.double(), weight, bias, padding=1)
    torch.testing.assert_close(y.double(), expected, atol=1e-5, rtol=1e-5)


def test_odd_sizes_use_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_accelerated", lambda x, elements: True)
    monkeypatch.setattr(convolution, "halve", None)
    assert Halving3d(16, 32)(torch.randn(1, 16, 4, 5, 4)).shape == (1, 32, 2, 2, 2)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Convolution3d(1, 64), (1, 1, 2**9, 2**8, 2**8)),
        (Halving3d(16, 32), (1, 16, 2**10, 2**9, 2**8)),
        (Doubling3d(32, 16), (1, 32, 2**9, 2**8, 2**7)),
    ],
)
def test_volumes_beyond_32_bit_indices_use_pytorch(
    layer: nn.Module, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution, "accelerated", lambda x: True)
    monkeypatch.setattr(convolution, "HAS_TRITON", True)
    for name in ("convolve", "halve", "double"):
        monkeypatch.setattr(convolution, name, None)
    result = layer.to("meta")(torch.empty(shape, device="meta"))
    assert max(result.numel(), math.prod(shape)) >= 2**31


def test_convolution_before_a_norm_needs_a_bias() -> None:
    with pytest.raises(ValueError, match="needs a bias"):
        convolution._add_bias(torch.zeros(1), None)


def trained_once(network: nn.Module, images: Tensor) -> tuple[Tensor, dict[str, Tensor | None]]:
    logits = network(images)
    names, parameters = zip(*network.named_parameters(), strict=True)
    gradients = torch.autograd.grad(logits.square().mean(), parameters, allow_unused=True)
    return logits.detach(), dict(zip(names, gradients, strict=True))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("norm", ["batch", "instance"])
@pytest.mark.parametrize("width", [3, pytest.param(16, marks=needs_triton)])
@pytest.mark.slow
def test_compiled_fast_network_equals_plain_network(width: int, norm: Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    network = VNet(1, 2, width=width, levels=2, norm=norm, dropout=0.0).to(DEVICE)
    images = torch.randn(2, 1, 4, 6, 4).to(DEVICE)
    monkeypatch.setattr(convolution, "_accelerated", lambda x, elements: False)
    plain, gradients = trained_once(network, images)
    monkeypatch.setattr(convolution, "_accelerated", lambda x, elements: True)
    used = kernels_used(monkeypatch)
    torch.compiler.reset()
    network.compile(backend="aot_eager", fullgraph=True, dynamic=False)
    fast, fast_gradients = trained_once(network, images)
    torch.testing.assert_close(fast, plain, rtol=10 * ROUNDING, atol=10 * ROUNDING)
    assert bool(used) is (width == 16)
    for key, gradient in gradients.items():
        fast_gradient = fast_gradients[key]
        assert gradient is not None
        if fast_gradient is None:
            assert key.endswith(".0.bias"), "only biases of convolutions before a norm get no gradient"
            assert gradient.abs().max() < ROUNDING, "the missing gradient is zero except for rounding"
        else:
            assert (fast_gradient - gradient).norm() < 100 * ROUNDING * gradient.norm(), key
    assert sum(gradient is None for gradient in fast_gradients.values()) == 6
