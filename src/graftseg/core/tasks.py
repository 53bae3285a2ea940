"""Independent tasks of a command. They run in this process, on all ranks of a training, or on a Ray cluster.

A task calls a function with an item. On a cluster, the function and the item are pickled and sent to another machine.
If that machine dies, the task runs again. Each task must therefore skip finished work and continue unfinished work.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from graftseg.core import ranks
from graftseg.core.devices import choose_device
from graftseg.core.errors import Code, StoppedError, UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
Task = Callable[[Item], Result]
Results = Sequence[Callable[[], Result]]  # functions that return the result of a task, or raise its error
Outcome = tuple[Any, UserError | None]  # the result or the error of a task
RAY = "ray"


@dataclass(frozen=True)
class Work:
    """A description of the tasks of a command."""

    description: str  # text for the progress bar
    reads: tuple[Path, ...]  # inputs, which all workers must see
    writes: tuple[Path, ...]  # output folders, which all workers must see
    device: torch.device | None = None  # device of each task, or None if a task needs only one core


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
        self, function: Task[Item, Result], items: Sequence[Item], work: Work
    ) -> AbstractContextManager[Results[Result]]:
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
    def running(self, function: Task[Item, Result], items: Sequence[Item], work: Work) -> Iterator[Results[Result]]:
        """Yield functions that call ``function``."""
        yield [partial(function, item) for item in items]


LOCAL = LocalExecutor()


@dataclass
class RankExecutor:
    """An executor of rank 0 that divides tasks among ``count`` ranks. ``main_first_with_help`` creates it."""

    count: int
    workers: int | None = None

    def choose_device(self, name: str) -> torch.device:
        """Return the device by name; each rank has its own GPU as the current one."""
        return torch.device(name)

    def groups(self, items: Sequence[Item], device: torch.device | None = None) -> list[list[Item]]:
        """Return one group for each rank, or fewer if there are fewer items."""
        size = -(-len(items) // self.count)
        return [list(items[start : start + size]) for start in range(0, len(items), size or 1)]

    @contextmanager
    def running(self, function: Task[Item, Result], items: Sequence[Item], work: Work) -> Iterator[Results[Result]]:
        """Run all tasks, and yield functions that return the results."""
        ranks.broadcast(pickle.dumps((function, list(items))))
        outcomes = _run_and_exchange(function, items, 0, self.count)
        yield [partial(_result, outcomes[index % self.count][index // self.count]) for index in range(len(items))]


def main_first_with_help(function: Callable[[Executor], Result]) -> Result:
    """Call a function on rank 0, and run its tasks on all ranks. Then call it on the other ranks.

    The function must save the results of its tasks, so that it finds them on the other ranks and starts no tasks there.
    With one rank, tasks run in this process.
    """
    count = ranks.count()
    if count == 1:
        return function(LOCAL)
    if not ranks.is_main():
        while message := ranks.broadcast():
            task, items = pickle.loads(message)  # noqa: S301 - ranks trust each other
            _run_and_exchange(task, items, ranks.rank(), count)
        return ranks.main_first(partial(function, LOCAL))

    def with_help() -> Result:
        end_of_tasks = b""
        try:
            result = function(RankExecutor(count))
        except BaseException:
            ranks.announce_failure(end_of_tasks)
            raise
        ranks.broadcast(end_of_tasks)
        return result

    return ranks.main_first(with_help)


def _run_and_exchange(function: Task[Any, Any], items: Sequence[Any], rank: int, count: int) -> list[list[Outcome]]:
    """Run every ``count``-th task, and return the outcomes of the tasks of each rank."""
    outcomes: list[Outcome] = []
    with ranks.alone():
        for item in items[rank::count]:
            try:
                outcomes.append((function(item), None))
            except UserError as error:
                outcomes.append((None, error))
            except Exception as error:
                finding = f"a task failed ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
                outcomes.append((None, ranks.lost_rank(finding)))
    own = pickle.dumps(outcomes)
    parts = [ranks.broadcast(own if source == rank else b"", source) for source in range(count)]
    return [pickle.loads(part) for part in parts]  # noqa: S301


def _result(outcome: Outcome) -> Any:
    result, error = outcome
    if error is not None:
        raise error
    return result


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
        raise UserError(Code.OPTION_INVALID, f"--on {on}", "not a Ray cluster", remedy)
    from graftseg.core.ray_tasks import connected

    with connected(on) as executor:
        yield executor
