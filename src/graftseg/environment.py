"""What this machine has: versions, devices, disk."""

import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from graftseg import __version__
from graftseg.errors import UserError

PACKAGES = ("numpy", "scipy", "monai", "nibabel", "connected-components-3d", "pydantic", "safetensors")
EXTRAS = {"tensorboard": "tensorboard"}


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {"graftseg": __version__, "python": platform.python_version(), "torch": str(torch.__version__)}


def devices() -> list[str]:
    """The devices that training can use, the preferred one first."""
    gpus = [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    return [*gpus, f"cpu with {torch.get_num_threads()} threads"]


def choose_device(name: str) -> torch.device:
    """``auto`` is the GPU if there is one, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UserError(f"--device {name}", "no such kind of device", "use auto, cpu, cuda or cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"--device {name}", f"this machine has {torch.cuda.device_count()} CUDA devices", "use auto or cpu"
        )
    return device


def describe_machine(folder: Path) -> dict[str, Any]:
    """All of it, for the doctor."""
    return {
        "versions": versions() | {name: _version(name) for name in PACKAGES},
        "extras": {extra: _version(package) for extra, package in EXTRAS.items()},
        "devices": devices(),
        "disk_free_gib": round(shutil.disk_usage(folder).free / 2**30, 1),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
