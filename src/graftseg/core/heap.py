"""Reuse of freed memory during prediction on a CPU.

By default, glibc returns every large block to the system when it is freed. Each new tensor then costs page faults,
which took half of the time of a prediction.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_BLOCK = 2**30
"""Size in bytes of the largest block that is reused. At most as many free bytes are kept."""


@contextmanager
def reused_memory() -> Iterator[None]:
    """Keep freed memory inside the block, and return it to the system afterwards. Without glibc, do nothing.

    The settings of glibc stay changed after the block.
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
