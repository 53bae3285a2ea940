"""View a run, a folder of data, a folder of label maps or one scan in the browser.

The live page of a training is served by a child process, so that it does not slow the training down.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep
from typing import IO

from graftseg.core.reading import read_text
from graftseg.core.run_folder import RunFolder
from graftseg.recipes.baseline import own_baseline
from graftseg.reporting.run_page import render_report
from graftseg.reporting.viewer.access import Access
from graftseg.reporting.viewer.case_reader import CaseReader
from graftseg.reporting.viewer.collection import collect, require_case
from graftseg.reporting.viewer.launch import listen, require_front_end, serve
from graftseg.reporting.viewer.live import live_routes
from graftseg.reporting.viewer.server import Viewer, create_app

POLL_SECONDS = 0.2
GRACE_SECONDS = 20.0  # time for which the server continues after the training, so that open pages can load the report


class Parent:
    """The process that trains. When it ends, its end of the pipe is closed."""

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


def view(
    what: Path, print_address: Callable[[str], None], *, case: str = "", port: int = 0, browser: bool = True
) -> None:
    """Show ``what`` in the browser until Ctrl-C. ``print_address`` is called with the address of the page."""
    require_front_end()
    _serve(what, print_address, case, port, browser)


def follow(
    run: Path, pipe: IO[bytes], print_address: Callable[[str], None], *, port: int = 0, browser: bool = True
) -> None:
    """Show a run until its training ends. The training process closes ``pipe`` when it ends."""
    require_front_end()
    parent = Parent(pipe)
    if wait_for_run(RunFolder(run), parent):
        _serve(run, print_address, "", port, browser, parent)


def _serve(
    what: Path, print_address: Callable[[str], None], case: str, port: int, browser: bool, parent: Parent | None = None
) -> None:
    collection = collect(what)
    require_case(collection, case, what)
    run = RunFolder(what)
    is_live = parent is not None or (run.exists and run.status == "running")
    viewer = Viewer(collection, CaseReader(collection.cases), report_of(run), is_live)
    # the page opens the requested case, or the first one unless it sorts the cases of a folder
    if not is_live and (case or collection.kind in ("run", "scan")):
        names = [viewed.name for viewed in collection.cases]
        viewer.reader.read_ahead(names.index(case) if case else 0)
    listener = listen(port)
    access = Access(listener.getsockname()[1])
    routes = live_routes(run, parent.has_ended if parent else None) if run.exists else []
    should_stop = parent.can_close if parent else None
    serve(create_app(viewer, access, routes), listener, access, print_address, case, browser, should_stop)


def report_of(run: RunFolder) -> Callable[[], str] | None:
    """Return a function that renders the report of a run, or None if this is not a run."""
    if not run.exists and not run.folds_file.is_file():
        return None

    def render() -> str:
        with TemporaryDirectory() as folder:
            target = Path(folder) / "report.html"
            return read_text(render_report(run.path, target, baseline=own_baseline(run), has_links=True))

    return render


def start_live_page(run: Path) -> "subprocess.Popen[bytes]":
    """Start a child process that serves the live page of a run and prints its address.

    Keep a reference to the child: it ends some seconds after its input is closed, which happens when this process ends.
    """
    command = [sys.executable, "-m", "graftseg", "view", str(run), "--follow"]
    # a new session, so that Ctrl-C stops the training and not the page
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603 - our own command


def wait_for_run(run: RunFolder, parent: Parent) -> bool:
    """Wait until a run has started or resumed. Return False if the training process has ended without it."""
    while not run.exists or run.status not in ("running", "finished"):
        if parent.has_ended():
            return False
        sleep(POLL_SECONDS)
    return True
