"""Noise that a teacher's images get."""

import torch
from torch import Tensor


def noisy(images: Tensor, deviation: float) -> Tensor:
    """The images plus normal noise of that deviation, cut off at twice the deviation."""
    return images + (torch.randn_like(images) * deviation).clamp(-2 * deviation, 2 * deviation)
