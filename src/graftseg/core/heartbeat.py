"""Signs of life of a rank, for ranks that wait while it works alone."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

KEY = "heartbeat of rank {}"
MAX_INTERVAL = 10.0


class Heartbeat:
    """Signs of life of ranks, for other ranks that wait while a rank works alone, perhaps for hours.

    A thread of each rank counts in the store that connects the ranks, unless its process or its machine hangs.
    ``seconds`` is the silence after which a rank counts as lost.
    """

    def __init__(self, store: Any, rank: int, seconds: float) -> None:
        self.seconds = seconds
        self._store, self._rank, self._interval = store, rank, min(MAX_INTERVAL, seconds / 4)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Increase the number of this rank inside the block."""
        ended = threading.Event()

        def beat() -> None:
            with suppress(RuntimeError):  # the store ended
                while not ended.wait(self._interval):
                    self._store.add(KEY.format(self._rank), 1)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(self._interval)

    def wait(self, work: Any, rank: int) -> None:
        """Wait for communication with a rank. Raise a RuntimeError if it hangs."""
        if self._ends_in_interval(work):
            return
        ended, last_change = threading.Event(), [time.monotonic()]

        def listen() -> None:
            number = -1
            with suppress(RuntimeError):
                while not ended.wait(self._interval):
                    if (latest := self._store.add(KEY.format(rank), 0)) != number:
                        number, last_change[0] = latest, time.monotonic()

        # another thread reads the number, because the store may be on the machine that hangs
        threading.Thread(target=listen, daemon=True).start()
        try:
            while not self._ends_in_interval(work):
                if time.monotonic() - last_change[0] > self.seconds:
                    raise RuntimeError(f"rank {rank} hangs")
        finally:
            ended.set()

    def _ends_in_interval(self, work: Any) -> bool:
        """Return whether communication ends within the interval. Raise a RuntimeError if it fails."""
        try:
            work.wait(timedelta(seconds=self._interval))
        except RuntimeError:
            if work.is_completed():
                raise
            return False
        return True
