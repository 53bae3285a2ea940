"""Layers that compute in the precision of what they are given, whatever a network computes in."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def as_given(x: Tensor) -> AbstractContextManager[object]:
    """Compute in the types that the operands have."""
    return nullcontext() if x.is_meta else torch.autocast(x.device.type, enabled=False)
