"""Devices: the choice of a device, what it supports, how busy the cores are, and side CUDA streams."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from time import sleep

import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.core.ranks import local_device


def devices() -> list[str]:
    """Describe the devices for training, the preferred one first."""
    gpus = [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    return [*gpus, f"cpu with {torch.get_num_threads()} threads"]


def hardware_name(device: torch.device) -> str:
    """Return the model of a GPU, or the processor architecture and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} with {torch.get_num_threads()} threads"


def busy_cores(stat: Path = Path("/proc/stat")) -> float | None:
    """Sleep for 0.3 seconds. Return how many cores other programs used meanwhile, or None without ``/proc/stat``."""
    samples = []
    for wait in (0.3, 0.0):
        try:
            user, nice, system, idle, waiting, *_ = (int(n) for n in stat.read_text().splitlines()[0].split()[1:])
        except (OSError, ValueError, IndexError):
            return None
        samples.append((user + nice + system, user + nice + system + idle + waiting))
        sleep(wait)
    (busy_before, total_before), (busy_after, total_after) = samples
    total = total_after - total_before
    return (os.cpu_count() or 1) * (busy_after - busy_before) / total if total > 0 else None


def contested_cores(busy: float, threads: int, cores: int | None = None) -> float:
    """Return the number of cores that ``threads`` threads share with programs that use ``busy`` of ``cores``."""
    return max(0.0, busy - ((cores or os.cpu_count() or 1) - threads))


def choose_device(name: str) -> torch.device:
    """Return a device by name. ``auto`` is the GPU if available, else the CPU. ``cuda:N`` becomes the current GPU.

    With ``auto`` or ``cuda``, each rank that torchrun started gets its own GPU, if there are GPUs.
    """
    name = local_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    # torch.device("cuda:256") returns cuda:0, so the names are compared
    if device is None or str(device) != name or device.type not in ("cpu", "cuda"):
        raise UserError(Code.DEVICE_UNAVAILABLE, f"--device {name}", "unknown device", "use auto, cpu, cuda or cuda:N")
    count = torch.cuda.device_count()
    if device.type == "cuda" and (device.index or 0) >= count:
        finding = f"this machine has {counted(count, 'CUDA device')}"
        raise UserError(Code.DEVICE_UNAVAILABLE, f"--device {name}", finding, "use auto or cpu")
    if device.index is not None and device.type == "cuda":
        # CUDA graphs and kernels use the current device, even for tensors on another device
        torch.cuda.set_device(device)
    return device


def has_bf16(device: torch.device) -> bool:
    """Return whether the device supports bfloat16 natively, without emulation."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    native = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return device.type == "cpu" and native is not None and bool(native())


def has_triton() -> bool:
    """Return whether Triton and the C compiler that it needs are installed."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    return find_spec("triton") is not None and any(shutil.which(name) for name in compilers if name)


_side_stream_of = cache(torch.cuda.Stream)  # one stream for each device
Wait = Callable[[], None]  # a function that makes the current stream wait for the side stream


@contextmanager
def side_stream(images: Tensor) -> Iterator[Wait]:
    """Run the block on a side CUDA stream. Call the yielded function before you use the results of the block.

    The side stream belongs to the device of ``images``. On a CPU, the block runs normally. The side stream first waits
    for all previous work of the current stream, which may still use memory that the block reuses. Random numbers do
    not depend on the streams: they are drawn in the order of the Python code.
    """
    if not images.is_cuda:
        yield lambda: None
        return
    side = _side_stream_of(images.device)
    side.wait_stream(torch.cuda.current_stream(images.device))
    with torch.cuda.stream(side):
        yield lambda: torch.cuda.current_stream(images.device).wait_stream(side)
