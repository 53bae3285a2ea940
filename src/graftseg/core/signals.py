"""Signals that stop a command, and redirection of output after the terminal was closed."""

import os
import signal
import stat
from contextlib import suppress


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command: Ctrl-C, SIGTERM, and SIGHUP unless it is ignored (``nohup``)."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)


def leave_closed_terminal() -> None:
    """Discard all further output if the terminal was closed, because writing to a closed terminal is an error."""
    for handle in (1, 2):
        with suppress(OSError):  # a closed stream
            if stat.S_ISCHR(os.fstat(handle).st_mode) and not os.isatty(handle):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, handle)
                os.close(null)
