"""Progress for people: bars on the error stream, so that standard output stays clean for results."""

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TypeVar

REPORT_SECONDS = 30.0
Item = TypeVar("Item")
Result = TypeVar("Result")


def track(items: Iterable[Item], description: str, total: int | None = None) -> Iterator[Item]:
    """Yield the items while a bar on stderr counts them; without a terminal, a line now and then does."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield from _told(items, description, total, console.print)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        yield from progress.track(items, total=total, description=description)


def _told(items: Iterable[Item], description: str, total: int | None, tell: Callable[..., None]) -> Iterator[Item]:
    """Yield the items and tell twice a minute how many were done."""
    told = monotonic()
    for done, item in enumerate(items):
        if monotonic() - told > REPORT_SECONDS:
            told = monotonic()
            tell(f"{description}: {done}" + (f" of {total}" if total else ""), soft_wrap=True, highlight=False)
        yield item


def in_parallel(
    function: Callable[[Item], Result], items: Sequence[Item], description: str, workers: int | None = None
) -> list[Result]:
    """Results of ``function`` in the order of ``items``, from a few threads, with a progress bar.

    Threads, since decompression and numpy let go of the interpreter. After a failure or an interrupt no
    further item is begun.
    """
    pool = ThreadPoolExecutor(workers or min(4, os.cpu_count() or 1))
    try:
        return list(track(pool.map(function, items), description, total=len(items)))
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@dataclass
class ScanProgress:
    """Counts scans, and the windows of the scan in hand; ``show`` is told after every change."""

    scans: int
    show: Callable[["ScanProgress"], None] = lambda meter: None
    clock: Callable[[], float] = monotonic
    done: int = 0
    windows: int = 0
    of_windows: int = 0
    _all: int = 0
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self._began = self.clock()

    def begin(self, windows: int) -> None:
        """A scan of so many windows begins."""
        self.windows, self.of_windows = 0, windows
        self.show(self)

    def tick(self, windows: int) -> None:
        """So many windows were predicted."""
        self.windows += windows
        self._all += windows
        self.show(self)

    def end(self) -> None:
        """The scan in hand is done, well or not."""
        self.done, self.windows, self.of_windows = self.done + 1, 0, 0
        self.show(self)

    @property
    def share(self) -> float:
        """How many scans are done, that in hand in part."""
        return self.done + (min(self.windows / self.of_windows, 1) if self.of_windows else 0)

    @property
    def said(self) -> str:
        """Where the work stands, and how fast it goes."""
        parts = [f"{self.done} of {self.scans} scans"]
        if self.of_windows:
            parts.append(f"window {self.windows} of {self.of_windows}")
        seconds = self.clock() - self._began
        if self._all and seconds > 0:
            parts.append(f"{self._all / seconds:.3g} windows/s")
        return ", ".join(parts)


@contextmanager
def scan_progress(scans: int, description: str) -> Iterator[ScanProgress]:
    """A meter that people see."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        tell = partial(console.print, soft_wrap=True, highlight=False)
        yield ScanProgress(scans, now_and_then(tell, description))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(description, total=scans, said="")
        yield ScanProgress(scans, lambda meter: progress.update(task, completed=meter.share, said=meter.said))


def now_and_then(tell: Callable[[str], None], description: str) -> Callable[[ScanProgress], None]:
    """What tells twice a minute where a meter stands."""
    told: list[float] = []

    def show(meter: ScanProgress) -> None:
        now = meter.clock()
        if not told:
            told.append(now)
        elif now - told[0] > REPORT_SECONDS:
            told[0] = now
            tell(f"{description}: {meter.said}")

    return show


@contextmanager
def silence(*packages: str, below: int) -> Iterator[None]:
    """No warnings, and of these packages no lines in a log under a level, for as long as the block lasts."""
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
