"""Scans -> prepared store: orientation, spacing and intensity once, so that training only reads."""

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from graftseg.core.errors import Code, UserError
from graftseg.core.files import PARTIAL, atomic_path, locked, read_json, sha256_of, write_json
from graftseg.core.names import nfc
from graftseg.core.progress import in_parallel
from graftseg.core.settings import Settings
from graftseg.core.types import Case, Geometry
from graftseg.data.dataset import Dataset, ScanFiles, same_in_all_cases
from graftseg.data.folders import refuse_broken_link
from graftseg.data.formats.scan import Guess, guess_lines
from graftseg.data.grid import Grid, plan_grid, to_grid
from graftseg.data.intensity import IntensitySettings, normalize
from graftseg.data.labels import checked_values, refuse_class_list, refuse_unlisted
from graftseg.data.scans import Scan, files_of
from graftseg.data.store import CASES, FORMAT, LOCK, MANIFEST, Source, Store, StoredCase, is_store, open_store

log = logging.getLogger(__name__)

Millimetres = Annotated[float, Field(le=1e6)]
"""No voxel is a kilometre long."""


class PrepareSettings(Settings):
    """How scans become what a network sees.

    A 2-D recipe takes 2-D scans as they are, and volumes slice by slice along their last axis once they are
    reoriented. ``spacing`` is in mm along the prepared axes, one entry per dimension; None keeps an axis.
    """

    dimensions: Literal[2, 3] = Field(description="2 for slices, 3 for volumes.")
    spacing: tuple[Millimetres | None, ...] | None = Field(default=None, description="Spacing in mm.")
    orientation: str | None = Field(default="RAS", description="Axis codes of volumes; None keeps theirs.")
    intensity: IntensitySettings = IntensitySettings()

    @model_validator(mode="after")
    def _agree(self) -> "PrepareSettings":
        if self.spacing is not None:
            if len(self.spacing) != self.dimensions:
                raise ValueError(f"spacing has {len(self.spacing)} entries for {self.dimensions} dimensions")
            if any(step is not None and step <= 0 for step in self.spacing):
                raise ValueError("spacing must be above 0 mm")
        axes = sorted("RLAPSI".find(code) // 2 for code in self.orientation or "RAS")
        if axes != [0, 1, 2]:
            raise ValueError(f"orientation {self.orientation!r} is not three axis codes such as RAS")
        return self


def as_read(dimensions: Literal[2, 3]) -> PrepareSettings:
    """Settings that change nothing, for data whose files hold what a network shall see."""
    unchanged = IntensitySettings(rule="none")
    return PrepareSettings(dimensions=dimensions, spacing=None, orientation=None, intensity=unchanged)


def prepare_image(
    scan: Scan, settings: PrepareSettings, *, where: str | Path = "scan"
) -> tuple[npt.NDArray[np.float32], Grid]:
    """The one way from a scan to a network's input ``(C, *space)``, with the grid that leads back."""
    grid = prepared_grid(scan.geometry, settings, where=where)
    return normalize(to_grid(scan.array, grid, labels=False), settings.intensity), grid


def prepared_grid(geometry: Geometry, settings: PrepareSettings, *, where: str | Path = "scan") -> Grid:
    """The grid that a scan is brought to, which its header alone tells."""
    axes = len(geometry.shape)
    if axes < settings.dimensions:
        raise UserError(
            Code.RECIPE_MISMATCH, where, f"a {axes}-D scan for a {settings.dimensions}-D recipe", "use a 2-D recipe"
        )
    spacing = settings.spacing
    if spacing is not None and axes > settings.dimensions:
        spacing = (*spacing, None)
    return plan_grid(geometry, orientation=settings.orientation if axes == 3 else None, spacing=spacing)


def prepare(
    dataset: Dataset, out: Path, settings: PrepareSettings, *, workers: int | None = None, anew: bool = False
) -> Store:
    """Make the store ``out`` from a data set, or bring it up to date: only what changed is made anew.

    An interrupted call is taken up by the next one. The manifest is there only while the store is whole. A store of
    other data is refused, or replaced where it may be made ``anew``, since nobody has begun anything with it.
    """
    if dataset.problems:
        raise dataset.problems[0]
    for case in dataset.cases:
        if not _is_file_name(case.name):
            raise UserError(Code.CASE_NAME, case.name, "the name of the case cannot be a file name", "rename the scan")
    refuse_class_list(dataset)
    check_target(out, dataset.root, anew=anew)
    with locked(out / LOCK, "another prepare is writing this store"):
        if anew:
            clear_other(out, dataset.root)
        work = _Work(dataset, out, settings)
        made = in_parallel(work, dataset.cases, "Preparing scans", workers)
        cases = tuple(one.case for one in made)
        for line in guess_lines(guess for one in made for guess in one.guesses):
            log.warning("%s", line)
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
        dropped = _drop_others(out, cases)
        store.save()
    fresh = sum(one.is_new for one in made)
    log.info("%s: %d cases made, %d reused, %d files dropped", out, fresh, len(cases) - fresh, dropped)
    return open_store(out)


def first_change(dataset: Dataset, out: Path, settings: PrepareSettings) -> str | None:
    """The first case of a store that preparing these data would make otherwise, add or drop, or else the first class.

    It is told in words. A further test case is no change, since no training sees it, nor is a file that is made again
    as it was. Data that cannot be prepared change nothing.
    """
    if dataset.problems:
        return None
    work, known = _Work(dataset, out, settings), {nfc(path.stem): path.stem for path in _records(out)}
    kept: list[StoredCase] = []
    for case in dataset.cases:
        if nfc(case.name) not in known:
            if known and case.split != "test":
                return f"case {case.name} would be added"
        elif (recorded := work.recorded(case)) is None:
            return f"case {case.name} would be made otherwise"
        else:
            kept.append(recorded)
    if dropped := known.keys() - {nfc(case.name) for case in dataset.cases}:
        return f"case {known[min(dropped)]} would be dropped"
    return _changed_class(dataset, out, tuple(kept))


def _changed_class(dataset: Dataset, out: Path, kept: tuple[StoredCase, ...]) -> str | None:
    """How the list of classes would change; a store that is unfinished has none yet."""
    try:
        before, now = list(map(str, read_json(out / MANIFEST)["classes"])), _class_names(dataset, kept)
    except (UserError, ValueError, KeyError, TypeError):
        return None
    if len(before) != len(now):
        return f"there would be {len(now)} classes, not {len(before)}"
    differ = (number for number, name in enumerate(now) if name != before[number])
    number = next(differ, None)
    return None if number is None else f"class {number} would be {now[number]}, not {before[number]}"


@dataclass(frozen=True)
class _Made:
    """A stored case, whether it was made anew, and what was guessed about its scan then."""

    case: StoredCase
    is_new: bool
    guesses: tuple[Guess, ...] = ()


@dataclass(frozen=True)
class _Work:
    """Bring one case into the store; its record, written last, says that it is whole."""

    dataset: Dataset
    out: Path
    settings: PrepareSettings

    def __call__(self, case: Case) -> _Made:
        """The case as it is in the store, made anew where need be."""
        kept = self._kept(case)
        if kept is not None:
            refuse_unlisted(self.dataset, case, kept.values)
            return _Made(kept, is_new=False)
        return self._make(case)

    def _kept(self, case: Case) -> StoredCase | None:
        """The case as it is in the store, if its files are whole and neither sources nor settings changed."""
        kept = self.recorded(case)
        if kept is not None:
            try:
                kept.check_files(self.out / CASES)
            except UserError:
                return None
        return kept

    def recorded(self, case: Case) -> StoredCase | None:
        """The case as the store describes it, if neither sources nor settings changed since."""
        try:
            record = read_json(_record(self.out, case.name))
            kept = StoredCase.from_json(record["case"])
        except (UserError, ValueError, KeyError, TypeError):
            return None
        sources = self._sources(case)
        same = (kept.name, kept.split, kept.label is None) == (case.name, case.split, case.label is None)
        if not same or record.get("key") != self._key() or kept.sources.keys() != sources.keys():
            return None
        return kept if all(unchanged(path, kept.sources[name]) for name, path in sources.items()) else None

    def _make(self, case: Case) -> _Made:
        sources = {name: source_of(path) for name, path in self._sources(case).items()}
        scan = self.dataset.reader.image(case)
        image, grid = prepare_image(scan, self.settings, where=case.images[0])
        image_file, label_file = f"{case.name}.image.npy", f"{case.name}.label.npy"
        arrays: dict[str, npt.NDArray[Any]] = {image_file: _half(image, case.images[0])}
        values: tuple[int, ...] = ()
        if case.label is not None:
            label, values = self._label(case, scan)
            arrays[label_file] = to_grid(label, grid, labels=True)
        hashes = self._write(arrays)
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
            sha256=hashes,
        )
        record = {"root": str(self.dataset.root.resolve()), "key": self._key(), "case": stored.to_json()}
        write_json(_record(self.out, case.name), record)
        return _Made(stored, is_new=True, guesses=scan.guesses)

    def _label(self, case: Case, scan: Scan) -> tuple[npt.NDArray[np.uint8], tuple[int, ...]]:
        label = self.dataset.reader.label(case)
        values = checked_values(self.dataset, case, scan.geometry, label)
        return label.array.astype(np.uint8), values

    def _write(self, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, str]:
        """Write the arrays and return their hashes; the store is unfinished from here on."""
        (self.out / MANIFEST).unlink(missing_ok=True)
        for name, array in arrays.items():
            with atomic_path(self.out / CASES / name) as partial:
                np.save(partial, np.ascontiguousarray(array))
        return {name: sha256_of(self.out / CASES / name) for name in arrays}

    def _sources(self, case: Case) -> dict[str, Path]:
        paths = (*case.images, case.label) if case.label else case.images
        return {os.path.relpath(path, self.dataset.root): path for path in paths}

    def _key(self) -> str:
        content: list[Any] = [FORMAT, self.settings.model_dump(mode="json")]
        if not isinstance(self.dataset.reader, ScanFiles):
            content.append(repr(self.dataset.reader))
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_file_name(name: str) -> bool:
    """Whether a name can be that of files and stand in a manifest, which is UTF-8."""
    forbidden = name.startswith(".") or any(letter in name for letter in "/\\\0")
    return not forbidden and name.encode(errors="replace").decode() == name


def _record(out: Path, name: str) -> Path:
    return out / CASES / f"{name}.json"


def _records(out: Path) -> list[Path]:
    return sorted((out / CASES).glob("*.json"))


def _half(image: npt.NDArray[np.float32], where: Path) -> npt.NDArray[np.float16]:
    with np.errstate(over="ignore"):
        half = image.astype(np.float16)
    if not np.isfinite(half).all():
        finding = f"intensities up to {np.abs(image).max():g} exceed 65504, the largest a store can hold"
        raise UserError(Code.DATASET_INVALID, where, finding, "choose another intensity rule, such as zscore")
    return half


def _class_names(dataset: Dataset, cases: tuple[StoredCase, ...]) -> tuple[str, ...]:
    """Names by value; without a list the labeled cases say which values there are."""
    if dataset.classes:
        return tuple(dataset.classes.values())
    top = max(value for case in cases if case.split == "labeled" for value in case.values)
    if top == 0:
        raise UserError(Code.LABELS_EMPTY, dataset.root, "all label maps are empty", "check the files in labelsTr")
    for case in cases:
        if case.values and case.values[-1] > top:
            finding = f"the label value {case.values[-1]} occurs in no labeled case"
            raise UserError(
                Code.LABELS_EMPTY, case.name, finding, "name the classes in dataset.json or correct the label map"
            )
    return ("background", *(f"class {value}" for value in range(1, top + 1)))


def _is_file_of(path: Path, name: str | None) -> bool:
    """Whether a file is the one of this name; some disks tell names in another form than they were written in."""
    return name is not None and (path.name == name or path.samefile(path.with_name(name)))


def _drop_others(out: Path, cases: tuple[StoredCase, ...]) -> int:
    """Remove the files of cases that are gone, and what an interrupted call left behind."""
    files = {nfc(name): name for case in cases for name in (*case.sha256, f"{case.name}.json")}
    others = [path for path in (out / CASES).iterdir() if not _is_file_of(path, files.get(nfc(path.name)))]
    if others:
        (out / MANIFEST).unlink(missing_ok=True)
    for path in others:
        path.unlink()
    return len(others)


def source_of(path: Path) -> Source:
    """Size, time and hash of a scan; those of all its files together where it is several."""
    files = _files(path)
    try:
        size, mtime_ns = _size_and_time(files)
        hashes = [sha256_of(file) for file in files]
    except OSError as error:
        raise UserError(
            Code.READ_FAILED, path, f"the file cannot be read ({error.strerror})", "check that it is there"
        ) from None
    return Source(
        size, mtime_ns, hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()
    )


def unchanged(path: Path, source: Source) -> bool:
    """Whether a scan is what it was: by size and time, and by content where only the time differs."""
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
        raise UserError(Code.DAMAGED_FILE, path, "not a file", "put a scan in its place")
    return files


def _size_and_time(files: list[Path]) -> tuple[int, int]:
    stats = [file.stat() for file in files]
    return sum(stat.st_size for stat in stats), max(stat.st_mtime_ns for stat in stats)


OF_CASES = (".image.npy", ".label.npy", ".json")


def check_target(out: Path, root: Path, *, anew: bool) -> None:
    """Refuse a folder that is something else, or a store of other data, unless that may be made ``anew``."""
    if out.exists() and not out.is_dir():
        raise UserError(Code.TARGET_EXISTS, out, "this is a file", "name a folder for the store")
    if not out.exists() or not any(out.iterdir()):
        return
    if not is_store(out):
        raise UserError(
            Code.TARGET_EXISTS, out, "the folder is not empty and not a prepared store", "name a new folder"
        )
    recorded = _other_root(out, root)
    if recorded is not None and not (anew and _is_all_own(out)):
        raise UserError(
            Code.TARGET_EXISTS, out, f"the store was made from {recorded}, not from {root}", "name another folder"
        )


def clear_other(out: Path, root: Path) -> None:
    """Remove what a store of other data consists of; the manifest first, since it vouches for the rest."""
    if _other_root(out, root) is None or not _is_all_own(out):
        return
    (out / MANIFEST).unlink(missing_ok=True)
    for path in _entries(out / CASES):
        path.unlink()


def _other_root(out: Path, root: Path) -> str | None:
    """The data that a store was made from, where these are others."""
    for path in (out / MANIFEST, *sorted((out / CASES).glob("*.json"))):
        try:
            recorded = str(read_json(path)["root"])
        except (UserError, KeyError, TypeError):
            continue
        is_same = recorded == str(root) or Path(recorded).resolve() == root.resolve()
        return None if is_same else recorded
    return None


def _is_all_own(out: Path) -> bool:
    """Whether a folder holds nothing but what making a store writes; what a link leads to may be somebody's."""
    if out.is_symlink() or (out / CASES).is_symlink():
        return False
    own = {LOCK, MANIFEST, CASES}
    return all(path.name in own or path.name.startswith(PARTIAL) for path in _entries(out)) and all(
        path.is_file() and (path.name.endswith(OF_CASES) or path.name.startswith(PARTIAL))
        for path in _entries(out / CASES)
    )


def _entries(folder: Path) -> Iterator[Path]:
    return iter(sorted(folder.iterdir()) if folder.is_dir() else ())
