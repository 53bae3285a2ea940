"""Perturbations of images: random noise, adversarial noise, and patches exchanged within a batch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from graftseg.core.ranks import draw_rows, share

Deviation = Annotated[float, Field(ge=0, le=1e6)]
"""Standard deviation of noise, limited so that noisy images are finite."""
Distance = Callable[[Tensor, Tensor], Tensor]


def add_noise(images: Tensor, deviation: float) -> Tensor:
    """Add normal noise, clipped at two standard deviations."""
    return images + (draw_rows(torch.randn_like, images) * deviation).clamp(-2 * deviation, 2 * deviation)


def adversarial_direction(
    network: nn.Module, images: Tensor, target: Tensor, distance: Distance, *, probe: float, iterations: int
) -> Tensor:
    """Return noise ``(B, C, *space)`` of length 1 per sample that changes the prediction as fast as possible.

    Start from random noise d. In each of ``iterations`` steps, replace d by the normalized gradient of
    ``distance(probabilities, target)`` at ``images + probe * d``, where ``target`` contains the probabilities without
    noise. Batch-norm statistics and parameter gradients are unchanged.
    """
    d = unit_length(draw_rows(torch.rand_like, images) - 0.5)
    with batch_statistics_only(network), frozen_parameters(network):
        for _ in range(iterations):
            d = d.detach().requires_grad_()
            change = share(distance(probabilities(network, images + probe * d), target))
            (gradient,) = torch.autograd.grad(change, d)
            d = unit_length(gradient)
    return d.detach()


def probabilities(network: nn.Module, images: Tensor) -> Tensor:
    """Return class probabilities ``(B, K, *space)`` in float32."""
    logits: Tensor = network(images)
    return logits.float().softmax(1)


def unit_length(noise: Tensor) -> Tensor:
    """Scale each sample to length 1 over channels and space."""
    return F.normalize(noise.flatten(1), dim=1, eps=1e-8).view_as(noise)


@contextmanager
def batch_statistics_only(network: nn.Module) -> Iterator[None]:
    """Let batch norms in training mode use batch statistics without updating running statistics."""
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
    """Compute no parameter gradients inside the block; gradients still pass through the network."""
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in trainable:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trainable:
            parameter.requires_grad_(True)


def draw_permutations(cells: Sequence[int], images: int, device: torch.device | str = "cpu") -> Tensor:
    """Draw a permutation of the images for each grid cell, ``(*cells, images)``, on the device."""
    return torch.rand(*cells, images, device=device).argsort(-1)


def invert_permutations(permutations: Tensor) -> Tensor:
    """Return the inverse permutations."""
    return permutations.argsort(-1)


def exchange_patches(tensor: Tensor, permutations: Tensor) -> Tensor:
    """Permute the images of a batch ``(N, C, *space)`` in each grid cell.

    In each cell, image i of the result is image ``permutations[cell, i]`` of the batch. Along an axis of n voxels and c
    cells, voxel x is in cell ``x * c // n``. A patch keeps its position in the image. A second call with
    ``invert_permutations(permutations)`` restores the batch.
    """
    cells, space = permutations.shape[:-1], tensor.shape[2:]
    check_grid(cells, space)
    lines = [torch.arange(n, device=tensor.device) * c // n for n, c in zip(space, cells, strict=True)]
    source = permutations[torch.meshgrid(*lines, indexing="ij")].movedim(-1, 0).unsqueeze(1)
    return tensor.gather(0, source.expand_as(tensor))


def check_grid(cells: Sequence[int], space: Sequence[int]) -> None:
    """Raise a ValueError if a grid has more cells than voxels along an axis."""
    if any(c > n for c, n in zip(cells, space, strict=True)):
        raise ValueError(f"a grid of {list(cells)} cells does not fit an image of {list(space)} voxels")
