"""What this machine has: versions, devices, disk."""

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
from typing import Any

import torch
from torch import Tensor

from graftseg.core.errors import Code, UserError
from graftseg.core.version import __version__

PACKAGES = ("scipy", "nibabel", "connected-components-3d", "pydantic", "safetensors", "jinja2")
EXTRAS = {
    "tensorboard": ("tensorboard",),
    "h5": ("h5py",),
    "itk": ("SimpleITK",),
    "dicom": ("pydicom", "highdicom"),
    "export": ("monai", "onnx", "onnxruntime", "onnxscript"),
    "pictures": ("pillow", "tifffile"),
}
"""What can be installed besides, and the packages that each of it is."""
ABSENT = "not installed"


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    own = {"graftseg": __version__, "graftseg source": source_digest(), "python": platform.python_version()}
    return own | {"torch": str(torch.__version__), "numpy": _version("numpy")}


@cache
def source_digest(package: Path = Path(__file__).parents[1]) -> str:
    """The first digits of a hash of the package's files: which code it was, where a version had several states."""
    digest = sha256()
    for path in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".yaml")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def devices() -> list[str]:
    """The devices that training can use, the preferred one first."""
    gpus = [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    return [*gpus, f"cpu with {torch.get_num_threads()} threads"]


def hardware_name(device: torch.device) -> str:
    """The model of a GPU, or the kind of processor and how many threads of it are used."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} with {torch.get_num_threads()} threads"


def choose_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one, else the CPU; of several GPUs, the one named becomes the current one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    # torch counts past its last number from the start again
    if device is None or str(device) != name:
        raise UserError(
            Code.DEVICE_UNAVAILABLE, f"--device {name}", "no such kind of device", "use auto, cpu, cuda or cuda:N"
        )
    if device.type not in ("cpu", "cuda"):
        raise UserError(
            Code.DEVICE_UNAVAILABLE,
            f"--device {name}",
            f"{device.type} is not supported",
            "use auto, cpu, cuda or cuda:N",
        )
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            Code.DEVICE_UNAVAILABLE,
            f"--device {name}",
            f"this machine has {torch.cuda.device_count()} CUDA devices",
            "use auto or cpu",
        )
    if device.index is not None and device.type == "cuda":
        # graphs are captured and kernels launched on the current device, wherever their tensors lie
        torch.cuda.set_device(device)
    return device


def has_triton() -> bool:
    """Whether there is a compiler for GPU kernels, and the one for C that it needs for launching them."""
    compilers = (os.environ.get("CC"), "cc", "gcc", "clang")
    return find_spec("triton") is not None and any(shutil.which(name) for name in compilers if name)


def free_memory(device: torch.device) -> int:
    """Bytes of memory that a program can have on the device; more than any program needs where nothing tells."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return sys.maxsize
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) or sys.maxsize


def describe_machine(folder: Path) -> dict[str, Any]:
    """All of it, for the doctor."""
    return {
        "versions": versions() | {name: _version(name) for name in PACKAGES},
        "extras": {extra: _extra(packages) for extra, packages in EXTRAS.items()},
        "devices": devices(),
        "disk_free_gib": round(shutil.disk_usage(folder).free / 2**30, 1),
    }


def _extra(packages: Sequence[str]) -> str:
    """The version of an extra; those of its packages by name where it is several."""
    found = {package: _version(package) for package in packages}
    if len(found) == 1 or set(found.values()) == {ABSENT}:
        return next(iter(found.values()))
    return ", ".join(f"{package} {one}" for package, one in found.items())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ABSENT


Wait = Callable[[], None]


@contextmanager
def side_stream(images: Tensor) -> Iterator[Wait]:
    """Run the block beside what follows it; what it made may be used once the function that it gives was called.

    The block begins when all work is done that was asked for before it. So does that of the next step, and no memory is
    used again while either side still reads it. Random numbers are drawn in the order of the program. On a CPU, where
    the block is over when it ends, there is nothing to wait for.
    """
    if not images.is_cuda:
        yield lambda: None
        return
    own = _own_stream(images.device)
    own.wait_stream(torch.cuda.current_stream(images.device))
    with torch.cuda.stream(own):
        yield lambda: torch.cuda.current_stream(images.device).wait_stream(own)


@cache
def _own_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
