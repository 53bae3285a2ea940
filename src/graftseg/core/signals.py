"""Signals that stop a command, and redirection of output after the terminal was closed."""

import os
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

Handlers = dict[signal.Signals, Any]


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command: Ctrl-C, SIGTERM, and SIGHUP unless it is ignored (``nohup``)."""
    hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    return (signal.SIGINT, signal.SIGTERM, *hangup)


@contextmanager
def handling_signals(handle: Callable[[int, FrameType | None], None]) -> Iterator[Handlers]:
    """Call a function for every stop signal inside the block, only in the main thread. Yield the previous handlers."""
    before: Handlers = {number: signal.getsignal(number) for number in stop_signals()}
    install_handlers(dict.fromkeys(before, handle))
    try:
        yield before
    finally:
        install_handlers(before)


def install_handlers(handlers: Handlers) -> None:
    """Install handlers of signals, if this is the main thread."""
    with suppress(ValueError):  # not the main thread
        for number, handler in handlers.items():
            signal.signal(number, handler)


def leave_closed_terminal() -> None:
    """Discard all further output if the terminal was closed, because writing to a closed terminal is an error."""
    for handle in (1, 2):
        with suppress(OSError):  # a closed stream
            if stat.S_ISCHR(os.fstat(handle).st_mode) and not os.isatty(handle):
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, handle)
                os.close(null)
