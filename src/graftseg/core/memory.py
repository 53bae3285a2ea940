"""Memory: how much of it is free, and reuse of freed memory."""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_BLOCK = 2**30  # largest block that is reused, and maximum of free memory that is kept, in bytes


def free_memory(device: torch.device) -> int:
    """Return the free memory of the device in bytes, or ``sys.maxsize`` if it is unknown."""
    if device.type == "cuda":
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reusable
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) or sys.maxsize


@contextmanager
def reused_memory() -> Iterator[None]:
    """Keep freed memory inside the block, and return it to the system afterwards. Without glibc, do nothing.

    By default, glibc returns every large block to the system when it is freed. Each new tensor then costs page faults,
    which took half of the time of a prediction. The settings of glibc stay changed after the block.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK)
    libc.mallopt(M_TRIM_THRESHOLD, LARGEST_BLOCK)
    try:
        yield
    finally:
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if all(hasattr(libc, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")) else None
