"""The agreement of several ranks to stop before the same step."""

import signal

from graftseg.core import ranks


class Stop:
    """The signal that stops training. Before each step, several ranks agree whether one of them received a signal.

    A signal during the last step of a stage stops a single rank after this step. Several ranks check again only before
    the first step of the next stage, and finish the run if there is no next stage.
    """

    def __init__(self, received: list[signal.Signals]) -> None:
        self._received = received
        self._agreed: signal.Signals | None = None

    @property
    def stopped_by(self) -> signal.Signals | None:
        """The signal, or None if training continues."""
        if ranks.count() > 1:
            return self._agreed
        return self._received[0] if self._received else None

    def agree_to_stop(self) -> bool:
        """Return whether to stop before the next step. Every rank must call this before every step."""
        if ranks.count() > 1 and (number := ranks.largest_of_all(self._received[0] if self._received else 0)):
            self._agreed = signal.Signals(number)
        return self.stopped_by is not None
