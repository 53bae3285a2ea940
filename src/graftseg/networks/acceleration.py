"""Whether layers on a GPU are computed our way, which is faster, or by PyTorch's own functions; how it compiles."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_enabled = True


def accelerated(x: Tensor) -> bool:
    """Whether a layer is to compute its result for ``x`` our way."""
    return x.is_cuda and _enabled


def tf32_allowed() -> bool:
    """Whether convolutions of float32 on a GPU may be made in TF32.

    The older name of this setting cannot be read any more once a program has used the newer ones.
    """
    try:
        return torch.backends.cudnn.allow_tf32
    except RuntimeError:
        return bool(torch.backends.cudnn.conv.fp32_precision == "tf32")  # type: ignore[attr-defined]


@contextmanager
def plain_layers() -> Iterator[None]:
    """PyTorch's own layers on a GPU too, for as long as the block lasts: what other programs would run."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


def compiler_options(dimensions: int, device: torch.device) -> dict[str, Any] | None:
    """What to ask of the compiler.

    A step in 2-D has hundreds of small kernels that do not wait for one another: those are merged on a GPU. In 3-D
    that made a step no faster.
    """
    return {"combo_kernels": True} if dimensions == 2 and device.type == "cuda" else None
