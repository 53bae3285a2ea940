"""Peak memory of a block of code."""

import ctypes
import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # written to clear_refs, it resets the peak memory of the process


@dataclass
class Peak:
    """Peak memory in bytes, which is 0 until the block ends."""

    value: int = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure the peak memory of a block: tensors on a GPU, or the growth of this process on a CPU.

    Child processes are not counted.
    """
    gc.collect()
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.value = torch.cuda.max_memory_allocated(device)
        return
    with suppress(AttributeError, OSError):
        # return freed pages to the system, because a block that reuses freed pages seems to need no memory
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        CLEAR.write_text(RESET_PEAK)
    before = _resident("VmRSS")
    yield peak
    peak.value = max(_resident("VmHWM") - before, 0)


def _resident(name: str) -> int:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
