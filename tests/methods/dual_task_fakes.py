"""A batch and a student with known values, for methods with a signed distance head."""

import math

import torch
from torch import nn

from graftseg.core.types import Batch, Labeled
from graftseg.methods import Method

SIDE = 16
# Columns 0 to 7 are foreground. Outside, distances are 1/8 to 8/8; inside, 8/8 to 2/8, and 0 at the boundary.
DISTANCES = [*(-k / 8 for k in range(8, 1, -1)), 0.0, *(k / 8 for k in range(1, 9))]
MEAN_S, MEAN_S_SQUARED = 1 / 128, 407 / 1024


def half_foreground() -> Batch:
    """Return images whose left half is foreground."""
    images, others = torch.randn(2, 2, 1, SIDE, SIDE)
    labels = (torch.arange(SIDE) < SIDE // 2).long().expand(2, SIDE, SIDE)
    return Batch(Labeled(images, labels), others)


def set_constant_heads(method: Method, *, z: float = 0.0, s: float = 0.0) -> None:
    """Let both heads of a two-class student return a constant logit and a constant distance."""
    for name, value in (("head", z), ("distance_head", math.atanh(s))):
        head = method.student.get_submodule(name)
        assert isinstance(head, nn.Conv2d) and head.bias is not None
        with torch.no_grad():
            head.weight.zero_()
            head.bias.fill_(value)
