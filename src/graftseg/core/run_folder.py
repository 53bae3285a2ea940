"""A run's folder: what lies where, its lock, its manifest and its log."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, ValidationError

from graftseg.core.errors import Code, UserError
from graftseg.core.files import (
    PARTIAL,
    atomic_path,
    locked,
    read_json,
    read_object,
    refuse_closed,
    write_json,
    write_text,
)
from graftseg.core.names import nfc

FORMAT = 1
LOCK = ".run-lock"
SEED = re.compile("seed-([0-9]+)")
LOG_REMEDY = "restore the file or train anew"
"""What mends a log; a run without one can be neither recorded nor compared."""
RECORD_REMEDY = "record the run again"
"""What mends a record."""


class _StoreFacts(BaseModel):
    classes: list[str] = Field(default_factory=list)
    labeled: list[str] = Field(default_factory=list)
    unlabeled: list[str] = Field(default_factory=list)
    held_out: list[str] = Field(default_factory=list)


class _BestFacts(BaseModel):
    on: str
    step: int
    sha256: str


class _Facts(BaseModel):
    """What parts of the manifest must look like, where they are there."""

    status: str = ""
    identity: str | None = None
    steps: int | None = None
    wall_seconds: float | None = None
    seconds_per_step: dict[str, float] = Field(default_factory=dict)
    parameters: int | None = None
    store: _StoreFacts = _StoreFacts()
    versions: dict[str, str] = Field(default_factory=dict)
    weights: str | None = None
    checkpoint: str = "last"
    best: _BestFacts | None = None


class _BegunStoreFacts(BaseModel):
    identity: str
    classes: list[str] = Field(min_length=1)
    channels: int = Field(ge=1, strict=True)


class _BegunFacts(BaseModel):
    """What the manifest of a run that was begun cannot do without."""

    store: _BegunStoreFacts
    device: str
    versions: dict[str, str]
    started: str


class RunFolder:
    """Names of the files of a run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest_file = path / "run.json"
        self.recipe_file = path / "recipe.yaml"
        self.log_file = path / "log.jsonl"
        self.weights_file = path / "model.safetensors"
        self.best_file = path / "best.safetensors"
        self.store = path / "store"
        self.checkpoints = path / "checkpoints"
        self.snapshots = path / "snapshots"
        self.predictions = path / "predictions"
        self.predictions_best = path / "predictions-best"
        self.tensorboard = path / "tensorboard"

    @property
    def folds_file(self) -> Path:
        """The list of folds, where this folder holds folds in place of a run."""
        refuse_closed(self.path)
        return self.path / "folds.json"

    @property
    def baseline(self) -> "RunFolder":
        """The supervised run that may stand beside this one."""
        return RunFolder(self.path / "baseline")

    def fold(self, number: int) -> "RunFolder":
        """The run of a fold, counted from 0, where this folder holds folds."""
        return RunFolder(self.path / f"fold-{number}")

    def seed(self, number: int) -> "RunFolder":
        """The run with a seed, where this folder holds several."""
        return RunFolder(self.path / f"seed-{number}")

    @property
    def seeds(self) -> list[int]:
        """The seeds with which runs were begun in this folder, in order."""
        found = (SEED.fullmatch(path.name) for path in self.path.glob("seed-*"))
        numbers = sorted(int(match.group(1)) for match in found if match)
        return [number for number in numbers if self.seed(number).exists]

    def foreground_file(self, stage: int) -> Path:
        """Where the network before a stage, counted from 0, saw foreground in unlabeled scans."""
        return self.path / f"foreground-{stage}.npz"

    @property
    def is_free(self) -> bool:
        """Whether a run may begin here: nothing is there, or only what an attempt to begin one left."""
        refuse_closed(self.path)
        if not self.path.exists():
            return True
        if not self.path.is_dir():
            return False
        names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(PARTIAL)}
        return not names or LOCK in names <= {LOCK, self.store.name, self.manifest_file.name}

    @property
    def exists(self) -> bool:
        """Whether a run was begun here; its recipe is written last."""
        refuse_closed(self.path)
        return self.manifest_file.is_file() and self.recipe_file.is_file()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; the lock goes with the process, however it ends."""
        with locked(self.path / LOCK, "another run writes into this folder"):
            self._sweep()
            yield

    def _sweep(self) -> None:
        """Remove files that a killed process left half-written."""
        for folder in (self.path, self.checkpoints, self.snapshots):
            for left in folder.glob(f"{PARTIAL}*"):
                left.unlink()

    def manifest(self) -> dict[str, Any]:
        """What is known about the run."""
        refuse_closed(self.path)
        if not self.manifest_file.is_file():
            several = next(chain(self.path.glob("seed-*/run.json"), sorted(self.path.glob("fold-*/run.json"))), None)
            remedy = (
                f"name one of its runs, such as {several.parent}" if several else "name the --out folder of a training"
            )
            raise UserError(Code.RUN_UNFINISHED, self.path, "not a run folder (it has no run.json)", remedy)
        manifest: dict[str, Any] = read_json(self.manifest_file)
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise UserError(
                Code.RUN_UNFINISHED, self.manifest_file, "not a run of this version", "train anew with this version"
            )
        self._check(manifest, _Facts)
        return manifest

    def begun(self) -> dict[str, Any]:
        """What is known about a run that was begun: at least its store, device, versions and when that was."""
        manifest = self.manifest()
        self._check(manifest, _BegunFacts)
        return manifest

    def trained_on(self) -> list[str]:
        """Names of the cases that a run was begun with, those that are held out as well."""
        store = self.begun()["store"]
        return [name for role in ("labeled", "unlabeled", "held_out") for name in store.get(role, ())]

    def _check(self, manifest: dict[str, Any], kind: type[BaseModel]) -> None:
        try:
            kind.model_validate(manifest)
        except ValidationError as error:
            first = error.errors()[0]
            finding = f"damaged at {'.'.join(map(str, first['loc']))} ({first['msg']})"
            raise UserError(Code.DAMAGED_FILE, self.manifest_file, finding, "restore the file or train anew") from None

    def update_manifest(self, facts: Mapping[str, Any]) -> None:
        """Add facts to the manifest."""
        known = self.manifest() if self.manifest_file.is_file() else {"format": FORMAT}
        write_json(self.manifest_file, {**known, **facts})

    def save_snapshot(self, step: int, pictures: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep pictures of a step, by name."""
        with atomic_path(self.snapshots / f"{step:06d}.npz") as partial, partial.open("wb") as stream:
            arrays: dict[str, Any] = dict(pictures)
            np.savez_compressed(stream, **arrays)


def store_owner(store: Path) -> Path | None:
    """The folder that a store lies in, if a run, folds or seeds were begun there with it."""
    folder = RunFolder(store.resolve().parent)
    try:
        is_used = folder.exists or folder.folds_file.is_file() or folder.seeds
    except UserError:
        # nobody trains in a folder that cannot be looked into
        return None
    return folder.path if is_used and folder.store.name == store.resolve().name else None


class RunLog:
    """A log of one JSON object a line; resuming forgets what was written after the checkpoint."""

    def __init__(self, path: Path, resume_at: int) -> None:
        kept = [line for line in read_log(path) if line["global_step"] <= resume_at] if resume_at else []
        write_text(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._stream = path.open("a", encoding="utf-8")

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Add lines and hand them to the operating system, so that they outlive this process."""
        self._stream.writelines(json.dumps(line) + "\n" for line in lines)
        self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """All lines of a log; a last line that was cut off is left out, any other that cannot be read is an error."""
    if not path.is_file():
        return []
    *whole, _ = _content(path).split(b"\n")
    lines = []
    for number, text in enumerate(whole, start=1):
        finding = f"line {number} of {len(whole)} is not"
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            raise UserError(Code.DAMAGED_FILE, path, f"{finding} valid JSON", LOG_REMEDY) from None
        if not isinstance(line, dict) or not isinstance(line.get("global_step"), int):
            raise UserError(Code.DAMAGED_FILE, path, f"{finding} about a step", LOG_REMEDY)
        lines.append(line)
    return lines


def complete_log(path: Path, steps: int | None, remedy: str) -> list[dict[str, Any]]:
    """All lines of the log of a training that has ended after so many steps; one that tells of fewer is refused."""
    try:
        lines = read_log(path)
    except UserError as error:
        raise UserError(error.code, error.where, error.finding, remedy) from None
    if not path.is_file():
        raise UserError(Code.DAMAGED_FILE, path, "the file is missing", remedy)
    if not _content(path).endswith(b"\n"):
        raise UserError(Code.DAMAGED_FILE, path, "its last line is cut off" if lines else "no whole line in it", remedy)
    last = max((line["global_step"] for line in lines if "total" in line), default=0)
    if steps is not None and last < steps:
        raise UserError(Code.DAMAGED_FILE, path, f"it ends with step {last} of {steps}", remedy)
    return lines


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check its permissions") from None


SHARED = ("recipe", "method", "seed")
"""What a fold and the list of folds both tell."""


class Fold(BaseModel):
    """The labeled cases that one fold's network never sees."""

    held_out: list[str] = Field(min_length=1)


class FoldList(BaseModel):
    """What the list of a folder's folds must hold."""

    folds: list[Fold]


def ensemble_members(run: RunFolder, fold: int | None = None) -> list[RunFolder]:
    """The runs whose probabilities are averaged: a single run, all folds of a folder, or the one that is named.

    Folds that have not ended are refused, so that a mean is always one over all of them.
    """
    count = fold_count(run)
    if not count:
        if fold is not None:
            raise UserError(Code.NO_SUCH_FOLD, f"--fold {fold}", f"{run.path} holds no folds", "leave out --fold")
        return [run]
    if fold is not None and not 0 <= fold < count:
        raise UserError(
            Code.NO_SUCH_FOLD, f"--fold {fold}", f"{run.path} has {count} folds", f"choose one from 0 to {count - 1}"
        )
    chosen = {number: run.fold(number) for number in (range(count) if fold is None else [fold])}
    for one in chosen.values():
        if not one.exists or one.manifest().get("status") != "finished":
            raise _unfinished(one)
    refuse_exchanged(run, chosen)
    return list(chosen.values())


def refuse_exchanged(run: RunFolder, folds: Iterable[int] | None = None) -> None:
    """Refuse folds that are not those that the folder's list tells of, since one of the two was exchanged.

    ``folds`` are the numbers of those to look at, by default all. What a fold does not tell is not looked at.
    """
    told, parts = read_object(run.folds_file), held_out_by_fold(run)
    for number in range(len(parts)) if folds is None else folds:
        one, part = run.fold(number), parts[number]
        if not one.exists:
            raise _unfinished(one)
        facts = one.manifest()
        other = [key for key in SHARED if key in facts and key in told and facts[key] != told[key]]
        if not _is_held_out(part, facts.get("store", {})):
            other.insert(0, f"held-out cases, which are {', '.join(part)}")
        if other:
            finding = f"not the fold that {run.folds_file} tells of (differ: {'; '.join(other)})"
            raise UserError(
                Code.NO_SUCH_FOLD, one.path, finding, "restore one of the two, or train anew into another --out"
            )


def _unfinished(fold: RunFolder) -> UserError:
    return UserError(
        Code.RUN_UNFINISHED, fold.path, "this fold has not been trained to its end", "go on with train --resume"
    )


def _is_held_out(part: Sequence[str], store: Mapping[str, Any]) -> bool:
    """Whether a run has held out these cases, after those that its recipe holds out anyway, and has seen none."""
    own = _spelled(store.get("held_out", part))[-len(part) :]
    seen = _spelled([*store.get("labeled", ()), *store.get("unlabeled", ())])
    return sorted(own) == sorted(_spelled(part)) and not {*own} & {*seen}


def _spelled(names: Iterable[str]) -> list[str]:
    return [nfc(str(name)) for name in names]


def fold_count(run: RunFolder) -> int:
    """How many folds a folder holds or will hold; 0 for a single run and for what is no run."""
    return len(held_out_by_fold(run)) if run.folds_file.is_file() else 0


def fold_states(run: RunFolder) -> dict[str, str]:
    """How far each fold of a folder has come, by the name of its folder."""
    folds = [run.fold(number) for number in range(fold_count(run))]
    return {fold.path.name: str(fold.manifest().get("status")) if fold.exists else "not begun" for fold in folds}


def held_out_by_fold(run: RunFolder) -> list[tuple[str, ...]]:
    """Names of the cases that each fold holds out, as the folder's list of folds tells them."""
    try:
        return [tuple(fold.held_out) for fold in FoldList.model_validate(read_json(run.folds_file)).folds]
    except ValidationError:
        raise UserError(
            Code.NO_SUCH_FOLD, run.folds_file, "not a list of folds", "restore the file or train anew"
        ) from None
