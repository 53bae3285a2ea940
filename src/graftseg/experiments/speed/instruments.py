"""Measure times of nested phases, times on a GPU, and the peak memory of a block of code."""

import ctypes
import gc
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch

PHASES = ("batch", "teacher", "components", "student forward", "backward", "update")
PhaseSeconds = dict[str, float]  # seconds by phase
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"  # written to clear_refs, it resets the peak memory of the process


class Stopwatch:
    """A stopwatch for nested phases. The device is synchronized whenever a phase begins or ends."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._open: list[str] = []
        self._since = 0.0
        self.reset()

    def reset(self) -> None:
        """Set all times to zero."""
        self.seconds: PhaseSeconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block or decorated function to a phase, without the time of nested phases."""
        self._add_elapsed()
        self._open.append(name)
        try:
            yield
        finally:
            self._add_elapsed()
            self._open.pop()

    def per_step(self, steps: int) -> PhaseSeconds:
        """Return the mean seconds per step of each phase."""
        return {name: seconds / steps for name, seconds in self.seconds.items()}

    def _add_elapsed(self) -> None:
        now = synchronized_time(self._device)
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


class Mark:
    """The time at which a GPU finishes the work queued so far, recorded without waiting; on a CPU, the current time."""

    def __init__(self, device: torch.device) -> None:
        self._at = perf_counter()
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(device))

    def seconds_since(self, earlier: "Mark") -> float:
        """Wait for both marks and return the seconds between them."""
        if self._event is None or earlier._event is None:
            return self._at - earlier._at
        self._event.synchronize()
        return float(earlier._event.elapsed_time(self._event)) / 1000


def synchronized_time(device: torch.device) -> float:
    """Wait for the device and return the time in seconds."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


@dataclass
class Peak:
    """Peak memory in bytes, which is 0 until the block ends."""

    value: int = 0


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """Measure the peak memory of a block: tensors on a GPU, or the growth of this process without children."""
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
