"""Noise that a teacher's images get."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

Deviation = Annotated[float, Field(ge=0, le=1e6)]
"""Deviations that leave the images finite."""
Distance = Callable[[Tensor, Tensor], Tensor]


def add_noise(images: Tensor, deviation: float) -> Tensor:
    """The images plus normal noise of that deviation, cut off at twice the deviation."""
    return images + (torch.randn_like(images) * deviation).clamp(-2 * deviation, 2 * deviation)


def adversarial_direction(
    network: nn.Module, images: Tensor, target: Tensor, distance: Distance, *, probe: float, iterations: int
) -> Tensor:
    """Noise ``(B, C, *space)`` of length 1 for each sample that leads away from ``target`` the fastest.

    It begins at random and becomes, ``iterations`` times, the gradient of ``distance(probabilities, target)`` at
    ``probe`` times itself. The network's batch norms do not remember these images, and its parameters get no gradient.
    """
    d = unit_length(torch.rand_like(images) - 0.5)
    with batch_statistics_only(network), frozen_parameters(network):
        for _ in range(iterations):
            d = d.detach().requires_grad_()
            moved = distance(probabilities(network, images + probe * d), target)
            (gradient,) = torch.autograd.grad(moved, d)
            d = unit_length(gradient)
    return d.detach()


def probabilities(network: nn.Module, images: Tensor) -> Tensor:
    """What the network says of the images, ``(B, K, *space)``, in float32."""
    logits: Tensor = network(images)
    return logits.float().softmax(1)


def unit_length(noise: Tensor) -> Tensor:
    """The same directions with a length of 1 for each sample, over channels and space."""
    return F.normalize(noise.flatten(1), dim=1, eps=1e-8).view_as(noise)


@contextmanager
def batch_statistics_only(network: nn.Module) -> Iterator[None]:
    """Batch norms in training mode work with the batch's statistics as ever, but neither keep nor count them."""
    norms = [part for part in network.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True


@contextmanager
def frozen_parameters(network: nn.Module) -> Iterator[None]:
    """Gradients pass through the network without being computed for its parameters."""
    moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in moving:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in moving:
            parameter.requires_grad_(True)


def draw_permutations(cells: Sequence[int], images: int, device: torch.device | str = "cpu") -> Tensor:
    """For each cell of a grid a permutation of the images, ``(*cells, images)``, drawn on the device."""
    return torch.rand(*cells, images, device=device).argsort(-1)


def invert_permutations(permutations: Tensor) -> Tensor:
    """The permutations that undo those."""
    return permutations.argsort(-1)


def exchange_patches(tensor: Tensor, permutations: Tensor) -> Tensor:
    """``(N, C, *space)``: in each cell, image n of the result is image ``permutations[cell, n]``.

    The grid is stretched over the space: voxel x of n along an axis lies in cell ``x * cells // n``. A patch keeps its
    place in the image. ``exchange(exchange(x, s), inverse(s))`` is x.
    """
    cells, space = permutations.shape[:-1], tensor.shape[2:]
    check_grid(cells, space)
    lines = [torch.arange(n, device=tensor.device) * c // n for n, c in zip(space, cells, strict=True)]
    source = permutations[torch.meshgrid(*lines, indexing="ij")].movedim(-1, 0).unsqueeze(1)
    return tensor.gather(0, source.expand_as(tensor))


def check_grid(cells: Sequence[int], space: Sequence[int]) -> None:
    """Raise a ValueError if a grid has more cells along an axis than there are voxels."""
    if any(c > n for c, n in zip(cells, space, strict=True)):
        raise ValueError(f"a grid of {list(cells)} cells has more of them than {list(space)} has voxels")
