"""The agreement of several ranks to stop after the same step."""

import signal

from graftseg.core import ranks


class Stop:
    """The signal that stops training. Several ranks agree on it before each step, so that all stop after one step."""

    def __init__(self, received: list[signal.Signals]) -> None:
        self._received = received
        self._agreed: signal.Signals | None = None

    @property
    def signal(self) -> signal.Signals | None:
        """The signal, or None if training goes on."""
        if ranks.count() > 1:
            return self._agreed
        return self._received[0] if self._received else None

    def is_due(self) -> bool:
        """Return whether to stop before the next step."""
        if ranks.count() > 1 and (number := ranks.largest_of_all(self._received[0] if self._received else 0)):
            self._agreed = signal.Signals(number)
        return self.signal is not None
