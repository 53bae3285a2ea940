"""Tasks that rank 0 gives to all ranks of a training, for example predictions of held-out scans."""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import torch

from graftseg.core import ranks
from graftseg.core.errors import UserError
from graftseg.core.tasks import LOCAL, Executor, Item, Result, Work

Value = TypeVar("Value")
Outcome = tuple[Any, UserError | None]
"""The result or the error of a task."""


def main_first_with_help(function: Callable[[Executor], Value]) -> Value:
    """Call a function on rank 0, whose tasks run on all ranks. Then call it on the other ranks, without tasks.

    The function saves its result, so that the other ranks can read it. With one rank, tasks run in this process.
    """
    count = ranks.count()
    if count == 1:
        return function(LOCAL)
    if not ranks.is_main():
        _help(ranks.rank(), count)
        return ranks.main_first(partial(function, LOCAL))
    return ranks.main_first(partial(_with_help, function, RankExecutor(count)))


def _with_help(function: Callable[[Executor], Value], executor: "RankExecutor") -> Value:
    try:
        return function(executor)
    finally:
        ranks.broadcast(b"")  # the end of the tasks


def _help(rank: int, count: int) -> None:
    """Run tasks of rank 0 until it needs no more help."""
    while message := ranks.broadcast():
        function, items = pickle.loads(message)  # noqa: S301 - ranks trust each other
        _exchange(_run(function, items[rank::count]), rank, count)


def _run(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Outcome]:
    """Run the tasks of this rank."""
    outcomes: list[Outcome] = []
    with ranks.alone():
        for item in items:
            try:
                outcomes.append((function(item), None))
            except UserError as error:
                outcomes.append((None, error))
            except Exception as error:
                failure = ranks.lost_rank(
                    f"a task failed ({type(error).__name__}: {' '.join(str(error).split())[:200]})"
                )
                outcomes.append((None, failure))
    return outcomes


def _exchange(outcomes: list[Outcome], rank: int, count: int) -> list[list[Outcome]]:
    """Return the outcomes of each rank."""
    own = pickle.dumps(outcomes)
    parts = [ranks.broadcast(own if source == rank else b"", source) for source in range(count)]
    return [pickle.loads(part) for part in parts]  # noqa: S301


class RankExecutor:
    """Divides tasks among ranks. Rank 0 uses it, and the other ranks wait for its tasks in ``_help``."""

    workers: int | None = None

    def __init__(self, count: int) -> None:
        self._count = count

    def choose_device(self, name: str) -> torch.device:
        """Return the device by name; each rank has its own GPU as the current one."""
        return torch.device(name)

    def groups(self, items: Sequence[Item], device: torch.device | None = None) -> list[list[Item]]:
        """Return one group for each rank, or fewer if there are fewer items."""
        size = -(-len(items) // self._count)
        return [list(items[start : start + size]) for start in range(0, len(items), size or 1)]

    @contextmanager
    def running(
        self, function: Callable[[Item], Result], items: Sequence[Item], work: Work
    ) -> Iterator[Sequence[Callable[[], Result]]]:
        """Run all tasks, and yield a function for each item, which returns the result or raises the error."""
        ranks.broadcast(pickle.dumps((function, list(items))))
        outcomes = _exchange(_run(function, items[:: self._count]), 0, self._count)
        yield [partial(_result, outcomes[index % self._count][index // self._count]) for index in range(len(items))]


def _result(outcome: Outcome) -> Any:
    result, error = outcome
    if error is not None:
        raise error
    return result
