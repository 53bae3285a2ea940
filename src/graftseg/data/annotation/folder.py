"""The annotations of a folder of data: drafts, saved label maps, their previous versions, and a log.

``annotations/`` in the folder of data contains ``drafts/CASE``, ``previous/CASE`` and ``log.jsonl``. Saved label maps
are in ``labelsTr``. Images are never changed.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core import files
from graftseg.core.errors import Code, UserError
from graftseg.core.reading import read_bytes
from graftseg.core.types import Case, Geometry
from graftseg.data.annotation.draft import Draft
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.scans import read_label, write_label

Action = Literal["accept", "skip", "reject"]
STATES: dict[str, str] = {"accept": "accepted", "skip": "skipped", "reject": "rejected"}
LOCK = ".lock"


class AnnotationFolder:
    """Paths and files of the annotations in a folder of data."""

    def __init__(self, data: Path) -> None:
        self.path = data / "annotations"
        self.labels = data / "labelsTr"
        self.log_file = self.path / "log.jsonl"
        self.ranking_file = self.path / "ranking.json"

    @property
    def key(self) -> str:
        """A name of the folder that the browser stores with strokes. It does not reveal the path."""
        return hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the annotations for this process, and delete temporary files of killed processes."""
        files.check_writable(self.path)
        files.check_writable(self.labels)
        files.make_folder(self.labels)
        with files.locked(self.path / LOCK, "another graftseg annotate is using this folder"):
            for leftover in [*self.labels.glob(f"{files.PARTIAL}*"), *(self.path / "drafts").glob(f"{files.PARTIAL}*")]:
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
            yield

    def draft(self, case: str) -> Path:
        """Return the folder of the draft of a case."""
        return self.path / "drafts" / case

    def target(self, case: Case) -> Path:
        """Return the file for the label map of a case: its existing label map, or a new NIfTI file."""
        if case.label is None:
            return self.labels / f"{case.name}.nii.gz"
        if not self.can_save(case):
            finding = "the case has a label map that is not NIfTI, which annotate cannot replace"
            raise UserError(Code.SCAN_UNSUPPORTED, case.label, finding, "convert the label map to NIfTI")
        return case.label

    @staticmethod
    def can_save(case: Case) -> bool:
        """Return whether the case has no label map, or one that can be replaced."""
        return case.label is None or is_nifti(case.label)

    def save(self, case: Case, labels: NDArray[np.uint8], geometry: Geometry) -> Path:
        """Write a label map atomically on the grid of its scan, and keep the previous version. Return the file."""
        target, folder = self.target(case), self.path / "previous" / case.name
        if target.is_file():
            number = len(list(folder.glob("*"))) + 1
            with files.atomic_path(folder / f"{number:04d}-{target.name}") as partial:
                partial.write_bytes(read_bytes(target))
        write_label(target, labels, geometry)
        return target

    def is_saved(self, case: Case, draft: Draft) -> bool:
        """Return whether the label map equals the draft. It does if a save ended before the draft was deleted."""
        target = self.target(case)
        return target.is_file() and np.array_equal(read_label(target).array, draft.labels)

    def log(self, case: str, action: Action, facts: dict[str, Any]) -> None:
        """Append a line to the log and flush it to disk."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": now, "case": case, "action": action, **facts}) + "\n"
        files.check_target_file(self.log_file)
        with files.write_errors(self.log_file), self.log_file.open("a", encoding="utf-8") as stream:
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def states(self) -> dict[str, str]:
        """Return the state of each case in the log by its last action. Lines that cannot be read are ignored."""
        states: dict[str, str] = {}
        for text in read_bytes(self.log_file).splitlines() if self.log_file.is_file() else ():
            try:
                line = files.parse_json(text)
                states[line["case"]] = STATES[line["action"]]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        return states
