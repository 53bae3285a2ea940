"""The files of a run folder that a page shows."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from numpy.lib.npyio import NpzFile

from graftseg.core.errors import Code, UserError
from graftseg.core.reading import open_regular, read_text
from graftseg.core.run_folder import LOG_REMEDY, RunFolder, read_log
from graftseg.data.store import Store, find_store, open_store
from graftseg.recipes.reading import MAX_BYTES, read_yaml

MAX_SNAPSHOT_BYTES = 2**28
MAX_VALUE = 1e30  # larger values are treated as not finite
Pairs = list[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """Finite values over ascending global steps."""

    steps: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """A training stage: its method and its first and last global step."""

    method: str
    first: int
    last: int


@dataclass(frozen=True)
class Log:
    """The training log as curves by name. ``dropped`` counts the values that are not finite."""

    total: Curve | None
    terms: dict[str, Curve]
    learning_rates: Curve | None
    validation: dict[str, Curve]
    stages: tuple[Stage, ...]
    dropped: int

    def stage_of(self, global_step: int) -> int:
        """Return the index of the stage of a global step, or 0 if the log has no stages."""
        begun = [index for index, stage in enumerate(self.stages) if stage.first <= global_step]
        return begun[-1] if begun else 0


@dataclass(frozen=True)
class Snapshot:
    """Arrays ``(H, W)`` of one step by name: ``X...`` images, ``Y...`` label maps, ``M...`` masks."""

    step: int
    arrays: dict[str, npt.NDArray[Any]]


def class_names(facts: dict[str, Any]) -> list[str]:
    """Return the names of the classes by label, background first."""
    return [str(name) for name in facts.get("store", {}).get("classes", [])]


def read_recipe(run: RunFolder) -> dict[str, Any] | None:
    """Load the resolved recipe, or return None if the run has no recipe file."""
    path = run.recipe_file
    if not path.is_file():
        return None
    try:
        recipe = read_yaml(read_text(path, limit=MAX_BYTES))
    except ValueError as error:
        raise UserError(Code.DAMAGED_FILE, path, f"damaged or edited, invalid YAML ({error})", "restore it") from None
    return recipe if isinstance(recipe, dict) else None


def read_store(run: RunFolder) -> Store | None:
    """Open the store that the run was trained on, or return None if it no longer exists or is incomplete."""
    try:
        return open_store(find_store(run))
    except (UserError, OSError, KeyError):
        return None


def read_curves(run: RunFolder) -> Log | None:
    """Load the curves of the training log, or return None if no step was logged."""
    lines = read_log(run.log_file)
    try:
        steps = [line for line in lines if "total" in line]
        single = {key: [(line["global_step"], line[key]) for line in steps if key in line] for key in ("total", "lr")}
        groups = [single, _by_name(steps, "terms"), _by_name(lines, "validation")]
        curves = [_curves(pairs) for pairs in groups]
        logged = sum(len(points) for pairs in groups for points in pairs.values())
        kept = sum(len(curve.steps) for named in curves for curve in named.values())
        own, terms, validation = curves
        log = Log(own.get("total"), terms, own.get("lr"), validation, _find_stages(steps), logged - kept)
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise UserError(Code.DAMAGED_FILE, run.log_file, f"damaged or edited ({error})", LOG_REMEDY) from None
    return log if lines else None


def snapshot_paths(run: RunFolder) -> dict[int, Path]:
    """Return the paths of the snapshots by global step, in order."""
    paths = [path for path in run.snapshots.glob("*.npz") if path.stem.isdigit()]
    return dict(sorted((int(path.stem), path) for path in paths))


def snapshot_names(path: Path) -> list[str]:
    """Return the names of the arrays in a snapshot without loading them."""
    with _open_snapshot(path) as content:
        return list(content.files)


def read_snapshot(path: Path) -> Snapshot:
    """Load the two-dimensional arrays of a snapshot."""
    with _open_snapshot(path) as content:
        arrays = {name: content[name] for name in sorted(content.files)}
    return Snapshot(int(path.stem), {name: array for name, array in arrays.items() if array.ndim == 2})


@contextmanager
def _open_snapshot(path: Path) -> Iterator[NpzFile]:
    try:
        with open_regular(path) as stream, np.load(stream, allow_pickle=False) as content:
            if sum(member.file_size for member in content.zip.infolist()) > MAX_SNAPSHOT_BYTES:
                raise ValueError("too large")
            yield content
    except (OSError, ValueError, LookupError, TypeError, EOFError, NotImplementedError, BadZipFile, zlib.error):
        raise UserError(Code.DAMAGED_FILE, path, "damaged snapshot", "delete the file to omit its pictures") from None


def _by_name(lines: list[dict[str, Any]], key: str) -> dict[str, Pairs]:
    """Return the pairs of step and value by name, for a group of values such as the terms of the loss."""
    pairs: dict[str, Pairs] = {}
    for line in lines:
        for name, value in line.get(key, {}).items():
            pairs.setdefault(name, []).append((line["global_step"], value))
    return pairs


def _curves(pairs: dict[str, Pairs]) -> dict[str, Curve]:
    """Return the finite values over ascending steps by name. Names without finite values are left out."""
    curves = {}
    for name, points in pairs.items():
        values = np.array(points, dtype=np.float64).reshape(-1, 2)
        finite = values[np.abs(values[:, 1]) < MAX_VALUE]
        ordered = finite[np.argsort(finite[:, 0], kind="stable")]
        if len(ordered):
            curves[name] = Curve(ordered[:, 0], ordered[:, 1])
    return curves


def _find_stages(steps: list[dict[str, Any]]) -> tuple[Stage, ...]:
    spans: dict[tuple[int, str], tuple[int, int]] = {}
    for line in steps:
        key, step = (int(line.get("stage", 0)), str(line.get("method", ""))), int(line["global_step"])
        first, last = spans.get(key, (step, step))
        spans[key] = min(first, step), max(last, step)
    ordered = sorted(spans.items(), key=lambda item: item[1])
    return tuple(Stage(method, first, last) for (_, method), (first, last) in ordered)
