"""Signs of life of rank 0, for ranks that wait while it works alone.

A thread of rank 0 counts in the store that connects the ranks. Rank 0 may work for hours, but if its process or its
machine hangs, the number stays the same.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

KEY = "heartbeat of rank 0"
MAX_INTERVAL = 10.0


class Heartbeat:
    """The number in a store that rank 0 increases. ``seconds`` is the silence after which it counts as lost."""

    def __init__(self, store: Any, seconds: float) -> None:
        self.seconds = seconds
        self._store, self._interval = store, min(MAX_INTERVAL, seconds / 4)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Increase the number inside the block, which runs on rank 0."""
        ended = threading.Event()

        def beat() -> None:
            with suppress(RuntimeError):  # the store ended
                while not ended.wait(self._interval):
                    self._store.add(KEY, 1)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(self._interval)

    def wait(self, work: Any) -> None:
        """Wait for communication with rank 0. Raise a RuntimeError if rank 0 hangs.

        Another thread reads the number, because the store may be on the machine that hangs.
        """
        if self._ends(work):
            return
        ended, heard = threading.Event(), [time.monotonic()]

        def listen() -> None:
            number = -1
            with suppress(RuntimeError):
                while not ended.wait(self._interval):
                    if (latest := self._store.add(KEY, 0)) != number:
                        number, heard[0] = latest, time.monotonic()

        threading.Thread(target=listen, daemon=True).start()
        try:
            while not self._ends(work):
                if time.monotonic() - heard[0] > self.seconds:
                    raise RuntimeError("rank 0 hangs")
        finally:
            ended.set()

    def _ends(self, work: Any) -> bool:
        """Return whether communication ends within the interval. Raise a RuntimeError if it fails."""
        try:
            work.wait(timedelta(seconds=self._interval))
        except RuntimeError:
            if work.is_completed():
                raise
            return False
        return True
