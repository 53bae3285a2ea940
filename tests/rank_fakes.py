"""Two ranks on this machine that call functions together, for tests of training on several devices."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch

from graftseg.core import ranks

Task = Callable[[], Any]


def free_port() -> int:
    """Return a port of 127.0.0.1 that no program uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(rank: int, count: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun sets."""
    return {
        "TORCHELASTIC_RUN_ID": "test",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def on_ranks(tasks: Sequence[Task], count: int = 2, device: str = "cpu") -> list[list[Any]]:
    """Start ranks once and let them call all tasks together. Return the results of each task, one per rank.

    An exception is a result: the text of its traceback.
    """
    context, port = multiprocessing.get_context("spawn"), free_port()
    queue = context.Queue()
    processes = [
        context.Process(target=_work, args=(rank_environment(rank, count, port), tasks, device, queue), daemon=True)
        for rank in range(count)
    ]
    for process in processes:
        process.start()
    found = dict(queue.get(timeout=300) for _ in processes)
    for process in processes:
        process.join(30)
    return [list(results) for results in zip(*(found[rank] for rank in range(count)), strict=True)]


def _work(environment: dict[str, str], tasks: Sequence[Task], device: str, queue: Any) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    results = []
    with ranks.joined(torch.device(device)):
        for task in tasks:
            try:
                results.append(task())
            except Exception:
                results.append(traceback.format_exc())
        queue.put((int(environment["RANK"]), results))
        queue.close()
        queue.join_thread()
