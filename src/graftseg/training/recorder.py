"""Progress of a training run: log lines, progress bar, TensorBoard."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from graftseg.core import ranks
from graftseg.core.errors import in_one_line
from graftseg.core.phrases import counted
from graftseg.core.progress import REPORT_SECONDS, error_console, plain_column, print_plain
from graftseg.core.run_folder import RunFolder, RunLog
from graftseg.training.clock import RemainingTime, StageWork


@dataclass(frozen=True)
class ProgressLabel:
    """The name of one of several runs, its position ("2 of 10") and the name of the ``next`` run. Empty for one run.

    ``later`` is the work of all later runs. With ``final_check``, two networks predict unlabeled scans after the last
    run.
    """

    name: str = ""
    position: str = ""
    next: str = ""
    later: tuple[StageWork, ...] = ()
    final_check: bool = False

    @property
    def prefix(self) -> str:
        """The start of a progress message."""
        name = " ".join(part for part in (self.name, self.position and f"({self.position})") if part)
        return f"{name}, " if name else ""

    @property
    def suffix(self) -> str:
        """The end of a progress message."""
        return f"; next: {self.next}" if self.next else ""


ONLY_RUN = ProgressLabel()
BASELINE = ProgressLabel("the baseline")
BEFORE_BASELINE = ProgressLabel(next=BASELINE.name, final_check=True)


def fold_labels(
    folds: int, *, baseline: bool, work: Sequence[StageWork] = (), baseline_work: Sequence[StageWork] = ()
) -> Sequence[ProgressLabel]:
    """Return the labels of all folds, followed by the labels of the baseline's folds if there is a baseline.

    ``work`` is the work of a fold, and ``baseline_work`` is the work of a fold of the baseline.
    """
    names = [f"fold {number}{of}" for of in ("", f" of {BASELINE.name}")[: 1 + baseline] for number in range(folds)]
    works = [*[tuple(work)] * folds, *[tuple(baseline_work)] * folds][: len(names)]
    labels = [ProgressLabel(name, f"{number} of {len(names)}") for number, name in enumerate(names, start=1)]
    later = [tuple(chain.from_iterable(works[number:])) for number in range(1, len(names) + 1)]
    following = zip(labels, [*names[1:], ""], later, strict=True)
    return [replace(label, next=name, later=work_left) for label, name, work_left in following]


WIDE_TERMINAL = 110
"""Minimum width of a terminal, in characters, to show the share of each phase in the step time."""


class NonFiniteLossError(Exception):
    """A loss term is not finite; ``step`` counts from 1 within the stage."""

    def __init__(self, step: int, term: str, value: float) -> None:
        super().__init__(f"term {term} is {value} at step {step}")
        self.step, self.term, self.value = step, term, value


class Recorder:
    """Collect loss terms on the device and log them in groups of ``every`` steps, so that no step waits for a copy.

    On a GPU, a group is copied to the host while the next steps run, and logged when the copy of the next group starts.
    Of several ranks, only rank 0 writes.
    """

    def __init__(
        self,
        run: RunFolder,
        work: Sequence[StageWork],
        done: int,
        *,
        every: int,
        tensorboard: bool,
        label: ProgressLabel = ONLY_RUN,
    ) -> None:
        self._log = RunLog(run.log_file, resume_at=done) if ranks.is_main() else None
        self._every = every
        self._waiting: list[LoggedStep] = []
        self._in_transfer: _Transfer | None = None
        self._last: dict[str, Any] | None = None
        self._shown: dict[str, Any] | None = None
        self._bar = _Bar(work, done, label)
        self._events = _events(run.tensorboard, done) if tensorboard and ranks.is_main() else None

    def __enter__(self) -> Self:
        self._bar.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.progress.stop()
        if self._log is not None:
            self._log.close()
        if self._events is not None:
            self._events.close()

    def add(self, fields: dict[str, Any], names: tuple[str, ...], values: Tensor) -> None:
        """Add a step: its log fields, the names of its loss terms, and their values followed by the total."""
        self._waiting.append(LoggedStep(fields, names, values))

    @property
    def is_full(self) -> bool:
        """Whether enough steps are waiting to be written."""
        return len(self._waiting) >= self._every

    def busy(self, note: str) -> None:
        """Show a note in the progress bar between two steps."""
        self._bar.note(note)

    def replan(self, work: Sequence[StageWork]) -> None:
        """Show the number of steps of other stages, and estimate the remaining time for them."""
        self._bar.replan(work)

    def leave_out(self, seconds: float) -> None:
        """Leave an interruption of the steps out of the measured pace."""
        self._bar.times.leave_out(seconds)

    def show(self, split: dict[str, float]) -> None:
        """Move the bar to the last written step; ``split`` is the mean time of each phase of a step, in seconds."""
        if self._last is not None and self._last is not self._shown:
            self._shown = self._last
            self._bar.show(self._last, split)

    def scores(self, line: dict[str, Any]) -> None:
        """Write a log line of validation scores, or of the Dice of training scans."""
        self._write([line])

    def send(self) -> None:
        """Start to copy the waiting steps and write the previous group; on a CPU, write everything at once."""
        earlier, self._in_transfer = self._in_transfer, self._start_transfer()
        self._write_steps(earlier)
        if self._in_transfer is not None and not self._in_transfer.from_gpu:
            self.flush()

    def flush(self) -> None:
        """Write all steps; raise NonFiniteLossError at the first term that is not finite."""
        earlier, self._in_transfer = self._in_transfer, None
        for transfer in (earlier, self._start_transfer()):
            self._write_steps(transfer)

    def _start_transfer(self) -> "_Transfer | None":
        steps, self._waiting = self._waiting, []
        return _Transfer(steps) if steps else None

    def _write_steps(self, transfer: "_Transfer | None") -> None:
        lines: list[dict[str, Any]] = []
        for (fields, names, _), (*terms, total) in transfer.read() if transfer else ():
            values = dict(zip(names, terms, strict=True))
            for name, value in values.items():
                if not math.isfinite(value):
                    self._write(lines)
                    raise NonFiniteLossError(fields["step"], name, value)
            lines.append({**fields, "terms": values, "total": total})
        self._write(lines)
        self._last = lines[-1] if lines else self._last

    def _write(self, lines: list[dict[str, Any]]) -> None:
        if self._log is not None:
            self._log.write(lines)
        if self._events is not None:
            for line in lines:
                for name, value in {**line.get("terms", {}), **line.get("validation", {})}.items():
                    self._events.add_scalar(f"{line['method']}/{name}", value, line["global_step"])


class LoggedStep(NamedTuple):
    """The log fields of a step, the names of its loss terms, and their values followed by the total, on the device."""

    fields: dict[str, Any]
    names: tuple[str, ...]
    values: Tensor


class _Transfer:
    """Loss values of a group of steps, copied from the device in the background."""

    def __init__(self, steps: list[LoggedStep]) -> None:
        self._steps = steps
        self._numbers = torch.cat([step.values for step in steps])
        self.from_gpu = self._numbers.is_cuda
        if self.from_gpu:
            device = self._numbers.device
            pinned = torch.empty(self._numbers.shape, dtype=self._numbers.dtype, pin_memory=True)
            self._numbers = pinned.copy_(self._numbers, non_blocking=True)
            self._arrival = torch.cuda.current_stream(device).record_event()

    def read(self) -> Iterator[tuple[LoggedStep, list[float]]]:
        """Wait for the copy and return every step with its values."""
        if self.from_gpu:
            self._arrival.synchronize()
        parts = torch.split(self._numbers, [len(step.values) for step in self._steps])
        return zip(self._steps, (part.tolist() for part in parts), strict=True)


def _events(folder: Path, done: int) -> Any:
    """Return a writer of TensorBoard, or None if it is not installed; drop events after step ``done``."""
    if find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard.writer import SummaryWriter

    return SummaryWriter(str(folder), purge_step=done + 1)


class _Bar:
    """A progress bar over all stages, with the remaining time and, on a wide terminal, the step time by phase.

    Without a terminal, a line is printed to stderr twice a minute instead.
    """

    def __init__(self, work: Sequence[StageWork], done: int, label: ProgressLabel) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress

        self._console = error_console()
        self.progress = Progress(
            plain_column("description"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            plain_column("fields[left]"),
            plain_column("fields[note]"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self.times, self._label, self._left = RemainingTime(work, label.later), label, ""
        self._total, self._reported_at = sum(stage.steps for stage in work), monotonic()
        self._task = self.progress.add_task("training", total=self._total, completed=done, left="", note="")

    def show(self, line: dict[str, Any], split: dict[str, float]) -> None:
        now, step, note = monotonic(), line["global_step"], f"loss {line['total']:.3f}"
        name, total = in_one_line(f"{self._label.prefix}{line['method']}"), sum(split.values()) or 1.0
        self.times.begin(line["stage"], step, now)
        is_due = now - self._reported_at >= REPORT_SECONDS
        if is_due or not self._left:
            seconds = self.times.left(step, now, split.get("batch", 0.0) / total)
            self._left = _format_left(seconds, has_next=bool(self._label.next))
        if is_due:
            self._reported_at = now
            self.times.restart(step, now)
        if not self._console.is_terminal:
            if is_due:
                left = f", {self._left}" if self._left else ""
                text = f"{name}: step {step} of {self._total}, {note}{left}{self._label.suffix}"
                print_plain(self._console, text)
            return
        if self._console.width >= WIDE_TERMINAL:
            shares = " ".join(f"{phase} {seconds / total:.0%}" for phase, seconds in split.items())
            note += f" · {1000 * total:.0f} ms: {shares}{self._label.suffix}"
        self.progress.update(self._task, completed=step, description=name, left=self._left, note=note)

    def note(self, note: str) -> None:
        self.progress.update(self._task, note=note)

    def replan(self, work: Sequence[StageWork]) -> None:
        self.times.stages, self._total = list(work), sum(stage.steps for stage in work)
        self.progress.update(self._task, total=self._total)


def _format_left(seconds: tuple[float, float] | None, *, has_next: bool) -> str:
    """Return the remaining time of a run and, if other runs follow, of all runs."""
    if seconds is None:
        return ""
    own, everything = seconds
    if not has_next or everything == own:
        return f"{_format_minutes(everything)} left"
    return f"{_format_minutes(own)} left, {_format_minutes(everything)} with all later runs"


def _format_minutes(seconds: float) -> str:
    minutes = round(seconds / 60)
    return "less than a minute" if minutes < 1 else counted(minutes, "minute")
