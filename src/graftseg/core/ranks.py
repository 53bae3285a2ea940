"""The ranks of a training: processes, started by torchrun, that share the batch of every step.

Without torchrun there is a single rank, and no function here communicates. Rank r of W ranks takes the rows r, r + W,
r + 2W, ... of a batch. Thanks to this order, each rank can concatenate batches, or split a batch into halves, without
the rows of other ranks.

The loss of a step is the mean of the losses of all ranks. A loss that is not a mean over images sums its parts over
ranks with ``all_sum``, and then has the same value on all ranks. The gradient of ``all_sum`` is also a sum over ranks.
"""

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous

from graftseg.core.errors import Code, UserError
from graftseg.core.heartbeat import Heartbeat
from graftseg.core.progress import hide_progress
from graftseg.core.torchrun import TIMEOUT_VARIABLE, is_launched, restarts, timeout_seconds

Result = TypeVar("Result")
PATIENCE = timedelta(days=7)
"""Longest time that ranks wait for a rank that works alone, for example to prepare scans, and has a heartbeat."""


@dataclass(frozen=True)
class _Group:
    """The connected ranks."""

    rank: int  # number of this rank
    count: int  # number of ranks
    patient_group: Any  # process group with the timeout ``PATIENCE``
    timeout: float  # timeout of all other communication, in seconds
    heartbeat: Heartbeat  # shows whether a rank works while others wait for it


_group: _Group | None = None
_joined: _Group | None = None  # the group of this process, also while it acts as the only rank (``alone``)


def shares_gpu() -> bool:
    """Return whether torchrun started more ranks on this machine than it has GPUs."""
    return is_launched() and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count()


def local_device(name: str) -> str:
    """Return the name of this rank's device for ``--device``. Ranks share a GPU only if it is named by number."""
    if not is_launched() or name == "cpu" or not torch.cuda.is_available():
        return name
    if name in ("auto", "cuda") and not shares_gpu():
        return f"cuda:{os.environ['LOCAL_RANK']}"
    if name in ("auto", "cuda"):
        finding = f"{os.environ['LOCAL_WORLD_SIZE']} ranks need as many GPUs, but there are {torch.cuda.device_count()}"
        raise UserError(Code.DEVICE_UNAVAILABLE, f"--device {name}", finding, "start fewer ranks, or use --device cpu")
    if not shares_gpu():
        finding = "names one GPU for all ranks"
        raise UserError(Code.OPTION_CONFLICT, f"--device {name}", finding, "use --device cuda for one GPU per rank")
    return name


def rank() -> int:
    """Return the number of this rank, counted from 0."""
    return 0 if _group is None else _group.rank


def count() -> int:
    """Return the number of ranks."""
    return 1 if _group is None else _group.count


def local_count() -> int:
    """Return the number of ranks on this machine."""
    return 1 if _group is None else int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_main() -> bool:
    """Return whether this rank writes files and messages."""
    return rank() == 0


@contextmanager
def joined(device: torch.device) -> Iterator[None]:
    """Connect the ranks that torchrun started, inside the block. Without torchrun, do nothing.

    Only rank 0 shows messages. GPUs communicate by NCCL. Ranks that share a GPU use gloo, because NCCL rejects them.
    """
    global _group, _joined
    if _group is not None or not is_launched():
        yield
        return
    seconds = timeout_seconds()
    backend = "nccl" if device.type == "cuda" and not shares_gpu() else "gloo"
    with _reporting_lost_ranks(seconds):
        timeout = timedelta(seconds=seconds)
        store, number, ranks = next(rendezvous("env://", timeout=timeout))
        # the store may still have the addresses of ranks that ended before a restart
        store = dist.PrefixStore(f"start {restarts()}", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=number, world_size=ranks, timeout=timeout)
        patient_group = dist.new_group(backend="gloo", timeout=PATIENCE)
    heartbeat = Heartbeat(store, number, seconds)
    _group = _joined = _Group(number, ranks, patient_group, seconds, heartbeat)
    if not is_main():
        hide_progress(True)
        logging.getLogger("graftseg").setLevel(logging.ERROR)
    try:
        with heartbeat.beating():
            yield
    finally:
        _group = _joined = None
        dist.destroy_process_group()


@contextmanager
def alone() -> Iterator[None]:
    """Let this process act as the only rank inside the block."""
    global _group
    before, _group = _group, None
    try:
        yield
    finally:
        _group = before


def on_main(function: Callable[[], Any]) -> Any:
    """Call a function on rank 0 only. Return its result, or raise its UserError, on all ranks.

    The function must not communicate with other ranks. With several ranks, the result must be a JSON value.
    """
    if _group is None:
        return function()
    if not is_main():
        return _result_of_main(json.loads(broadcast()))
    try:
        with alone():
            result = function()
    except BaseException as error:
        failed = (
            {"error": error.to_json()} if isinstance(error, UserError) else {"failed": "rank 0 failed; see its message"}
        )
        announce_failure(json.dumps(failed).encode())
        raise
    broadcast(json.dumps({"result": result}).encode())
    return result


def _result_of_main(outcome: dict[str, Any]) -> Any:
    """Return what a function of rank 0 returned, or raise its UserError."""
    if "error" in outcome:
        cause = outcome["error"]
        raise UserError(Code(cause["code"]), cause["where"], cause["finding"], cause["remedy"])
    if "failed" in outcome:
        raise lost_rank(outcome["failed"])
    return outcome["result"]


def announce_failure(content: bytes) -> None:
    """Send the content to the other ranks. Ignore lost ranks, because the failure of this rank is raised instead."""
    with suppress(UserError):
        broadcast(content)


def main_first(function: Callable[[], Result]) -> Result:
    """Call a function on rank 0, then on the other ranks, which can read the files that rank 0 has written."""
    if _group is None:
        return function()
    results: list[Result] = []
    on_main(lambda: results.append(function()))
    if results:
        return results[0]
    with alone():
        return function()


def lost_rank(finding: str) -> UserError:
    """Return the error of a rank that gets no answer from another rank."""
    remedy = f"if all ranks are alive but slow, set {TIMEOUT_VARIABLE} to more seconds; otherwise resume the run"
    return UserError(Code.RANK_LOST, f"rank {os.environ.get('RANK', rank())}", finding, remedy)


def broadcast(content: bytes = b"", source: int = 0) -> bytes:
    """Send the content of the rank ``source`` to all ranks, which may wait for hours. Return this content."""
    assert _joined is not None
    sends, group, wait = _joined.rank == source, _joined.patient_group, partial(_joined.heartbeat.wait, rank=source)
    size = torch.tensor([len(content)])
    with _reporting_lost_ranks():
        wait(dist.broadcast(size, source, group=group, async_op=True))
        if not int(size):
            return b""
        received = torch.frombuffer(bytearray(content if sends else int(size)), dtype=torch.uint8)
        wait(dist.broadcast(received, source, group=group, async_op=True))
    return bytes(received.numpy())


def largest_of_all(number: int) -> int:
    """Return the largest ``number`` of all ranks, without waiting for a GPU."""
    if _group is None:
        return number
    largest = torch.tensor([number])
    if dist.get_backend() == "gloo":
        return int(_reduced(largest, dist.ReduceOp.MAX))
    with _reporting_lost_ranks():
        work = dist.all_reduce(largest, dist.ReduceOp.MAX, group=_group.patient_group, async_op=True)
        work.wait(timedelta(seconds=_group.timeout))
    return int(largest)


def own_rows(table: Any) -> Any:
    """Select the rows of this rank from a table or a tensor with the rows of all ranks."""
    return table if _group is None else table[_group.rank :: _group.count]


def draw_rows(draw_like: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """Draw numbers for the whole batch, as in ``draw_rows(torch.randn_like, x)``, and return the rows of this rank."""
    if _group is None:
        return draw_like(like)
    rows: Tensor = own_rows(draw_like(like.new_empty(_group.count * len(like), *like.shape[1:])))
    return rows


def all_sum(x: Tensor) -> Tensor:
    """Return the sum over ranks; its gradient is the sum of the gradients of all ranks."""
    if _group is None:
        return x
    summed: Tensor = _AllSum.apply(x)  # type: ignore[no-untyped-call]
    return summed


def all_mean(x: Tensor) -> Tensor:
    """Return the mean over ranks, with gradients as in ``all_sum``."""
    return share(all_sum(x))


def share(x: Tensor) -> Tensor:
    """Divide a value that is equal on all ranks by their number, because its gradients are summed over ranks."""
    return x if _group is None else x / _group.count


def gather_rows(x: Tensor) -> Tensor:
    """Return the rows of all ranks in the order of the whole batch, with gradients as in ``all_sum``."""
    if _group is None:
        return x
    sparse = x.new_zeros(len(x), _group.count, *x.shape[1:])
    placed = torch.arange(_group.count, device=x.device) == _group.rank
    sparse = torch.where(placed.view(1, -1, *[1] * (x.dim() - 1)), x.unsqueeze(1), sparse)
    return all_sum(sparse).flatten(0, 1)


def sum_now(x: Tensor) -> None:
    """Replace a tensor by its sum over ranks, without gradients."""
    if _group is not None:
        _reduced(x)


def start_sum(x: Tensor) -> Callable[[], None]:
    """Start to replace a tensor by its sum over ranks. Call the returned function before using the tensor."""
    with _reporting_lost_ranks():
        work = dist.all_reduce(x, async_op=True)

    def wait() -> None:
        with _reporting_lost_ranks():
            work.wait()

    return wait


class _AllSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _reduced(x.detach().clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _reduced(gradient.clone(memory_format=torch.contiguous_format))


def _reduced(x: Tensor, operation: Any = dist.ReduceOp.SUM) -> Tensor:
    with _reporting_lost_ranks():
        dist.all_reduce(x, operation)
    return x


@contextmanager
def _reporting_lost_ranks(seconds: float | None = None) -> Iterator[None]:
    """Turn errors of communication inside the block into a UserError about a lost rank."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        waited = seconds if _joined is None else _joined.timeout
        raise lost_rank(f"no answer from another rank: it ended, or was silent for {waited:g} s") from error
