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
        self._seconds: dict[int, float] = {}

    def take(self, case: int, tab: str) -> bool:
        """Give the lease of a case to a tab, unless another tab has it. Return whether the tab has the lease."""
        with self._lock:
            now = self._clock()
            holder, last_request = self._held.get(case, (tab, now))
            is_held = now - last_request < LEASE_SECONDS
            if is_held and holder != tab:
                return False
            if is_held:
                self._seconds[case] = self._seconds.get(case, 0.0) + now - last_request
            self._held[case] = tab, now
            return True

    def collect_seconds(self, case: int) -> float:
        """Return the time for which a tab has had the lease of a case, since the last call."""
        with self._lock:
            return self._seconds.pop(case, 0.0)

    def release(self, case: int) -> None:
        """End the lease of a case."""
        with self._lock:
            self._held.pop(case, None)
