"""Strokes of a drawing as runs of voxels that get a new value.

A drawing is a flat array of class numbers in the voxel order of the browser. A run is nine bytes, little endian: the
first voxel, the number of voxels and the new value.
"""

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError

RUN = np.dtype([("first", "<u4"), ("length", "<u4"), ("value", "u1")])
Drawing = NDArray[np.uint8]
Runs = NDArray[np.void]
RELOAD = "reload the page"


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
    is_changed = before != after
    edges = np.flatnonzero(np.diff(is_changed, prepend=False, append=False) | _value_steps(after, is_changed))
    starts = edges[is_changed[np.minimum(edges, len(after) - 1)] & (edges < len(after))]
    ends = edges[np.searchsorted(edges, starts, side="right")]
    runs = np.empty(len(starts), RUN)
    runs["first"], runs["length"], runs["value"] = starts, ends - starts, after[starts]
    return runs


def _value_steps(after: Drawing, is_changed: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Mark the borders between two neighboring changed voxels that get different values."""
    steps = np.zeros(len(after) + 1, dtype=bool)
    steps[1:-1] = (after[1:] != after[:-1]) & is_changed[1:] & is_changed[:-1]
    return steps


def _invalid(finding: str) -> UserError:
    return UserError(Code.LABEL_INVALID, "stroke", finding, RELOAD)
