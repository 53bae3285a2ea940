"""Versions of this package and of installed packages."""

import platform
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement

import graftseg
from graftseg.core import software
from graftseg.core.software import EXTRAS, source_digest, versions


def test_versions_that_a_result_depends_on() -> None:
    assert versions() == {
        "graftseg": graftseg.__version__,
        "graftseg source": source_digest(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def test_every_extra_is_listed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = {
        extra: tuple(Requirement(line).name for line in lines)
        for extra, lines in project["optional-dependencies"].items()
        if extra not in ("dev", "web")
    }
    assert declared == EXTRAS


def test_a_missing_extra_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(package: str) -> str:
        if package in ("tensorboard", "highdicom", "pillow", "tifffile"):
            raise PackageNotFoundError(package)
        return "1.2.3"

    monkeypatch.setattr(software, "version", version)
    extras, packages = software.installed_extras(), software.installed_packages()
    assert extras["tensorboard"] == extras["pictures"] == "not installed"
    assert (extras["itk"], extras["dicom"]) == ("1.2.3", "pydicom 1.2.3, highdicom not installed")
    assert packages["nibabel"] == "1.2.3" and packages.items() >= versions().items()


def test_the_source_digest_depends_on_the_content(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "part").mkdir(parents=True)
        (tmp_path / name / "part" / "a.py").write_text("a = 1")
    (tmp_path / "two" / "notes.txt").write_text("not code")
    first = source_digest(tmp_path / "one")
    assert source_digest(tmp_path / "two") == first and len(first) == 12
    (tmp_path / "two" / "part" / "a.py").write_text("a = 2")
    source_digest.cache_clear()
    assert source_digest(tmp_path / "two") != first
