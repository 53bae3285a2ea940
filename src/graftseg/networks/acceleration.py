"""Whether layers on a GPU are computed our way, which is faster, or by PyTorch's own functions."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_our_way = True


def accelerated(x: Tensor) -> bool:
    """Whether a layer is to compute its result for ``x`` our way."""
    return x.is_cuda and _our_way


@contextmanager
def plain_layers() -> Iterator[None]:
    """PyTorch's own layers on a GPU too, for as long as the block lasts: what other programs would run."""
    global _our_way
    before, _our_way = _our_way, False
    try:
        yield
    finally:
        _our_way = before
