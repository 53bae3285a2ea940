"""Virtual adversarial training: the noise of a given length that changes what a network says the most."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

Distance = Callable[[Tensor, Tensor], Tensor]


def adversarial_direction(
    network: nn.Module, images: Tensor, target: Tensor, distance: Distance, *, probe: float, iterations: int
) -> Tensor:
    """Noise ``(B, C, *space)`` of length 1 for each sample that leads away from ``target`` the fastest.

    It begins at random and becomes, ``iterations`` times, the gradient of ``distance(probabilities, target)`` at
    ``probe`` times itself. The network's batch norms do not remember these images, and its parameters get no gradient.
    """
    d = unit(torch.rand_like(images) - 0.5)
    with untracked(network), frozen(network):
        for _ in range(iterations):
            d = d.detach().requires_grad_()
            moved = distance(probabilities(network, images + probe * d), target)
            (gradient,) = torch.autograd.grad(moved, d)
            d = unit(gradient)
    return d.detach()


def probabilities(network: nn.Module, images: Tensor) -> Tensor:
    """What the network says of the images, ``(B, K, *space)``, in float32."""
    logits: Tensor = network(images)
    return logits.float().softmax(1)


def unit(noise: Tensor) -> Tensor:
    """The same directions with a length of 1 for each sample, over channels and space."""
    return F.normalize(noise.flatten(1), dim=1, eps=1e-8).view_as(noise)


@contextmanager
def untracked(network: nn.Module) -> Iterator[None]:
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
def frozen(network: nn.Module) -> Iterator[None]:
    """Gradients pass through the network without being computed for its parameters."""
    moving = [parameter for parameter in network.parameters() if parameter.requires_grad]
    for parameter in moving:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in moving:
            parameter.requires_grad_(True)
