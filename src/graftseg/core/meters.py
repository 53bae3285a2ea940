"""How fast scans are predicted, for people: a bar on the error stream or, without a terminal, a line now and then."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import monotonic

from graftseg.core.progress import TELL_SECONDS


@dataclass
class Meter:
    """Counts scans, and the windows of the scan in hand; ``show`` is told after every change."""

    scans: int
    show: Callable[["Meter"], None] = lambda meter: None
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
def metered(scans: int, description: str) -> Iterator[Meter]:
    """A meter that people see."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield Meter(scans, now_and_then(lambda said: console.print(said, soft_wrap=True, highlight=False), description))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(description, total=scans, said="")
        yield Meter(scans, lambda meter: progress.update(task, completed=meter.share, said=meter.said))


def now_and_then(tell: Callable[[str], None], description: str) -> Callable[[Meter], None]:
    """What tells twice a minute where a meter stands."""
    told: list[float] = []

    def show(meter: Meter) -> None:
        now = meter.clock()
        if not told:
            told.append(now)
        elif now - told[0] > TELL_SECONDS:
            told[0] = now
            tell(f"{description}: {meter.said}")

    return show
