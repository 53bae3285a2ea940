"""Leases: only one browser tab at a time may change a case. Other tabs can only show the case."""

from collections.abc import Callable
from threading import Lock
from time import monotonic

LEASE_SECONDS = 10.0
"""A lease ends if its tab sends no request for this time, because the tab may have been closed."""


class Leases:
    """The tab that may change each case, and the time of its last request."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._held: dict[int, tuple[str, float]] = {}

    def take(self, case: int, tab: str) -> bool:
        """Give the lease of a case to a tab, unless another tab has it. Return whether the tab has the lease."""
        with self._lock:
            now = self._clock()
            holder, last_request = self._held.get(case, (tab, now))
            if holder != tab and now - last_request < LEASE_SECONDS:
                return False
            self._held[case] = tab, now
            return True

    def release(self, case: int) -> None:
        """End the lease of a case."""
        with self._lock:
            self._held.pop(case, None)
