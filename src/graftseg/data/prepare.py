"""Prepare scans into a store: reorient, resample and normalize each scan once, before training."""

import hashlib
import json
import logging
import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from graftseg.core.errors import Code, UserError
from graftseg.core.files import PARTIAL, atomic_path, link_or_copy, locked, make_folder, read_json, write_checked
from graftseg.core.names import nfc
from graftseg.core.phrases import class_name
from graftseg.core.progress import in_parallel
from graftseg.core.reading import sha256_of
from graftseg.core.settings import Settings
from graftseg.core.tasks import LOCAL, Executor, Work
from graftseg.core.types import Case, Geometry
from graftseg.data.dataset import Dataset, ScanFiles, same_in_all_cases
from graftseg.data.folders import refuse_broken_link
from graftseg.data.formats.scan import Guess, guess_lines
from graftseg.data.grid import Grid, plan_grid, to_grid
from graftseg.data.intensity import IntensitySettings, normalize
from graftseg.data.labels import EMPTY_LABELS_REMEDY, checked_values, refuse_class_list, refuse_values
from graftseg.data.scans import Scan, files_of, is_dicom_scan
from graftseg.data.store import ADAPTER, CASES, FORMAT, LOCK, MANIFEST, Source, Store, StoredCase, is_store, open_store
from graftseg.data.swapped_files import read_label_of

logger = logging.getLogger(__name__)

Millimeters = Annotated[float, Field(le=1e6)]


class PrepareSettings(Settings):
    """Settings that turn a scan into network input.

    A 2-D recipe uses 2-D scans, or the slices of volumes along the last axis after reorientation. ``spacing`` is in mm
    along the prepared axes, with one entry per dimension. None keeps the spacing of an axis.
    """

    dimensions: Literal[2, 3] = Field(description="2 for slices, 3 for volumes.")
    spacing: tuple[Millimeters | None, ...] | None = Field(default=None, description="Spacing in mm.")
    orientation: str | None = Field(default="RAS", description="Axis codes of volumes; None keeps the original axes.")
    intensity: IntensitySettings = IntensitySettings()

    @model_validator(mode="after")
    def _check_consistency(self) -> "PrepareSettings":
        if self.spacing is not None:
            if len(self.spacing) != self.dimensions:
                raise ValueError(f"spacing has {len(self.spacing)} entries for {self.dimensions} dimensions")
            if any(step is not None and step <= 0 for step in self.spacing):
                raise ValueError("spacing must be above 0 mm")
        axes = sorted("RLAPSI".find(code) // 2 for code in self.orientation or "RAS")
        if axes != [0, 1, 2]:
            raise ValueError(f"orientation {self.orientation!r} is not three axis codes such as RAS")
        return self


def identity_settings(dimensions: Literal[2, 3]) -> PrepareSettings:
    """Return settings that change nothing, for data that is already prepared."""
    unchanged = IntensitySettings(rule="none")
    return PrepareSettings(dimensions=dimensions, spacing=None, orientation=None, intensity=unchanged)


def prepare_image(
    scan: Scan, settings: PrepareSettings, *, where: str | Path = "scan"
) -> tuple[npt.NDArray[np.float32], Grid]:
    """Return the network input ``(C, *space)`` of a scan, and the grid that maps it back to the scan."""
    grid = prepared_grid(scan.geometry, settings, where=where)
    return normalize(to_grid(scan.array, grid, labels=False), settings.intensity), grid


def prepared_grid(geometry: Geometry, settings: PrepareSettings, *, where: str | Path = "scan") -> Grid:
    """Return the grid that a scan with this geometry is resampled to."""
    axes = len(geometry.shape)
    if axes < settings.dimensions:
        finding = f"a {axes}-D scan for a {settings.dimensions}-D recipe"
        raise UserError(Code.RECIPE_MISMATCH, where, finding, "use a 2-D recipe")
    spacing = settings.spacing
    if spacing is not None and axes > settings.dimensions:
        spacing = (*spacing, None)
    return plan_grid(geometry, orientation=settings.orientation if axes == 3 else None, spacing=spacing)


def prepare(
    dataset: Dataset,
    out: Path,
    settings: PrepareSettings,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    executor: Executor = LOCAL,
) -> Store:
    """Create or update the store ``out``. Only cases whose files or settings changed are prepared.

    The manifest exists only while the store is complete. The next call resumes an interrupted call. A store that was
    made from other data is refused, unless ``overwrite`` is set. Groups of cases are tasks of ``executor``.
    """
    _refuse_invalid(dataset)
    check_target(out, dataset.root, overwrite=overwrite)
    with locked(out / LOCK, "another prepare is writing this store"):
        preparer = _CasePreparer(replace(dataset, cases=()), out, settings)
        task = partial(in_parallel, preparer, description="Preparing scans", workers=workers or executor.workers)
        work = Work("Preparing scans", (dataset.root,), (out,))
        with executor.running(task, executor.groups(dataset.cases), work) as finished:
            prepared = [result for wait in finished for result in wait()]
        cases = tuple(result.case for result in prepared)
        for line in guess_lines(guess for result in prepared for guess in result.guesses):
            logger.warning("%s", line)
        store = Store(
            path=out,
            root=str(dataset.root.resolve()),
            settings=settings.model_dump(mode="json"),
            classes=_class_names(dataset, cases),
            channels=same_in_all_cases([case.channels for case in cases], dataset.cases, "channels"),
            dimensions=settings.dimensions,
            cases=cases,
        )
        same_in_all_cases([len(case.shape) for case in cases], dataset.cases, "axes")
        removed = _remove_unused_files(out, cases)
        store.save()
    new = sum(result.is_new for result in prepared)
    logger.info("%s: %d cases prepared, %d reused, %d files removed", out, new, len(cases) - new, removed)
    return open_store(out)


def _refuse_invalid(dataset: Dataset) -> None:
    """Raise a UserError for problems of the layout, and for invalid case names and classes."""
    dataset.refuse_problems()
    for case in dataset.cases:
        is_unicode = case.name.encode(errors="replace").decode() == case.name
        if not is_unicode or case.name.startswith(".") or set(case.name) & set("/\\\0"):
            raise UserError(Code.CASE_NAME, case.name, "the case name is not a valid file name", "rename the scan")
    refuse_class_list(dataset)


def link_cases(source: Path, out: Path) -> None:
    """Link the prepared cases of the store ``source``. ``prepare`` can reuse them, and never writes into them."""
    make_folder(out / CASES)
    with locked(out / LOCK, "another prepare is writing this store"):
        for path in (source / CASES).glob("*.*"):
            target = out / CASES / path.name
            if not path.name.startswith(".") and not target.exists():
                link_or_copy(path, target)


def first_change(dataset: Dataset, out: Path, settings: PrepareSettings, root: str | None = None) -> str | None:
    """Return the first part of a store that ``prepare`` would change, except for new test cases, or None.

    ``root`` is the earlier path of the data, if they were moved.
    """
    stored = {nfc(path.stem) for path in (out / CASES).glob("*.json")}
    if dataset.problems or not stored:
        return None
    if removed := stored - {nfc(case.name) for case in dataset.cases}:
        return f"case {min(removed)}"
    preparer, kept = _CasePreparer(dataset, out, settings), []
    for case in dataset.cases:
        if case.split == "test" and nfc(case.name) not in stored:
            continue
        recorded = preparer.recorded(case, root)
        if recorded is None:
            return f"case {case.name}"
        kept.append(recorded)
    try:
        is_same = read_json(out / MANIFEST)["classes"] == list(_class_names(dataset, tuple(kept)))
    except (UserError, ValueError):
        # the store is unfinished, or the data is invalid
        return None
    return None if is_same else "the classes"


@dataclass(frozen=True)
class _PreparedCase:
    """A stored case, whether it is new, and the guesses made about its scan."""

    case: StoredCase
    is_new: bool
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True)
class _CasePreparer:
    """Prepares one case. The JSON record of the case is written last and marks the case as complete."""

    dataset: Dataset
    out: Path
    settings: PrepareSettings

    def __call__(self, case: Case) -> _PreparedCase:
        """Return the stored case, reused if possible."""
        kept = self.recorded(case)
        if kept is None or not kept.has_files(self.out / CASES):
            return self._prepare(case)
        refuse_values(self.dataset, case, kept.values)
        return _PreparedCase(kept, is_new=False)

    def recorded(self, case: Case, root: str | None = None) -> StoredCase | None:
        """Return the case from its record, or None if there is no record or if sources or settings changed."""
        root = root or str(self.dataset.root.resolve())
        try:
            record = read_json(self.out / CASES / f"{case.name}.json")
            kept = ADAPTER.validate_python(record["case"])
        except (UserError, ValueError, KeyError, TypeError):
            return None
        sources = self._sources(case)
        is_same = (
            (kept.name, kept.split, kept.label is None) == (case.name, case.split, case.label is None)
            and (record.get("root"), record.get("key")) == (root, self._key(case))
            and kept.sources.keys() == sources.keys()
            and all(unchanged(path, kept.sources[name]) for name, path in sources.items())
        )
        return kept if is_same else None

    def _prepare(self, case: Case) -> _PreparedCase:
        sources = {name: source_of(path) for name, path in self._sources(case).items()}
        scan = self.dataset.reader.image(case)
        image, grid = prepare_image(scan, self.settings, where=case.images[0])
        image_file, label_file = f"{case.name}.image.npy", f"{case.name}.label.npy"
        arrays: dict[str, npt.NDArray[Any]] = {image_file: _to_float16(image, case.images[0])}
        values: tuple[int, ...] = ()
        guesses = scan.guesses
        if case.label is not None:
            label = read_label_of(self.dataset, case, scan)
            values, guesses = checked_values(self.dataset, case, scan.geometry, label), guesses + label.guesses
            arrays[label_file] = to_grid(label.array.astype(np.uint8), grid, labels=True)
        stored = StoredCase(
            name=case.name,
            split=case.split,
            image=image_file,
            label=label_file if case.label is not None else None,
            channels=len(image),
            shape=image.shape[1:],
            values=values,
            grid=grid,
            geometry=scan.geometry,
            sources=sources,
            sha256=self._write(arrays),
        )
        content = ADAPTER.dump_python(stored, mode="json")
        record = {"root": str(self.dataset.root.resolve()), "key": self._key(case), "case": content}
        write_checked(self.out / CASES / f"{case.name}.json", record)
        return _PreparedCase(stored, is_new=True, guesses=guesses)

    def _write(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, str]:
        """Remove the manifest, because the store is now unfinished. Write the arrays and return their checksums."""
        (self.out / MANIFEST).unlink(missing_ok=True)
        for name, array in arrays.items():
            with atomic_path(self.out / CASES / name, array.nbytes) as partial:
                np.save(partial, np.ascontiguousarray(array))
        return {name: sha256_of(self.out / CASES / name) for name in arrays}

    def _sources(self, case: Case) -> dict[str, Path]:
        paths = (*case.images, case.label) if case.label else case.images
        return {os.path.relpath(path, self.dataset.root): path for path in paths}

    def _key(self, case: Case) -> str:
        """Return a hash of store format, settings and reader. Cases with another hash are prepared again."""
        content: list[Any] = [FORMAT, self.settings.model_dump(mode="json")]
        if not isinstance(self.dataset.reader, ScanFiles):
            content.append(repr(self.dataset.reader))
        elif self.dataset.reader.is_gray:
            content.append("gray")
        elif case.label is not None and is_dicom_scan(case.label):
            # the class list decides the values of DICOM labels
            content.append(self.dataset.classes)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _to_float16(image: npt.NDArray[np.float32], where: Path) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        half = image.astype(np.float16)
    if not np.isfinite(half).all():
        finding = f"intensities up to {np.abs(image).max():g} exceed 65504, the largest value that a store can contain"
        raise UserError(Code.DATASET_INVALID, where, finding, "choose another intensity rule, such as zscore")
    return half


def _class_names(dataset: Dataset, cases: tuple[StoredCase, ...]) -> tuple[str, ...]:
    """Return the class names. Without a class list, the values of the labeled cases define the classes."""
    if dataset.classes:
        return tuple(dataset.classes.values())
    top = max(value for case in cases if case.split == "labeled" for value in case.values)
    if top == 0:
        raise UserError(Code.LABELS_EMPTY, dataset.root, "all label maps are empty", EMPTY_LABELS_REMEDY)
    for case in cases:
        if case.values and case.values[-1] > top:
            finding = f"the label value {case.values[-1]} occurs in no labeled case"
            remedy = "name the classes in dataset.json or correct the label map"
            raise UserError(Code.LABEL_INVALID, case.name, finding, remedy)
    return tuple(map(class_name, range(top + 1)))


def _remove_unused_files(out: Path, cases: tuple[StoredCase, ...]) -> int:
    """Remove files of former cases and of interrupted calls. Return the number of removed files."""
    used = {nfc(name) for case in cases for name in (*case.sha256, f"{case.name}.json")}
    unused = [path for path in (out / CASES).iterdir() if path.is_file() and nfc(path.name) not in used]
    endings = (".image.npy", ".label.npy", ".json")
    unused = [path for path in unused if path.name.endswith(endings) or path.name.startswith(PARTIAL)]
    if unused:
        (out / MANIFEST).unlink(missing_ok=True)
    for path in unused:
        path.unlink()
    return len(unused)


def source_of(path: Path) -> Source:
    """Return size, modification time and checksum of a scan. Several files of a scan have one common checksum."""
    files = _files(path)
    try:
        size, mtime_ns = _size_and_time(files)
        hashes = [sha256_of(file) for file in files]
    except OSError as error:
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({error.strerror})", "check the file") from None
    sha256 = hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    return Source(size, mtime_ns, sha256)


def unchanged(path: Path, source: Source) -> bool:
    """Return whether a scan has the recorded size, and the recorded modification time or checksum."""
    try:
        size, mtime_ns = _size_and_time(_files(path))
    except (OSError, UserError):
        return False
    if size != source.size:
        return False
    return mtime_ns == source.mtime_ns or source_of(path).sha256 == source.sha256


def _files(path: Path) -> list[Path]:
    refuse_broken_link(path)
    files = files_of(path)
    if not files or (path.exists() and not path.is_file() and files == [path]):
        raise UserError(Code.NOT_A_SCAN, path, "not a file", "replace it with a scan")
    return files


def _size_and_time(files: list[Path]) -> tuple[int, int]:
    stats = [file.stat() for file in files]
    return sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)


def check_target(out: Path, root: Path, *, overwrite: bool) -> None:
    """Refuse a target that is not a store. Refuse a store of other data, except with ``overwrite`` if it is no link."""
    if out.exists() and not out.is_dir():
        raise UserError(Code.TARGET_EXISTS, out, "a file, not a folder", "name a folder for the store")
    if not out.exists() or not any(out.iterdir()):
        return
    if not is_store(out):
        finding = "the folder is not empty and not a prepared store"
        raise UserError(Code.TARGET_EXISTS, out, finding, "name a new folder")
    recorded, is_link = _recorded_root(out), out.is_symlink() or (out / CASES).is_symlink()
    if recorded not in (None, root.resolve()) and (is_link or not overwrite):
        finding = f"the store was made from {recorded}, not from {root}"
        raise UserError(Code.TARGET_EXISTS, out, finding, "name another folder")


def _recorded_root(out: Path) -> Path | None:
    """Return the data folder that a finished or unfinished store was made from, or None if it is not recorded."""
    for path in (out / MANIFEST, *sorted((out / CASES).glob("*.json"))):
        try:
            return Path(str(read_json(path)["root"])).resolve()
        except (UserError, KeyError, TypeError):
            continue
    return None
