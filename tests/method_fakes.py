"""Networks with known predictions, for values computed by hand."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graftseg.core.types import Batch, Labeled, Progress
from graftseg.networks import Networks, NetworkSettings


class Biased(nn.Module):
    """A network with the same logits at every voxel: a bias."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, images: Tensor) -> Tensor:
        space = images.shape[2:]
        return self.bias.view(1, -1, *[1] * len(space)).expand(len(images), -1, *space)


class Echo(Biased):
    """A network whose logits are the bias, plus the image in the last class."""

    def forward(self, images: Tensor) -> Tensor:
        others = torch.zeros_like(images).expand(-1, len(self.bias) - 1, *images.shape[2:])
        return super().forward(images) + torch.cat([others, images], 1)


@dataclass(frozen=True)
class Fakes(Networks):
    """Builds fake networks."""

    fake: type[Biased]

    def build(self) -> Any:
        return self.fake(self.classes)


def fakes(fake: type[Biased] = Biased, classes: int = 2) -> Networks:
    return Fakes(NetworkSettings(name="unet-2d"), 1, classes, fake)


def set_bias(network: nn.Module, *probabilities: float) -> None:
    """Set the probabilities that a fake predicts where the image is zero."""
    with torch.no_grad():
        network.get_parameter("bias").copy_(torch.tensor(probabilities).log())


def black_batch(size: int = 2, side: int = 16) -> Batch:
    """Return images of zeros with labels of zeros."""
    images = torch.zeros(size, 1, side, side)
    return Batch(Labeled(images, torch.zeros(size, side, side, dtype=torch.long)), images.clone())


def at_step(step: int, total: int = 6000) -> Progress:
    return Progress(torch.tensor(step), total)
