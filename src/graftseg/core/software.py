"""Installed software: versions of this package, of the packages that it needs, and of its extras."""

import platform
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

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


def installed_packages() -> dict[str, str]:
    """Return the versions of this package and of the packages that it needs."""
    return versions() | {name: _version(name) for name in PACKAGES}


def installed_extras() -> dict[str, str]:
    """Return the versions of the packages of each extra."""
    return {extra: _extra_versions(packages) for extra, packages in EXTRAS.items()}


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
