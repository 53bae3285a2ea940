"""The folder of a training run: file names, lock, manifest, log and list of folds."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from graftseg.core.errors import Code, UserError
from graftseg.core.files import (
    PARTIAL,
    atomic_path,
    is_locked,
    locked,
    parse_json,
    read_json,
    read_object,
    write_checked,
    write_errors,
    write_text,
)
from graftseg.core.reading import read_bytes
from graftseg.core.teacher_checks import TeacherCheck, TeacherChecks

FORMAT = 1  # format version of run.json
LOCK = ".run-lock"
SEED = re.compile("seed-([0-9]+)")
INTERRUPTED = "interrupted"
RESUMABLE = (INTERRUPTED, "stopped")
RESUME = "repeat the train command with --resume (with --seeds, repeat it unchanged)"
LOG_REMEDY = "restore the file or train again"
SINGLE_RUN, FOLDS, SEEDS, METHODS = "a single run", "folds", "several seeds", "a comparison of methods"
"""Possible contents of a folder, as phrases for messages."""


@dataclass(frozen=True)
class Shipped:
    """The network that ``predict`` uses: that of the run, the supervised baseline, or the average of both."""

    network: Literal["run", "average", "baseline"]
    reason: str  # why this network was chosen
    both_supervised: bool = False  # whether the run, like its baseline, did not use unlabeled scans

    @property
    def sentence(self) -> str:
        """The choice in one sentence."""
        trained, baseline = "the network trained with unlabeled scans", "the supervised baseline"
        if self.both_supervised:
            trained = "the network of the run, trained without unlabeled scans"
        names = {"run": trained, "average": f"the average of {trained} and {baseline}", "baseline": baseline}
        return f"{names[self.network]} ({self.reason})"


def selected_on(description: Mapping[str, Any]) -> str | None:
    """Return the cases on which a checkpoint was selected: ``validation``, ``test`` or None for the last checkpoint.

    ``description`` describes a run, predictions or scores. Older versions wrote only text: ``best on test, step 40``.
    """
    if description.get("selected_on"):
        return str(description["selected_on"])
    older = re.match("best on (test|validation)", str(description.get("checkpoint")))
    return older[1] if older else None


class RunFolder:
    """Paths of the files of a run, and access to its manifest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest_file = path / "run.json"
        self.folds_file = path / "folds.json"
        self.compare_file = path / "compare.json"
        self.recipe_file = path / "recipe.yaml"
        self.log_file = path / "log.jsonl"
        self.teacher_file = path / "teacher.json"
        self.first_stage_file = path / "first-stage.ckpt"
        self.trained_file = path / "model.safetensors"
        self.average_file = path / "average.safetensors"
        self.best_file = path / "best.safetensors"
        self.store = path / "store"
        self.checkpoints = path / "checkpoints"
        self.snapshots = path / "snapshots"
        self.predictions = path / "predictions"
        self.predictions_best = path / "predictions-best"
        self.tensorboard = path / "tensorboard"

    @property
    def weights_file(self) -> Path:
        """The weights of this run's network, as trained or averaged with the baseline."""
        is_averaged = self.manifest_file.is_file() and self.manifest().get("averaged", False)
        return self.average_file if is_averaged else self.trained_file

    @property
    def baseline(self) -> "RunFolder":
        """The folder of the supervised baseline of this run."""
        return RunFolder(self.path / "baseline")

    def fold(self, number: int) -> "RunFolder":
        """Return the folder of a cross-validation fold, counted from 0."""
        return RunFolder(self.path / f"fold-{number}")

    def seed(self, number: int) -> "RunFolder":
        """Return the folder of the run with this seed."""
        return RunFolder(self.path / f"seed-{number}")

    @property
    def seeds(self) -> list[int]:
        """Sorted seeds of the runs that were started in this folder."""
        matches = (SEED.fullmatch(path.name) for path in self.path.glob("seed-*"))
        numbers = sorted(int(match.group(1)) for match in matches if match)
        return [number for number in numbers if self.seed(number).exists]

    def foreground_file(self, stage: int) -> Path:
        """Return the file with the predicted foreground of unlabeled scans for a stage, counted from 0."""
        return self.path / f"foreground-{stage}.npz"

    @property
    def is_free(self) -> bool:
        """Whether a run can start here: the folder is missing, empty or left over from a failed start."""
        if not self.path.exists():
            return True
        if not self.path.is_dir():
            return False
        names = {entry.name for entry in self.path.iterdir() if not entry.name.startswith(PARTIAL)}
        return not names or (LOCK in names and names <= {LOCK, self.store.name, self.manifest_file.name})

    @property
    def exists(self) -> bool:
        """Whether a run was started here. The recipe is the last file written at the start."""
        return self.manifest_file.is_file() and self.recipe_file.is_file()

    @property
    def content(self) -> str:
        """A phrase for the content of the folder. It is empty if a run can start here."""
        contents = {SINGLE_RUN: self.exists, FOLDS: self.folds_file.is_file(), SEEDS: self.seeds}
        contents[METHODS] = self.compare_file.is_file()
        return next((phrase for phrase, is_here in contents.items() if is_here), "" if self.is_free else "other files")

    def check_target(self, expected: str, *, resume: bool | None, needs_baseline: bool = True) -> None:
        """Raise a UserError if the folder contains anything other than ``expected``, or does not fit ``resume``.

        With ``resume=True``, the folder must have this content. With False, it must be free. None allows both.
        ``needs_baseline`` is whether a single run is finished only with its baseline.
        """
        content = self.content
        if content not in ("", expected):
            resuming = {FOLDS: f"--folds {fold_count(self)} --resume", SEEDS: "--seeds", METHODS: "--compare --resume"}
            options = resuming.get(content)
            remedy = f"add {options} to continue, or pass another --out" if options else "pass another --out"
            finding = f"the folder contains {content}, not {expected}"
            raise UserError(Code.TARGET_EXISTS, self.path, finding, remedy)
        if content and resume is False:
            finding, remedy = f"the folder contains {content}", "add --resume to continue, or pass another --out"
            if self._is_finished(needs_baseline=needs_baseline):
                finding, remedy = "the folder contains a finished run", "choose another --out"
            raise UserError(Code.TARGET_EXISTS, self.path, finding, remedy)
        if resume and not content:
            raise UserError(Code.RUN_UNFINISHED, self.path, "there is nothing to resume", "omit --resume to start")

    def _is_finished(self, *, needs_baseline: bool) -> bool:
        """Return whether a single run and, if it exists or is needed, its baseline are finished."""
        if not self.exists or self.status != "finished":
            return False
        baseline = self.baseline
        if not baseline.exists:
            return not needs_baseline
        return baseline.status == "finished" and self.shipped() is not None

    def check_not_data(self, data: Path) -> None:
        """Raise a UserError if the folder is the resolved folder of the data."""
        if self.path.resolve() == data:
            raise UserError(Code.UNSAFE_TARGET, self.path, "--out is the data folder", "pass another --out")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder for this process and delete temporary files of killed processes."""
        with locked(self.path / LOCK, "another run is using this folder"):
            for folder in (self.path, self.checkpoints, self.snapshots):
                for leftover in folder.glob(f"{PARTIAL}*"):
                    leftover.unlink()
            yield

    @property
    def status(self) -> str:
        """The status in the manifest. A run with status ``running`` was killed if its folder is not locked."""
        status = str(self.manifest().get("status"))
        return INTERRUPTED if status == "running" and not is_locked(self.path / LOCK) else status

    def teacher_checks(self) -> TeacherChecks:
        """Return the checks of the teacher before and during self-training."""
        checks = read_json(self.teacher_file)["checks"] if self.teacher_file.is_file() else []
        return TeacherChecks(TeacherCheck(**check) for check in checks)

    @property
    def is_supervised_only(self) -> bool:
        """Whether the check of the teacher skipped self-training in all folds, before any unlabeled scan was used."""
        members = [self.fold(number) for number in range(fold_count(self))] or [self]
        return all(member.teacher_checks().is_supervised_only for member in members)

    def shipped(self) -> Shipped | None:
        """Return the network that ``predict`` uses, or None if nothing is recorded, as for runs without a baseline."""
        content = self._shipping_record()
        return Shipped(**content["shipped"]) if "shipped" in content else None

    def ship(self, shipped: Shipped) -> None:
        """Record the network that ``predict`` uses."""
        path = self.folds_file if self.folds_file.is_file() else self.manifest_file
        write_checked(path, self._shipping_record() | {"shipped": asdict(shipped)})

    def _shipping_record(self) -> dict[str, Any]:
        """Return the content of the file that records the network for ``predict``: ``folds.json`` or ``run.json``."""
        if self.folds_file.is_file():
            return read_object(self.folds_file)
        return self.manifest() if self.exists else {}

    def manifest(self) -> dict[str, Any]:
        """Return the content of ``run.json``, which is cached until the file changes."""
        if not self.manifest_file.is_file():
            example = next(chain(self.path.glob("seed-*/run.json"), sorted(self.path.glob("fold-*/run.json"))), None)
            remedy = f"choose one of its runs, such as {example.parent}" if example else "choose a folder made by train"
            raise UserError(Code.NOT_A_RUN, self.path, "not a run folder (it has no run.json)", remedy)
        stat = self.manifest_file.stat()
        return dict(_read_manifest(self.manifest_file, (stat.st_ino, stat.st_mtime_ns, stat.st_size)))

    def training_manifest(self) -> dict[str, Any]:
        """Return the manifest. Raise a UserError if store, device, versions or start time is missing."""
        manifest = self.manifest()
        store = manifest.get("store")
        has_store = isinstance(store, dict) and {"identity", "classes", "channels"} <= store.keys()
        if not has_store or {"device", "versions", "started"} - manifest.keys():
            raise _damaged(self.manifest_file, "entries are missing")
        return manifest

    def training_case_names(self) -> list[str]:
        """Return the names of the cases that a run was started with, including held-out cases."""
        store = self.training_manifest()["store"]
        return [name for role in ("labeled", "unlabeled", "held_out") for name in store.get(role, ())]

    def update_manifest(self, entries: Mapping[str, Any]) -> None:
        """Add or replace entries of the manifest."""
        current = self.manifest() if self.manifest_file.is_file() else {"format": FORMAT}
        write_checked(self.manifest_file, {**current, **entries})

    def save_snapshot(self, step: int, pictures: Mapping[str, npt.NDArray[Any]]) -> None:
        """Save named pictures of a training step."""
        with atomic_path(self.snapshots / f"{step:06d}.npz") as partial, partial.open("wb") as stream:
            arrays: dict[str, Any] = dict(pictures)
            np.savez_compressed(stream, **arrays)


@lru_cache(maxsize=256)
def _read_manifest(path: Path, version: tuple[int, int, int]) -> dict[str, Any]:
    """Read ``run.json``. ``version`` (inode, modification time and file size) is a key of the cache only."""
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise UserError(Code.NOT_A_RUN, path, "made by an incompatible version", "train again with this version")
    return manifest


def _damaged(path: Path, detail: str) -> UserError:
    return UserError(Code.DAMAGED_FILE, path, f"damaged or edited ({detail})", LOG_REMEDY)


def store_owner(store: Path) -> Path | None:
    """Return the parent folder of a store if runs in that folder use the store, else None."""
    folder = RunFolder(store.resolve().parent)
    is_used = folder.content in (SINGLE_RUN, FOLDS, SEEDS, METHODS)
    return folder.path if is_used and folder.store.name == store.resolve().name else None


class RunLog:
    """A log with one JSON object per line. Opening the log deletes all lines after step ``resume_at``."""

    def __init__(self, path: Path, resume_at: int) -> None:
        earlier = [line for line in read_log(path) if line["global_step"] <= resume_at] if resume_at else []
        write_text(path, "".join(json.dumps(line) + "\n" for line in earlier))
        self._path = path
        self._stream = path.open("a", encoding="utf-8")

    def write(self, lines: list[dict[str, Any]]) -> None:
        """Append lines and flush them to the operating system."""
        with write_errors(self._path):
            self._stream.writelines(json.dumps(line) + "\n" for line in lines)
            self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        with write_errors(self._path):
            self._stream.close()


def read_log(path: Path, *, allow_nan: bool = True) -> list[dict[str, Any]]:
    """Return all complete lines of a log, or an empty list if the log does not exist."""
    if not path.is_file():
        return []
    *complete, _ = read_bytes(path).split(b"\n")
    with suppress(KeyError, TypeError, ValueError, RecursionError):
        lines = [parse_json(text, allow_nan=allow_nan) for text in complete]
        if all(isinstance(line["global_step"], int) for line in lines):
            return lines
    raise _damaged(path, "not a log of steps")


def complete_log(path: Path, steps: int | None) -> list[dict[str, Any]]:
    """Return the log of a finished run. Raise a UserError if it ends before step ``steps`` or contains NaN."""
    lines = read_log(path, allow_nan=False)
    last = max((line["global_step"] for line in lines if "total" in line), default=0)
    if not lines or last < (steps or 0):
        finding = "the file is missing" if not path.is_file() else f"damaged or edited, it ends at step {last}"
        raise UserError(Code.DAMAGED_FILE, path, finding, LOG_REMEDY)
    return lines


def ensemble_members(run: RunFolder, fold: int | None = None) -> list[RunFolder]:
    """Return the finished runs whose probabilities are averaged: all folds, the given fold, or a single run itself."""
    count = fold_count(run)
    if fold is not None and not 0 <= fold < count:
        remedy = f"choose a fold from 0 to {count - 1}" if count else "omit --fold"
        raise UserError(Code.NO_SUCH_FOLD, f"--fold {fold}", f"{run.path} has {count} folds", remedy)
    if not count:
        return [run]
    members = [run.fold(number) for number in (range(count) if fold is None else [fold])]
    for member in members:
        if not member.exists or member.manifest().get("status") != "finished":
            remedy = "continue with train --resume"
            raise UserError(Code.RUN_UNFINISHED, member.path, "this fold is not finished", remedy)
    return members


def fold_count(run: RunFolder) -> int:
    """Return the number of folds of a cross-validation, or 0 for a single run."""
    return len(held_out_by_fold(run)) if run.folds_file.is_file() else 0


def fold_states(run: RunFolder) -> dict[str, str]:
    """Return the status of each fold by folder name."""
    folds = [run.fold(number) for number in range(fold_count(run))]
    return {fold.path.name: fold.status if fold.exists else "not started" for fold in folds}


def held_out_by_fold(run: RunFolder) -> list[tuple[str, ...]]:
    """Return the names of the cases that each fold holds out."""
    try:
        return [tuple(fold["held_out"]) for fold in read_json(run.folds_file)["folds"]]
    except (KeyError, TypeError):
        raise _damaged(run.folds_file, "not a list of folds") from None
