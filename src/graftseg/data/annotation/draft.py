"""The draft of a label map: the drawing it starts from, and a journal of all strokes since then.

A drawing is a flat array of class numbers in the voxel order of the browser. A stroke is a list of runs of voxels that
get a new value. A run is nine bytes, little endian: the first voxel, the number of voxels and the new value.

Each stroke is on disk before it is confirmed, so a draft survives a crash of the browser, the server or the machine.
A stroke that was cut off at the end of the journal was never confirmed and is dropped.
"""

import os
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import RLock

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder, read_object, write_errors, write_json
from graftseg.core.reading import read_bytes
from graftseg.core.types import Geometry
from graftseg.data.scans import read_label, write_label

START, JOURNAL, ABOUT, TIME = "start.nii.gz", "strokes.bin", "about.json", "time.json"
MAGIC = b"GSST"
HEAD = struct.Struct("<4sIII")  # of a stroke: magic bytes, number of the stroke, number of runs, CRC-32 of the runs
RUN = np.dtype([("first", "<u4"), ("length", "<u4"), ("value", "u1")])
Drawing = NDArray[np.uint8]
Runs = NDArray[np.void]
RELOAD = "reload the page"


@dataclass(frozen=True)
class Canvas:
    """The grid of a scan, and the functions that turn labels ``(*space)`` into a drawing and back."""

    geometry: Geometry
    to_drawing: Callable[[Drawing], Drawing]
    to_labels: Callable[[Drawing], Drawing]


class Draft:
    """A drawing and the number of strokes in its journal.

    about: where its start comes from
    seconds: time for which a browser tab could change it
    """

    def __init__(self, folder: Path, canvas: Canvas) -> None:
        self._folder, self._canvas, self._lock = folder, canvas, RLock()
        labels = read_label(folder / START).array
        if labels.shape != canvas.geometry.shape:
            finding = f"the draft has the shape {labels.shape}, but the scan has {canvas.geometry.shape}"
            raise UserError(Code.GEOMETRY_MISMATCH, folder, finding, "delete the folder to start again")
        self.about = read_object(folder / ABOUT)
        self.seconds = float(read_object(folder / TIME).get("seconds", 0)) if (folder / TIME).is_file() else 0.0
        self.start = canvas.to_drawing(labels.astype(np.uint8))
        self.drawing = self.start.copy()
        self.count = 0
        self._replay()

    @classmethod
    def begin(cls, folder: Path, canvas: Canvas, labels: Drawing, about: dict[str, object]) -> "Draft":
        """Start a draft from a label map ``(*space)``. ``about`` says where the label map comes from."""
        with atomic_folder(folder) as partial:
            write_label(partial / START, labels, canvas.geometry)
            write_json(partial / ABOUT, about)
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
        """The number of voxels that differ from the start."""
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
                write_json(self._folder / TIME, {"seconds": seconds})
                self.seconds = seconds

    def remove(self) -> None:
        """Delete the draft, the start first. Without its start, a partly deleted draft does not count as a draft."""
        with self._lock, write_errors(self._folder):
            (self._folder / START).unlink(missing_ok=True)
            shutil.rmtree(self._folder)

    def _append(self, number: int, runs: Runs) -> None:
        """Write a stroke to the journal and flush it to disk. If this fails, the journal stays as it was."""
        content = runs.tobytes()
        record = HEAD.pack(MAGIC, number, len(runs), zlib.crc32(content)) + content
        path = self._folder / JOURNAL
        with write_errors(path, len(record)), path.open("r+b") as stream:
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
            with write_errors(path):
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
    return UserError(Code.LABEL_INVALID, "stroke", finding, RELOAD)
