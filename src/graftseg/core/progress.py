"""Progress for people: bars on the error stream, so that standard output stays clean for results."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TypeVar

TELL_SECONDS = 30.0
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
        if monotonic() - told > TELL_SECONDS:
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
