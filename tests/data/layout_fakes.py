"""Empty files in known layouts."""

import json
from pathlib import Path
from typing import Any

from graftseg.data.dataset import Dataset


def touch(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def describe(root: Path, **content: Any) -> Path:
    (root / "dataset.json").write_text(json.dumps(content))
    return root


def names(dataset: Dataset) -> list[tuple[str, str]]:
    return [(case.name, case.split) for case in dataset.cases]


def msd(root: Path) -> Path:
    return touch(root, "imagesTr/a_01.nii.gz", "labelsTr/a_01.nii.gz")


def nnunet(root: Path) -> Path:
    return touch(root, "imagesTr/a_0000.nii.gz", "imagesTr/a_0001.nii.gz", "labelsTr/a.nii.gz")
