"""Where the time of a training step goes."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch


class StepClock:
    """Adds up seconds by phase.

    On a GPU only every ``every``-th step is timed, because a true time needs the host to wait for the device.
    """

    def __init__(self, device: torch.device, every: int = 50) -> None:
        self._cuda = device.type == "cuda"
        self._every = every if self._cuda else 1
        self._step = 0
        self._timed = 0
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block as part of the phase."""
        if self._step % self._every:
            yield
            return
        begin = self._now()
        yield
        self._seconds[name] += self._now() - begin

    def tick(self) -> None:
        """A step is over."""
        self._timed += self._step % self._every == 0
        self._step += 1

    def split(self) -> dict[str, float]:
        """Mean seconds a step, by phase."""
        return {name: seconds / max(self._timed, 1) for name, seconds in self._seconds.items()}

    def _now(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return perf_counter()
