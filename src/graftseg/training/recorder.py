"""What a training leaves for people while it runs: log lines, a progress bar, TensorBoard."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from graftseg.core.progress import REPORT_SECONDS
from graftseg.core.run_folder import RunFolder, RunLog


@dataclass(frozen=True)
class Leg:
    """A training on a way of several: what it is called, ``place`` among how many, and what ``follows`` it.

    The only one has none of these, and the one that a folder is named for has no name.
    """

    name: str = ""
    place: str = ""
    follows: str = ""

    @property
    def start(self) -> str:
        """How a line about it begins."""
        name = " ".join(part for part in (self.name, self.place and f"({self.place})") if part)
        return f"{name}, " if name else ""

    @property
    def end(self) -> str:
        """How a line about it ends."""
        return f"; {self.follows} comes next" if self.follows else ""


ALONE = Leg()
BASELINE = Leg("the baseline")
BEFORE_BASELINE = Leg(follows=BASELINE.name)


def fold_legs(folds: int, *, baseline: bool) -> Sequence[Leg]:
    """Those of all folds and then, where a baseline is trained, of all of its folds."""
    names = [f"fold {number}{of}" for of in ("", f" of {BASELINE.name}")[: 1 + baseline] for number in range(folds)]
    legs = [Leg(name, f"{number} of {len(names)}") for number, name in enumerate(names, start=1)]
    return [replace(leg, follows=name) for leg, name in zip(legs, [*names[1:], ""], strict=True)]


ROOMY = 110


class NonFiniteLossError(Exception):
    """A term of the loss is not a number; ``step`` counts from 1 within the stage."""

    def __init__(self, step: int, term: str, value: float) -> None:
        super().__init__(f"term {term} is {value} at step {step}")
        self.step, self.term, self.value = step, term, value


class Recorder:
    """Collects the terms of each step on their device and writes them out together, so that no step waits.

    From a GPU they travel while the next ones are made, and are written with the next ones' sending.
    """

    def __init__(
        self, run: RunFolder, total_steps: int, done: int, *, every: int, tensorboard: bool, leg: Leg = ALONE
    ) -> None:
        self._log = RunLog(run.log_file, resume_at=done)
        self._every = every
        self._waiting: list[Noted] = []
        self._on_the_way: _Parcel | None = None
        self._last: dict[str, Any] | None = None
        self._shown: dict[str, Any] | None = None
        self._bar = _Bar(total_steps, done, leg)
        self._events = _events(run.tensorboard, done) if tensorboard else None

    def __enter__(self) -> Self:
        self._bar.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.progress.stop()
        self._log.close()
        if self._events is not None:
            self._events.close()

    def add(self, place: dict[str, Any], names: tuple[str, ...], values: Tensor) -> None:
        """Take note of a step: stage, method, step and learning rate; the terms by name and, last, their total."""
        self._waiting.append(Noted(place, names, values))

    @property
    def is_full(self) -> bool:
        """Whether it is time to write."""
        return len(self._waiting) >= self._every

    def busy(self, note: str) -> None:
        """Say in the bar what is going on between two steps."""
        self._bar.note(note)

    def show(self, split: dict[str, float]) -> None:
        """Move the bar to the last step that was written, unless it is there already."""
        if self._last is not None and self._last is not self._shown:
            self._shown = self._last
            self._bar.show(self._last, split)

    def validation(self, place: dict[str, Any], scores: dict[str, float]) -> None:
        """Write a line of validation scores."""
        self._write([{**place, "validation": scores}])

    def forward(self) -> None:
        """Send the waiting steps and write those that were sent before; on a CPU all are written at once."""
        earlier, self._on_the_way = self._on_the_way, self._sent()
        self._write_steps(earlier)
        if self._on_the_way is not None and self._on_the_way.is_there:
            self.flush()

    def flush(self) -> None:
        """Write all steps; the first term that is not finite ends the run."""
        parcels, self._on_the_way = [self._on_the_way, self._sent()], None
        for parcel in parcels:
            self._write_steps(parcel)

    def _sent(self) -> "_Parcel | None":
        steps, self._waiting = self._waiting, []
        return _Parcel(steps) if steps else None

    def _write_steps(self, parcel: "_Parcel | None") -> None:
        lines: list[dict[str, Any]] = []
        for (place, names, _), (*terms, total) in parcel.read() if parcel else ():
            values = dict(zip(names, terms, strict=True))
            for name, value in values.items():
                if not math.isfinite(value):
                    self._write(lines)
                    raise NonFiniteLossError(place["step"], name, value)
            lines.append({**place, "terms": values, "total": total})
        self._write(lines)
        self._last = lines[-1] if lines else self._last

    def _write(self, lines: list[dict[str, Any]]) -> None:
        self._log.write(lines)
        if self._events is not None:
            for line in lines:
                for name, value in {**line.get("terms", {}), **line.get("validation", {})}.items():
                    self._events.add_scalar(f"{line['method']}/{name}", value, line["global_step"])


class Noted(NamedTuple):
    """A step: where it stands, the names of its terms, and on the device their values and, last, their total."""

    place: dict[str, Any]
    names: tuple[str, ...]
    values: Tensor


class _Parcel:
    """The numbers of some steps on their way from the device."""

    def __init__(self, steps: list[Noted]) -> None:
        self._steps = steps
        self._numbers = torch.cat([step.values for step in steps])
        self.is_there = not self._numbers.is_cuda
        if not self.is_there:
            device = self._numbers.device
            there = torch.empty(self._numbers.shape, dtype=self._numbers.dtype, pin_memory=True)
            self._numbers = there.copy_(self._numbers, non_blocking=True)
            self._arrival = torch.cuda.current_stream(device).record_event()

    def read(self) -> Iterator[tuple[Noted, list[float]]]:
        """Every step with its numbers, once they have arrived."""
        if not self.is_there:
            self._arrival.synchronize()
        parts = torch.split(self._numbers, [len(step.values) for step in self._steps])
        return zip(self._steps, (part.tolist() for part in parts), strict=True)


class Events(Protocol):
    """The part of TensorBoard's writer that is used."""

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        """Add a point to a curve."""

    def close(self) -> None:
        """Close the file."""


def _events(folder: Path, done: int) -> Events | None:
    """TensorBoard's writer where TensorBoard is installed, else None; steps after ``done`` are forgotten."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard.writer import SummaryWriter

    writer: Events = SummaryWriter(str(folder), purge_step=done + 1)
    return writer


class _Bar:
    """One bar over all stages, with the time that remains and, where there is room, the split of the step time.

    Without a terminal it is a line on the error stream twice a minute.
    """

    def __init__(self, total: int, done: int, leg: Leg) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._total, self._leg, self._told, self._pace = total, leg, monotonic(), _Pace()
        self._task = self.progress.add_task("training", total=total, completed=done, note="")

    def show(self, line: dict[str, Any], split: dict[str, float]) -> None:
        step, note = line["global_step"], f"loss {line['total']:.3f}"
        name = f"{self._leg.start}{line['method']}"
        if not self._console.is_terminal:
            self._tell(f"{name}: step {step} of {self._total}, {note}", line["stage"], step)
            return
        if self._console.width >= ROOMY:
            whole = sum(split.values()) or 1.0
            shares = " ".join(f"{phase} {seconds / whole:.0%}" for phase, seconds in split.items())
            note += f" · {1000 * whole:.0f} ms: {shares}{self._leg.end}"
        self.progress.update(self._task, completed=step, description=name, note=note)

    def note(self, note: str) -> None:
        self.progress.update(self._task, note=note)

    def _tell(self, text: str, stage: int, step: int) -> None:
        now = monotonic()
        pace = self._pace.seconds(stage, step, now)
        if now - self._told < REPORT_SECONDS:
            return
        self._told = now
        self._pace.measure_from(step, now)
        left = f", {_spoken(pace * (self._total - step))} left at this pace" if pace and step < self._total else ""
        self._console.print(f"{text}{left}{self._leg.end}", soft_wrap=True, highlight=False)


class _Pace:
    """Seconds of a step, since the line that was told last.

    Stages differ in their pace, so that only the latest one counts, and its first steps may hold a compilation, so that
    it is measured from where they are done.
    """

    def __init__(self) -> None:
        self._stage: int | None = None
        self._step, self._at = 0, 0.0

    def seconds(self, stage: int, step: int, now: float) -> float | None:
        """Of a step of this stage, or None where that is not known yet."""
        if stage != self._stage:
            self._stage = stage
            self.measure_from(step, now)
        return (now - self._at) / (step - self._step) if step > self._step else None

    def measure_from(self, step: int, now: float) -> None:
        """Forget what was before this step."""
        self._step, self._at = step, now


def _spoken(seconds: float) -> str:
    minutes = round(seconds / 60)
    return "less than a minute" if minutes < 1 else "1 minute" if minutes == 1 else f"{minutes} minutes"
