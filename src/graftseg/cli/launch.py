"""Several ranks on this machine, started with the launcher of torchrun."""

import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import read_text
from graftseg.core.torchrun import EXIT_STATUS, timeout_seconds

MAX_RESTARTS = 3  # number of restarts after a rank died


def launch(words: Sequence[str], devices: int, device: str) -> NoReturn:
    """Run a command line with several ranks. Each rank has its own GPU, or an equal share of the CPU cores.

    The ranks restart and resume if one of them dies, at most three times. Exit with the status of rank 0.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    timeout_seconds()
    _check_devices(devices, device)
    for name in logging.root.manager.loggerDict:
        if name.startswith("torch.distributed.elastic"):  # its messages repeat our messages
            logging.getLogger(name).setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=devices,
        run_id=f"graftseg-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",
        max_restarts=MAX_RESTARTS,
    )
    with tempfile.TemporaryDirectory() as folder:
        status = Path(folder) / "status"
        os.environ[EXIT_STATUS] = str(status)
        try:
            elastic_launch(config, sys.executable)("-m", "graftseg", *words)
        except SignalException as stopped:
            raise typer.Exit(_status(status, 128 + stopped.sigval)) from None
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            finding = f"the process ended with status {failure.exitcode}, even after {MAX_RESTARTS} restarts"
            raise UserError(Code.RANK_LOST, f"rank {rank}", finding, "see its messages above, then resume") from None
        raise typer.Exit(_status(status, 0))


def _check_devices(devices: int, device: str) -> None:
    """Raise a UserError if this machine has too few GPUs or cores, and divide the cores among the ranks."""
    from graftseg.core.devices import choose_device

    kind = choose_device(device).type
    if ":" in device:
        finding = "names one GPU, but each device needs its own"
        raise UserError(Code.OPTION_CONFLICT, f"--device {device}", finding, "use --device cuda")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if kind == "cuda":
        import torch

        found, what = torch.cuda.device_count(), "GPUs"
    else:
        found, what = cores, "cores"
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores // devices)))
    if devices > found:
        finding = f"this machine has {found} {what}"
        raise UserError(Code.DEVICE_UNAVAILABLE, f"--devices {devices}", finding, f"use at most {found}")
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def _status(file: Path, default: int) -> int:
    return int(read_text(file)) if file.is_file() else default
