"""Work that a GPU does beside other work, on a stream of its own, until its result is needed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

Wait = Callable[[], None]


@contextmanager
def beside(images: Tensor) -> Iterator[Wait]:
    """Run the block beside what follows it; what it made may be used once the function that it gives was called.

    The block begins when all work is done that was asked for before it. So does that of the next step, and no memory is
    used again while either side still reads it. Random numbers are drawn in the order of the program. On a CPU, where
    the block is over when it ends, there is nothing to wait for.
    """
    if not images.is_cuda:
        yield lambda: None
        return
    own = _own_stream(images.device)
    own.wait_stream(torch.cuda.current_stream(images.device))
    with torch.cuda.stream(own):
        yield lambda: torch.cuda.current_stream(images.device).wait_stream(own)


@cache
def _own_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
