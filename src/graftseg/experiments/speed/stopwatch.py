"""A stopwatch for nested phases. Time counts only for the innermost phase."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch

PHASES = ("batch", "teacher", "components", "student forward", "backward", "update")
Split = dict[str, float]  # seconds by phase


class Stopwatch:
    """The seconds of each phase. The device is synchronized whenever a phase begins or ends."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._open: list[str] = []
        self._since = 0.0
        self.reset()

    def reset(self) -> None:
        """Set all times to zero."""
        self.seconds: Split = dict.fromkeys(PHASES, 0.0)

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

    def per_step(self, steps: int) -> Split:
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
