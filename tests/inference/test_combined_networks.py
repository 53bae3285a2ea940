"""Averages over networks and flips, compared with the definition."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from graftseg.inference.combined_networks import mean_of, over_flips, stack_channels, subsets


def ramp(images: Tensor) -> Tensor:
    """Return a foreground probability that grows along the last axis and ignores the image."""
    share = torch.linspace(0, 1, images.shape[-1]).expand(len(images), 1, *images.shape[2:])
    return torch.cat([1 - share, share], dim=1)


def test_the_mean_of_one_network_is_the_network() -> None:
    assert mean_of([ramp]) is ramp


def test_the_mean_of_networks() -> None:
    segments = [partial(torch.full_like, fill_value=value) for value in (0.0, 0.25, 1.0)]
    mean = mean_of(segments)(torch.zeros(2, 2, 3, 3))
    torch.testing.assert_close(mean, torch.full((2, 2, 3, 3), 1.25 / 3))


def test_half_precision_is_summed_in_single_precision() -> None:
    def segment(images: Tensor) -> Tensor:
        return torch.full_like(images, 0.1, dtype=torch.bfloat16)

    mean = mean_of([segment] * 3)(torch.zeros(1, 2, 2, 2))
    assert mean.dtype == torch.float32 and float(mean.min()) == float(mean.max()) == pytest.approx(0.1, abs=2e-3)


def test_flips_make_a_constant_network_symmetric() -> None:
    assert over_flips(ramp)(torch.zeros(1, 1, 2, 5))[0, 1, 0].tolist() == [0.5] * 5


@pytest.mark.parametrize("axes", [2, 3])
def test_flips_of_every_subset_of_axes_are_flipped_back(axes: int) -> None:
    torch.manual_seed(0)
    layer = (nn.Conv2d if axes == 2 else nn.Conv3d)(1, 2, kernel_size=3, padding=1)
    images = torch.randn(2, 1, *(4, 5, 6)[:axes])
    seen: list[Tensor] = []

    def segment(given: Tensor) -> Tensor:
        seen.append(given)
        probabilities: Tensor = layer(given).softmax(1)
        return probabilities

    with torch.inference_mode():
        mean = over_flips(segment)(images)
        views = [[], [2], [3], [2, 3]] if axes == 2 else [[], [2], [3], [4], [2, 3], [2, 4], [3, 4], [2, 3, 4]]
        expected = torch.stack([layer(images.flip(view)).softmax(1).flip(view) for view in views]).mean(0)
    assert len(seen) == 2**axes
    assert torch.equal(seen[0], images)
    torch.testing.assert_close(mean, expected)


def test_flips_of_the_first_axes_only() -> None:
    seen: list[Tensor] = []

    def segment(given: Tensor) -> Tensor:
        seen.append(given)
        return given

    images = torch.arange(8.0).reshape(1, 1, 2, 2, 2)
    assert torch.equal(over_flips(segment, axes=(0, 1))(images), images)
    assert [view.flatten()[0].item() for view in seen] == [0, 4, 2, 6]


def test_channels_of_two_networks_are_stacked() -> None:
    both = stack_channels(lambda images: images, lambda images: images.double() + 1)(torch.zeros(1, 2, 3))
    assert both.dtype == torch.float32
    assert both.tolist() == [[[0.0] * 3] * 2 + [[1.0] * 3] * 2]


def test_subsets() -> None:
    assert subsets([2, 3]) == [(), (2,), (3,), (2, 3)]
