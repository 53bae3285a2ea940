"""Errors of a device with too little memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from graftseg.core.errors import Code, UserError

OUT_OF_MEMORY = (
    "can't allocate memory",
    "out of memory",
    "Storage size calculation overflowed",
    "Overflow when unpacking long",
)
"""Fragments of PyTorch's messages about too little memory, or about a tensor that is too large for any memory."""


@contextmanager
def reporting_out_of_memory(device: torch.device) -> Iterator[None]:
    """Turn out-of-memory errors into a UserError."""
    try:
        yield
    except (MemoryError, RuntimeError, TypeError) as error:
        is_known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not is_known and not any(part in str(error) for part in OUT_OF_MEMORY):
            raise
        remedy = "start a new run with lower batches.labeled, batches.unlabeled, batches.patch or network.width"
        raise UserError(Code.OUT_OF_MEMORY, device.type, "out of memory", remedy) from None
