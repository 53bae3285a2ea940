"""Noise that a teacher's images get."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

Deviation = Annotated[float, Field(ge=0, le=1e6)]
"""Deviations that leave the images finite."""


def noisy(images: Tensor, deviation: float) -> Tensor:
    """The images plus normal noise of that deviation, cut off at twice the deviation."""
    return images + (torch.randn_like(images) * deviation).clamp(-2 * deviation, 2 * deviation)
