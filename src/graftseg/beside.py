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

    It begins when all that was asked for before it is done, and the block of the next step when that step's is, so
    that no memory is given to others while either still reads it. The order of random draws is that of the program.
    On a CPU, where the block is over when it ends, there is nothing to wait for.
    """
    if not images.is_cuda:
        yield lambda: None
        return
    main, own = torch.cuda.current_stream(images.device), _own_stream(images.device)
    own.wait_stream(main)
    with torch.cuda.stream(own):
        yield lambda: main.wait_stream(own)


@cache
def _own_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
