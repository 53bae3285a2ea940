"""Signals that stop training after the current step."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from graftseg.core import ranks
from graftseg.core.signals import handling_signals, leave_closed_terminal

SAME_SIGNAL_SECONDS = 1.0
"""Time within which a repeated signal counts as the same signal."""


class Stop:
    """The signal that stops training. Before each step, several ranks agree whether one of them received a signal.

    A single rank also stops after the last step of a stage. Several ranks stop before the next stage.
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

    def raise_late_signal(self) -> None:
        """Raise the signal that this rank received after the ranks had agreed for the last time, if any.

        The other ranks may have stopped collecting signals, so that the same signal has ended their command.
        """
        if self._received and self.stopped_by is None:
            signal.raise_signal(self._received[0])


@contextmanager
def collecting_stop_signals() -> Iterator[list[signal.Signals]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP, so that the current step can finish; a second signal stops at once.

    The second signal is needed if the first one also killed a process that the step waits for, such as a compiler. A
    second signal within ``SAME_SIGNAL_SECONDS`` is ignored, because a single Ctrl-C may arrive twice: once for the
    process and once for its process group.
    """
    received: list[signal.Signals] = []
    received_at = 0.0

    def note(number: int, frame: object) -> None:
        nonlocal received_at
        leave_closed_terminal()
        if not received:
            received.append(signal.Signals(number))
            received_at = monotonic()
        elif monotonic() - received_at > SAME_SIGNAL_SECONDS:
            signal.signal(number, before[signal.Signals(number)])
            signal.raise_signal(number)

    with handling_signals(note) as before:
        yield received
