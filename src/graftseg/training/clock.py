"""Where the time of a training step goes."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch


class StepClock:
    """Adds up seconds by phase.

    On a GPU only every ``every``-th step is timed, because a true time needs the host to wait for the device; the
    first, which warms up, is not among them.
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
        """Time the block as part of the phase; a phase inside of another is part of that one.

        Nothing may wait for the device while a step is captured, which happens inside of a phase.
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
        """A step is over."""
        self._timed += self._times_this_step
        self._step += 1

    def split(self) -> dict[str, float]:
        """Mean seconds a step, by phase."""
        return {name: seconds / max(self._timed, 1) for name, seconds in self._seconds.items()}

    @property
    def _times_this_step(self) -> bool:
        return (self._step + 1) % self._every == 0

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return perf_counter()
