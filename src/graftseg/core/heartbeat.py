"""Heartbeats, by which a waiting rank notices that the rank it waits for has ended or hangs."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

KEY = "heartbeat of rank {}"
MAX_INTERVAL = 10.0  # maximum number of seconds between two heartbeats


class Heartbeat:
    """The heartbeat of a rank. Other ranks may wait for hours while this rank works alone.

    A thread of each rank regularly increases a counter in the store that connects the ranks. A rank counts as lost if
    its counter has not changed for ``seconds``.
    """

    def __init__(self, store: Any, rank: int, seconds: float) -> None:
        self.seconds = seconds
        self._store, self._rank, self._interval = store, rank, min(MAX_INTERVAL, seconds / 4)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Increase the counter of this rank regularly while the block runs."""
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
        """Wait for communication with a rank. Raise a RuntimeError if the rank hangs."""
        if self._ends_in_interval(work):
            return
        ended, last_change = threading.Event(), [time.monotonic()]

        def listen() -> None:
            number = -1
            with suppress(RuntimeError):
                while not ended.wait(self._interval):
                    if (latest := self._store.add(KEY.format(rank), 0)) != number:
                        number, last_change[0] = latest, time.monotonic()

        # another thread reads the counter, because the store may be on the machine that hangs
        threading.Thread(target=listen, daemon=True).start()
        try:
            while not self._ends_in_interval(work):
                if time.monotonic() - last_change[0] > self.seconds:
                    raise RuntimeError(f"rank {rank} hangs")
        finally:
            ended.set()

    def _ends_in_interval(self, work: Any) -> bool:
        """Return whether communication ends within an interval. Raise a RuntimeError if it fails."""
        try:
            work.wait(timedelta(seconds=self._interval))
        except RuntimeError:
            if work.is_completed():
                raise
            return False
        return True
