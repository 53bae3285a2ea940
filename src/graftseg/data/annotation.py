"""Label maps that a person draws or corrects: drafts, saved label maps, their previous versions, and a log.

``annotations/`` in the folder of data contains ``drafts/CASE``, ``previous/CASE`` and ``log.jsonl``. Saved label maps
are in ``labelsTr``. Images are never changed.

A drawing is a flat array of class numbers in the voxel order of the browser. A draft is the drawing it starts from, and
a journal of strokes. A stroke is a list of runs of voxels that get a new value. A run is nine bytes, little endian: the
first voxel, the number of voxels and the new value. Each stroke is on disk before it is confirmed, so a draft survives
a crash of the browser, the server or the machine. A cut-off stroke was never confirmed and is dropped.
"""

import hashlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import RLock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graftseg.core import files
from graftseg.core.errors import Code, UserError
from graftseg.core.reading import read_bytes
from graftseg.core.types import Case, Geometry
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.scans import read_label, write_label

START, JOURNAL, ABOUT, TIME = "start.nii.gz", "strokes.bin", "about.json", "time.json"
MAGIC = b"GSST"
HEAD = struct.Struct("<4sIII")
"""Head of a stroke in the journal: magic bytes, number of the stroke, number of runs, CRC-32 of the runs."""
RUN = np.dtype([("first", "<u4"), ("length", "<u4"), ("value", "u1")])
Drawing = NDArray[np.uint8]
Runs = NDArray[np.void]
Action = Literal["accept", "skip", "reject"]
STATES: dict[str, str] = {"accept": "accepted", "skip": "skipped", "reject": "rejected"}
LOCK = ".lock"


@dataclass(frozen=True)
class Canvas:
    """The grid of a scan, and the functions that turn labels ``(*space)`` into a drawing and back."""

    geometry: Geometry
    to_drawing: Callable[[Drawing], Drawing]
    to_labels: Callable[[Drawing], Drawing]


class Draft:
    """A drawing that a person has started.

    ``start`` is the drawing without strokes, and ``about`` says where it comes from. ``count`` is the number of strokes
    in the journal. ``seconds`` is the total time during which a browser tab had the draft open for changes.
    """

    def __init__(self, folder: Path, canvas: Canvas) -> None:
        self._folder, self._canvas, self._lock = folder, canvas, RLock()
        labels = read_label(folder / START).array
        if labels.shape != canvas.geometry.shape:
            finding = f"the draft has the shape {labels.shape}, but the scan has {canvas.geometry.shape}"
            raise UserError(Code.GEOMETRY_MISMATCH, folder, finding, "delete the folder to start again")
        self.about = files.read_object(folder / ABOUT)
        self.seconds = float(files.read_object(folder / TIME).get("seconds", 0)) if (folder / TIME).is_file() else 0.0
        self.start = canvas.to_drawing(labels.astype(np.uint8))
        self.drawing = self.start.copy()
        self.count = 0
        self._replay()

    @classmethod
    def begin(cls, folder: Path, canvas: Canvas, labels: Drawing, about: dict[str, object]) -> "Draft":
        """Start a draft from a label map ``(*space)``. ``about`` says where the label map comes from."""
        with files.atomic_folder(folder) as partial:
            write_label(partial / START, labels, canvas.geometry)
            files.write_json(partial / ABOUT, about)
            (partial / JOURNAL).touch()
        return cls(folder, canvas)

    @staticmethod
    def exists(folder: Path) -> bool:
        """Return whether there is a draft in this folder."""
        return (folder / START).is_file()

    @property
    def labels(self) -> Drawing:
        """The drawing as a label map ``(*space)``."""
        return self._canvas.to_labels(self.drawing)

    @property
    def changed(self) -> int:
        """Number of voxels that differ from the start."""
        return int(np.count_nonzero(self.drawing != self.start))

    def snapshot(self) -> tuple[int, Drawing]:
        """Return the number of strokes and a copy of the drawing after exactly these strokes."""
        with self._lock:
            return self.count, self.drawing.copy()

    def add(self, number: int, runs: Runs) -> int:
        """Add a stroke and return the number of the last stroke. A stroke that is already there changes nothing."""
        with self._lock:
            if number <= self.count:
                return self.count
            if number != self.count + 1:
                finding = f"received stroke {number}, but expected stroke {self.count + 1}"
                raise UserError(Code.RUN_MISMATCH, self._folder.name, finding, "reload the page")
            self._append(number, runs)
            apply_runs(self.drawing, runs)
            self.count = number
            return number

    def reset(self) -> int:
        """Undo all strokes by adding one stroke that restores the start. Return the number of the last stroke."""
        with self._lock:
            runs = runs_between(self.drawing, self.start)
            return self.add(self.count + 1, runs) if len(runs) else self.count

    def set_seconds(self, seconds: float) -> None:
        """Write the time to disk, unless the draft has been deleted meanwhile."""
        with self._lock:
            if seconds != self.seconds and self.exists(self._folder):
                files.write_json(self._folder / TIME, {"seconds": seconds})
                self.seconds = seconds

    def remove(self) -> None:
        """Delete the draft. The start is deleted first, so that an interrupted deletion leaves no draft."""
        with self._lock, files.write_errors(self._folder):
            (self._folder / START).unlink(missing_ok=True)
            shutil.rmtree(self._folder)

    def _append(self, number: int, runs: Runs) -> None:
        """Write a stroke to the journal and flush it to disk. If this fails, the journal stays as it was."""
        content = runs.tobytes()
        record = HEAD.pack(MAGIC, number, len(runs), zlib.crc32(content)) + content
        path = self._folder / JOURNAL
        with files.write_errors(path, len(record)), path.open("r+b") as stream:
            end = stream.seek(0, os.SEEK_END)
            try:
                stream.write(record)
                stream.flush()
                os.fsync(stream.fileno())
            except OSError:
                stream.truncate(end)
                raise

    def _replay(self) -> None:
        """Apply all complete strokes, and cut off the rest of the journal."""
        path = self._folder / JOURNAL
        content, end = read_bytes(path), 0
        while end + HEAD.size <= len(content):
            magic, number, count, crc = HEAD.unpack_from(content, end)
            after = end + HEAD.size + count * RUN.itemsize
            runs = content[end + HEAD.size : after]
            if magic != MAGIC or after > len(content) or zlib.crc32(runs) != crc or number != self.count + 1:
                break
            apply_runs(self.drawing, np.frombuffer(runs, RUN))
            self.count, end = number, after
        if end < len(content):
            with files.write_errors(path):
                os.truncate(path, end)


def parse_runs(content: bytes, voxels: int, classes: int) -> Runs:
    """Return the runs of a stroke. Raise a UserError for runs outside the scan, unknown classes or too many voxels."""
    if not content or len(content) % RUN.itemsize:
        raise _invalid(f"{len(content)} bytes are not a list of runs")
    runs = np.frombuffer(content, RUN)
    first, length = runs["first"].astype(np.int64), runs["length"].astype(np.int64)
    if length.min() < 1 or (first + length).max() > voxels or length.sum() > voxels:
        raise _invalid(f"a run is empty or outside the scan, or the stroke has more than {voxels} voxels")
    if runs["value"].max() >= classes:
        raise _invalid(f"class {runs['value'].max()} does not exist")
    return runs


def apply_runs(drawing: Drawing, runs: Runs) -> None:
    """Set the voxels of all runs, in order."""
    for first, length, value in runs.tolist():
        drawing[first : first + length] = value


def runs_between(before: Drawing, after: Drawing) -> Runs:
    """Return the runs that turn one drawing into another."""
    values = np.where(before != after, after.astype(np.int16), np.int16(-1))  # -1: unchanged
    edges = np.flatnonzero(np.diff(values, prepend=np.int16(-1), append=np.int16(-1)))
    is_run = values[edges[:-1]] >= 0
    starts, ends = edges[:-1][is_run], edges[1:][is_run]
    runs = np.empty(len(starts), RUN)
    runs["first"], runs["length"], runs["value"] = starts, ends - starts, after[starts]
    return runs


def _invalid(finding: str) -> UserError:
    return UserError(Code.LABEL_INVALID, "stroke", finding, "reload the page")


class AnnotationFolder:
    """Paths and files of the annotations in a folder of data."""

    def __init__(self, data: Path) -> None:
        self.path = data / "annotations"
        self.labels = data / "labelsTr"
        self.log_file = self.path / "log.jsonl"
        self.ranking_file = self.path / "ranking.json"

    @property
    def key(self) -> str:
        """Hash of the path, by which the browser identifies the folder without knowing the path."""
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
        """Return whether the label map equals the draft, because a crash after saving left the draft behind."""
        target = self.target(case)
        return target.is_file() and np.array_equal(read_label(target).array, draft.labels)

    def log(self, case: str, action: Action, details: dict[str, Any]) -> None:
        """Append a line to the log and flush it to disk."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": now, "case": case, "action": action, **details}) + "\n"
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
