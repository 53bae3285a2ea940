"""Package versions, devices, memory, disk space and CUDA streams of this machine."""

import ctypes
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from time import sleep
from typing import Any

import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.phrases import counted
from graftseg.core.ranks import local_device
from graftseg.core.version import __version__

PACKAGES = ("scipy", "nibabel", "connected-components-3d", "pydantic", "safetensors", "jinja2")
"""Packages whose versions ``graftseg doctor`` prints."""
EXTRAS = {
    "tensorboard": ("tensorboard",),
    "h5": ("h5py",),
    "itk": ("SimpleITK",),
    "dicom": ("pydicom", "highdicom"),
    "export": ("monai", "onnx", "onnxruntime", "onnxscript"),
    "pictures": ("pillow", "tifffile"),
    "figures": ("matplotlib",),
    "notebook": ("ipyniivue",),
    "view": ("starlette", "uvicorn"),
    "ray": ("ray",),
}
"""The extras of graftseg (optional dependencies), and the packages of each extra."""
NOT_INSTALLED = "not installed"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_BLOCK = 2**30  # Size in bytes of the largest block that is reused. At most as many free bytes are kept.


def versions() -> dict[str, str]:
    """Return the versions of the software that results depend on."""
    return {
        "graftseg": __version__,
        "graftseg source": source_digest(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": _version("numpy"),
    }


@cache
def source_digest(package: Path = Path(__file__).parents[1]) -> str:
    """Return a short hash of the source files. It changes with the code, even if the version number does not."""
    digest = sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".yaml")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def devices() -> list[str]:
    """Describe the devices for training, the preferred one first."""
    gpus = [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    return [*gpus, f"cpu with {torch.get_num_threads()} threads"]


def hardware_name(device: torch.device) -> str:
    """Return the model of a GPU, or the processor architecture and the number of threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} with {torch.get_num_threads()} threads"


def busy_cores(seconds: float = 0.3, stat: Path = Path("/proc/stat")) -> float | None:
    """Sleep for ``seconds`` and return how many cores other programs used. Return None if the system does not say."""
    samples = []
    for wait in (seconds, 0.0):
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
    """Return on how many cores ``threads`` threads compete with other programs, which use ``busy`` of all ``cores``."""
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


def free_memory(device: torch.device) -> int:
    """Return the free memory of the device in bytes, or ``sys.maxsize`` if it is unknown."""
    if device.type == "cuda":
        reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + reusable
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) or sys.maxsize


@contextmanager
def reused_memory() -> Iterator[None]:
    """Keep freed memory inside the block, and return it to the system afterwards. Without glibc, do nothing.

    By default, glibc returns every large block to the system when it is freed. Each new tensor then costs page faults,
    which took half of the time of a prediction. The settings of glibc stay changed after the block.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(M_MMAP_THRESHOLD, LARGEST_BLOCK)
    libc.mallopt(M_TRIM_THRESHOLD, LARGEST_BLOCK)
    try:
        yield
    finally:
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if all(hasattr(libc, name) for name in ("gnu_get_libc_version", "mallopt", "malloc_trim")) else None


def describe_machine(folder: Path) -> dict[str, Any]:
    """Return versions, extras, devices and free disk space for ``graftseg doctor``."""
    return {
        "versions": versions() | {name: _version(name) for name in PACKAGES},
        "extras": {extra: _extra_versions(packages) for extra, packages in EXTRAS.items()},
        "devices": devices(),
        "disk_free_gib": round(shutil.disk_usage(folder).free / 2**30, 1),
    }


def _extra_versions(packages: Sequence[str]) -> str:
    """Return the version of a single package, or the names and versions of several packages."""
    installed = {package: _version(package) for package in packages}
    if len(installed) == 1 or set(installed.values()) == {NOT_INSTALLED}:
        return next(iter(installed.values()))
    return ", ".join(f"{package} {number}" for package, number in installed.items())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


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
