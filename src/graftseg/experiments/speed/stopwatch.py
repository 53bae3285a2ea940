"""Times of phases that may lie within one another; each moment counts for the innermost phase alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from statistics import median
from time import perf_counter
from typing import ParamSpec, TypeVar

import torch

PHASES = ("batch", "teacher", "components", "student forward", "backward", "update")
Split = dict[str, float]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Stopwatch:
    """Adds up seconds by phase; at the border of two phases it waits until the device has done its work."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._open: list[str] = []
        self._since = 0.0
        self.reset()

    def reset(self) -> None:
        """Forget all times."""
        self.seconds: Split = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as part of the phase, less the phases inside it."""
        self._mark()
        self._open.append(name)
        try:
            yield
        finally:
            self._mark()
            self._open.pop()

    def timed(self, name: str, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """The function, as a phase of its own."""

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            with self.phase(name):
                return function(*args, **kwargs)

        return call

    def per_step(self, steps: int) -> Split:
        """Mean seconds a step, by phase."""
        return {name: seconds / steps for name, seconds in self.seconds.items()}

    def _mark(self) -> None:
        now = settled(self._device)
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


class Mark:
    """A moment in the work of a device: when all that was asked of it before is done; nobody waits for that."""

    def __init__(self, device: torch.device) -> None:
        self._at = perf_counter()
        self._event: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            self._event.record(torch.cuda.current_stream(device))

    def seconds_since(self, earlier: "Mark") -> float:
        """Seconds between two moments of one device, once both have come."""
        if self._event is None or earlier._event is None:
            return self._at - earlier._at
        self._event.synchronize()
        return float(earlier._event.elapsed_time(self._event)) / 1000


def settled(device: torch.device) -> float:
    """The time in seconds, once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


def median_split(splits: Sequence[Split]) -> Split:
    """The median of every phase."""
    return {name: median(split[name] for split in splits) for name in splits[0]}
