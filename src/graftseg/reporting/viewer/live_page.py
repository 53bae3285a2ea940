"""The live page of a training, served by a child process so that it does not slow the training down."""

import subprocess
import sys
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import IO

from graftseg.core.run_folder import RunFolder

POLL_SECONDS = 0.2
GRACE_SECONDS = 20.0
"""Time for which the server continues after the training, so that open pages can load the report."""


def start_live_page(run: Path) -> "subprocess.Popen[bytes]":
    """Start a child process that serves the live page of a run and prints its address.

    Keep a reference to the child: it ends some seconds after its input is closed, which happens when this process ends.
    """
    command = [sys.executable, "-m", "graftseg", "view", str(run), "--follow"]
    # a new session, so that Ctrl-C stops the training and not the page
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - our own command


def wait_for_run(run: RunFolder, parent: "Parent") -> bool:
    """Wait until a run has started or resumed. Return False if the training process has ended without it."""
    while not run.exists or run.status not in ("running", "finished"):
        if parent.has_ended():
            return False
        sleep(POLL_SECONDS)
    return True


class Parent:
    """The process that trains. Its end of the pipe is closed when it ends."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.ended_at: float | None = None
        Thread(target=self._wait, args=(pipe,), daemon=True).start()

    def _wait(self, pipe: IO[bytes]) -> None:
        pipe.read()
        self.ended_at = monotonic()

    def has_ended(self) -> bool:
        """Return whether the training process has ended."""
        return self.ended_at is not None

    def can_close(self) -> bool:
        """Return whether the training process ended more than ``GRACE_SECONDS`` ago."""
        return self.ended_at is not None and monotonic() - self.ended_at > GRACE_SECONDS
