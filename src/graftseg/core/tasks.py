"""Independent tasks of a command. They run in this process, on a Ray cluster (``ray_tasks``) or on all ranks of a
training run (``rank_tasks``).

A task calls a function with an item. On a cluster, the function and the item are pickled and sent to another machine.
If that machine dies, the task runs again. Each task must therefore skip finished work and continue unfinished work.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import torch

from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, StoppedError, UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
RAY = "ray"


@dataclass(frozen=True)
class Work:
    """A description of the tasks of a command.

    - ``description``: text for the progress bar.
    - ``reads``: inputs, which all workers must see.
    - ``writes``: output folders, which all workers must see.
    - ``device``: device of each task, or None if a task needs only one core.
    """

    description: str
    reads: tuple[Path, ...]
    writes: tuple[Path, ...]
    device: torch.device | None = None


class Executor(Protocol):
    """A way to run tasks. ``workers`` is the number of threads in which a task reads scans, or None for the default."""

    workers: int | None

    def choose_device(self, name: str) -> torch.device:
        """Return the device of the tasks by name."""
        ...

    def groups(self, items: Sequence[Item], device: torch.device | None = None) -> list[list[Item]]:
        """Divide many small items into groups, one for each task."""
        ...

    def running(
        self, function: Callable[[Item], Result], items: Sequence[Item], work: Work
    ) -> AbstractContextManager[Sequence[Callable[[], Result]]]:
        """Yield one function for each item, which returns the result or raises the error of its task.

        Tasks start now, or when their result is requested. Call these functions in the order of the items. Tasks that
        still run at the end of the block are canceled.
        """
        ...


class LocalExecutor:
    """An executor that runs each task in this process, when its result is requested."""

    workers: int | None = None

    def choose_device(self, name: str) -> torch.device:
        """Return a device of this machine."""
        return choose_device(name)

    def groups(self, items: Sequence[Item], device: torch.device | None = None) -> list[list[Item]]:
        """Return one group with all items."""
        return [list(items)]

    @contextmanager
    def running(
        self, function: Callable[[Item], Result], items: Sequence[Item], work: Work
    ) -> Iterator[Sequence[Callable[[], Result]]]:
        """Yield functions that call ``function``."""
        yield [partial(function, item) for item in items]


LOCAL = LocalExecutor()


class TasksStoppedError(StoppedError):
    """Tasks were canceled by Ctrl-C, SIGTERM or SIGHUP. Started tasks have saved their state."""

    def __init__(self, signal: int, finished: int, tasks: int) -> None:
        super().__init__(signal, finished)
        self.args = (f"stopped after {finished} of {tasks} tasks; started tasks continue from their saved state",)


@contextmanager
def open_executor(on: str | None) -> Iterator[Executor]:
    """Yield the executor for the option ``--on``: None for this process, ``ray``, or ``ray://HOST:PORT``."""
    if on is None:
        yield LOCAL
        return
    if on != RAY and not on.startswith(f"{RAY}://"):
        remedy = "use ray, or ray://HOST:PORT, or omit --on"
        raise UserError(Code.OPTION_INVALID, f"--on {on}", "not a place where tasks can run", remedy)
    from graftseg.core.ray_tasks import connected

    with connected(on) as executor:
        yield executor
