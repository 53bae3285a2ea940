"""Choice between our GPU layers and PyTorch's layers, and options of ``torch.compile``."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_enabled = True


def accelerated(x: Tensor) -> bool:
    """Return whether a layer uses our faster implementation for ``x``."""
    return x.is_cuda and _enabled


def tf32_allowed() -> bool:
    """Return whether float32 convolutions on a GPU may use TF32.

    PyTorch raises a RuntimeError if the older ``allow_tf32`` is read after the newer ``fp32_precision`` was set.
    """
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


@contextmanager
def plain_layers() -> Iterator[None]:
    """Use PyTorch's layers instead of ours inside the block."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def compiler_options(dimensions: int, device: torch.device) -> dict[str, Any] | None:
    """Return options for ``torch.compile``. They merge small independent kernels on a GPU.

    A 2-D step has hundreds of such kernels. In 3-D, merging was not faster.
    """
    return {"combo_kernels": True} if dimensions == 2 and device.type == "cuda" else None
