"""The right of one browser tab to change a case. Other tabs can only look at it."""

from collections.abc import Callable
from threading import Lock
from time import monotonic

LEASE_SECONDS = 10.0
"""A tab that has sent no request for this time is treated as closed."""


class Leases:
    """The tab that may change each case, and the time of its last request."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock, self._lock = clock, Lock()
        self._held: dict[int, tuple[str, float]] = {}

    def take(self, case: int, tab: str) -> bool:
        """Give the case to a tab, unless another tab has it. Return whether the tab has it now."""
        with self._lock:
            now = self._clock()
            holder, seen = self._held.get(case, (tab, now))
            if holder != tab and now - seen < LEASE_SECONDS:
                return False
            self._held[case] = tab, now
            return True

    def release(self, case: int) -> None:
        """Let any tab take the case."""
        with self._lock:
            self._held.pop(case, None)
