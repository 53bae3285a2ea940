"""Kills of a server that saves an annotation, before every change of a file."""

import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import tiny
from isolated import isolated
from kills import kill_everywhere
from part import Part

from graftseg.data.annotation import RUN, AnnotationFolder
from graftseg.data.layouts import read_layout
from graftseg.data.scans import read_label
from graftseg.reporting.viewer.annotator import Annotator

CASES = ("labeled_000", "unlabeled_000")
STROKES = tuple(np.array([(first, 3, 1)], RUN) for first in (0, 50, 100))


def kill_annotations(work: Path, seed: int, count: int) -> Part:
    """Kill the annotation of a labeled and of an unlabeled scan."""
    part = Part(
        "kills of an annotation before every change of a file",
        "the label map is the old or the new one, and no stroke is lost",
    )
    scans = tiny.write_scans(work / "scans", labeled=2, unlabeled=2, test=0)

    def annotate(folder: Path) -> None:
        annotator = _annotator(folder / "scans")
        for name in CASES:
            _correct(annotator, name)

    def copy_scans(folder: Path) -> None:
        shutil.copytree(scans, folder / "scans")

    copy_scans(work / "undisturbed")
    isolated(partial(annotate, work / "undisturbed"))
    expected = {name: _label(work / "undisturbed", name) for name in CASES}

    def is_intact(folder: Path) -> bool:
        old = [_label(scans.parent, name) for name in CASES]
        for name, before in zip(CASES, old, strict=True):
            if not any(np.array_equal(_label(folder, name), one) for one in (before, expected[name])):
                return False
        annotate(folder)
        return all(np.array_equal(_label(folder, name), expected[name]) for name in CASES)

    return kill_everywhere(part, work, annotate, is_intact, copy_scans)


def _label(folder: Path, name: str) -> Any:
    """Return the label map of a case, or an empty array if there is none."""
    path = folder / "scans" / "labelsTr" / f"{name}.nii.gz"
    return read_label(path).array if path.exists() else np.zeros(0)


def _annotator(data: Path) -> Annotator:
    """Return an annotator whose network finds nothing."""
    dataset, folder = read_layout(data), AnnotationFolder(data)

    def maps(case: Any) -> Any:
        return SimpleNamespace(labels=np.zeros(dataset.reader.image(case).geometry.shape, np.uint8))

    network = SimpleNamespace(
        maps=maps, model="", classes=("background", "a"), run=SimpleNamespace(path=data), ranking=lambda *_: {}
    )
    with folder.lock():
        return Annotator(dataset, folder, cast(Any, network), dataset.cases)


def _correct(annotator: Annotator, name: str) -> None:
    """Draw the strokes that are missing and accept the case, unless it is accepted already."""
    number = [case.name for case in annotator.cases].index(name)
    if annotator.state(number) == "accepted":
        return
    draft = annotator.draft(number)
    for count, stroke in enumerate(STROKES, start=1):
        if count > draft.count:
            draft.add(count, stroke)
    annotator.finish(number, "accept")
