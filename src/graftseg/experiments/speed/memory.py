"""The most memory that a block of work holds."""

import ctypes
import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"


@dataclass
class Peak:
    """Bytes; 0 until the block ends."""

    value: int = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Watch a block: tensors allocated on a GPU, or by how much this process grows in main memory.

    Processes that the block starts are not counted.
    """
    gc.collect()
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.value = torch.cuda.max_memory_allocated(device)
        return
    _give_back_free_memory()
    _forget_peak()
    before = _resident("VmRSS")
    yield peak
    peak.value = max(_resident("VmHWM") - before, 0)


def _give_back_free_memory() -> None:
    """Pages that an earlier block freed would otherwise be used again and not be seen to grow."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return


def _forget_peak() -> None:
    """Where the system does not let a process do so, the peak is that of its whole life."""
    try:
        CLEAR.write_text(RESET_PEAK)
    except OSError:
        return


def _resident(name: str) -> int:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
