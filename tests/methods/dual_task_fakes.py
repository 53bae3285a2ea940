"""A batch and a student of which everything is known, for the methods with a head for signed distances."""

import math

import torch
from torch import nn

from graftseg.core.types import Batch, Labeled
from graftseg.methods import Method

SIDE = 16
# Columns 0 to 7 are foreground. Distances outside are 1 to 8 of 8, inside 8 to 1 of 8, and the last is boundary, 0.
DISTANCES = [*(-k / 8 for k in range(8, 1, -1)), 0.0, *(k / 8 for k in range(1, 9))]
MEAN_S, MEAN_S_SQUARED = 1 / 128, 407 / 1024


def half_foreground() -> Batch:
    """Images of which the left half is foreground."""
    images, others = torch.randn(2, 2, 1, SIDE, SIDE)
    labels = (torch.arange(SIDE) < SIDE // 2).long().expand(2, SIDE, SIDE)
    return Batch(Labeled(images, labels), others)


def say_always(method: Method, *, z: float = 0.0, s: float = 0.0) -> None:
    """The heads of a student of two classes say the same logit and the same distance of every voxel."""
    for name, value in (("head", z), ("distance_head", math.atanh(s))):
        head = method.student.get_submodule(name)
        assert isinstance(head, nn.Conv2d) and head.bias is not None
        with torch.no_grad():
            head.weight.zero_()
            head.bias.fill_(value)
