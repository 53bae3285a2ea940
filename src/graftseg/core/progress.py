"""Progress on stderr, because stdout contains results only, and parallel calls with progress."""

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TextColumn

from graftseg.core.errors import in_one_line

REPORT_SECONDS = 30.0  # seconds between progress lines if stderr is not a terminal
Item = TypeVar("Item")
Result = TypeVar("Result")
Show = Callable[[float, str], None]  # a function that shows the completed amount and a text such as ``3 of 10``
_is_hidden = False


def hide_progress(hidden: bool) -> None:
    """Hide or show progress in this process. It is hidden if stderr must contain only JSON."""
    global _is_hidden
    _is_hidden = hidden


def error_console() -> "Console":
    """Return a console on stderr that prints nothing while progress is hidden."""
    from rich.console import Console

    return Console(stderr=True, quiet=_is_hidden)


def print_plain(console: "Console", text: str) -> None:
    """Print plain text, without rich markup."""
    console.print(in_one_line(text), soft_wrap=True, highlight=False, markup=False)


def plain_column(name: str) -> "TextColumn":
    """Return a column of a progress bar that shows a value of the task as plain text, without rich markup."""
    from rich.progress import TextColumn

    return TextColumn(f"{{task.{name}}}", markup=False)


@contextmanager
def progress_bar(description: str, total: float | None) -> Iterator[Show]:
    """Yield a function that shows progress: a bar on a terminal, otherwise a line every 30 seconds."""
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    console = error_console()
    if console.is_terminal:
        columns = (plain_column("description"), BarColumn(), plain_column("fields[text]"), TimeRemainingColumn())
        # results printed during the progress go to stdout, unless both are on a terminal
        with Progress(*columns, console=console, redirect_stdout=sys.stdout.isatty()) as progress:
            task = progress.add_task(in_one_line(description), total=total, text="")
            yield lambda completed, text: progress.update(task, completed=completed, text=text)
        return
    last_report = monotonic()

    def report(completed: float, text: str) -> None:
        nonlocal last_report
        now = monotonic()
        if now - last_report > REPORT_SECONDS:
            last_report = now
            print_plain(console, f"{description}: {text}")

    yield report


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items and show how many are done."""
    with progress_bar(description, total) as show:
        done = 0
        for done, item in enumerate(items, start=1):
            yield item
            show(done, f"{done} of {total}" if total else f"{done}")


def in_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], description: str, workers: int | None = None
) -> list[Result]:
    """Call ``function`` in threads, by default up to four; return the results in the order of ``items``.

    Show the progress. After a failure or an interrupt, start no further item. Threads are sufficient because
    decompression and numpy release the interpreter lock.
    """
    pool = ThreadPoolExecutor(workers or min(4, os.cpu_count() or 1))
    try:
        return list(track(pool.map(function, items), description, total=len(items)))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@dataclass
class ScanProgress:
    """Counter of predicted scans and of predicted windows of the current scan. Every change calls ``show``."""

    scans: int
    show: Show
    clock: Callable[[], float] = monotonic

    def __post_init__(self) -> None:
        self._start, self._done, self._all_windows = self.clock(), 0, 0
        self._windows, self._windows_of_scan = 0, 0

    def begin(self, windows: int) -> None:
        """Start a scan of ``windows`` windows."""
        self._update(0, windows)

    def tick(self, windows: int) -> None:
        """Count ``windows`` more predicted windows."""
        self._all_windows += windows
        self._update(self._windows + windows, self._windows_of_scan)

    def end(self) -> None:
        """Finish the current scan, successfully or not."""
        self._done += 1
        self._update(0, 0)

    def _update(self, windows: int, windows_of_scan: int) -> None:
        """Show the number of completed scans, including a fraction of the current scan, and the speed."""
        self._windows, self._windows_of_scan = windows, windows_of_scan
        fraction, parts = 0.0, [f"{self._done} of {self.scans} scans"]
        if windows_of_scan:
            fraction = min(windows / windows_of_scan, 1)
            parts.append(f"window {windows} of {windows_of_scan}")
        seconds = self.clock() - self._start
        if self._all_windows and seconds > 0:
            parts.append(f"{self._all_windows / seconds:.3g} windows/s")
        self.show(self._done + fraction, ", ".join(parts))


@contextmanager
def silence(*packages: str, below: int) -> Iterator[None]:
    """Hide all Python warnings inside the block, and log messages of ``packages`` below the level ``below``."""
    loggers = [logging.getLogger(name) for name in packages]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(below)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
