"""A clock for the phases of a training step."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch


class StepClock:
    """Seconds per phase, summed over steps.

    On a GPU, only every ``every``-th step is timed, because timing makes the host wait for the device. The warm-up in
    the first few steps is therefore not timed.
    """

    def __init__(self, device: torch.device, every: int = 50) -> None:
        self._device = device
        self._every = every if device.type == "cuda" else 1
        self._step = 0
        self._timed = 0
        self._inside = False
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as part of a phase; a nested phase counts toward the outer phase.

        A nested phase is not timed, because it may run during a CUDA graph capture, which forbids synchronization.
        """
        if not self._times_this_step or self._inside:
            yield
            return
        self._inside, begin = True, self._now()
        try:
            yield
        finally:
            self._inside = False
        self._seconds[name] += self._now() - begin

    def tick(self) -> None:
        """Count a finished step."""
        self._timed += self._times_this_step
        self._step += 1

    def split(self) -> dict[str, float]:
        """Return mean seconds per step, by phase."""
        return {name: seconds / max(self._timed, 1) for name, seconds in self._seconds.items()}

    @property
    def _times_this_step(self) -> bool:
        return (self._step + 1) % self._every == 0

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()
