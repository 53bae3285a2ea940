"""A mended copy of a data set: headers that rounding set apart, label values with gaps. The original stays as it is."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder, make_folder, read_object, write_json
from graftseg.core.types import Case, Geometry
from graftseg.data.checks.cases import is_noise
from graftseg.data.dataset import Dataset, ScanFiles
from graftseg.data.fingerprint import Fingerprint
from graftseg.data.folders import visible_entries
from graftseg.data.grid import corner_distance
from graftseg.data.labels import Renumbering, renumber
from graftseg.data.scans import (
    VOLUMES_ARE_CHANNELS,
    read_geometry,
    read_label,
    read_scan,
    scan_stem,
    write_label,
    write_scan,
)

LIST = "dataset.json"
RECORD = "mended.json"
WRITTEN = (".nii", ".nii.gz")
PICTURE = ".png"
LAYOUTS = ("nnunet", "msd")


@dataclass(frozen=True)
class FileFix:
    """One file that is written anew: on which grid, if not its own, and with which label values in place of its own."""

    path: Path
    what: str
    geometry: Geometry | None = None
    values: dict[int, int] | None = None

    @property
    def name(self) -> str:
        """The name of the new file: NIfTI, or PNG where a label map was that and gets no grid."""
        lower, values = self.path.name.lower(), (self.values or {}).values()
        stays_picture = lower.endswith(PICTURE) and self.geometry is None and max(values, default=256) <= 255
        return self.path.name if lower.endswith(WRITTEN) or stays_picture else f"{scan_stem(self.path)}.nii.gz"

    @property
    def told(self) -> str:
        """What is done to the file, and its new name where it gets one."""
        return self.what if self.name == self.path.name else f"{self.what}; now {self.name}"


@dataclass(frozen=True)
class FixedCopy:
    """What was mended: files by their place in the folder with what was done, renumbered values, what was left."""

    folder: Path | None
    files: dict[str, str]
    values: dict[int, int]
    classes: dict[int, str]
    unchanged: int
    left: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the place of the folder."""
        content = asdict(self)
        del content["folder"]
        return content | {"values": {str(old): new for old, new in self.values.items()}}


def write_fixed_copy(dataset: Dataset, summaries: Fingerprint, out: Path) -> FixedCopy:
    """Write a copy of a data set with the same layout into ``out`` and mend there what can be mended without a guess.

    A label map, or a channel, whose grid differs from that of its image by less than a tenth of a voxel gets the
    image's geometry; its voxels stay. Label values with gaps become 0, 1, 2, ..., in the list of classes too, and a
    mask of 0 and 255 becomes one of 0 and 1. All other files are hard links to the originals, or copies where the disk
    cannot link. ``out`` appears when it is whole, and not at all where there is nothing to mend.
    """
    check_fix_target(dataset, out)
    counts = {(case.name, case.split): case.label_counts for case in summaries.cases}
    renumbering, left = _renumbering(dataset, [counts.get((case.name, case.split), {}) for case in dataset.cases])
    repairs = {
        repair.path: repair
        for case in dataset.cases
        for repair in _repairs(case, counts.get((case.name, case.split), {}), renumbering)
    }
    classes = {} if renumbering is None else renumbering.classes
    if not repairs and not classes:
        return FixedCopy(None, {}, {}, {}, 0, left)
    mended = FixedCopy(
        out,
        {path.relative_to(dataset.root).as_posix(): repair.told for path, repair in repairs.items()},
        {} if renumbering is None else renumbering.changes,
        classes,
        0,
        left,
    )
    with atomic_folder(out) as partial:
        unchanged = sum(_put(path, partial, dataset.root, repairs, classes) for path in _files(dataset.root))
        if classes:
            write_json(partial / LIST, _renamed(dataset.root / LIST, classes))
        mended = replace(mended, unchanged=unchanged)
        write_json(partial / RECORD, mended.to_json())
    return mended


def check_fix_target(dataset: Dataset, out: Path) -> None:
    """Raise a UserError where a data set cannot be mended into a folder."""
    if not isinstance(dataset.reader, ScanFiles) or dataset.layout not in LAYOUTS:
        finding = "only a folder with imagesTr/ and labelsTr/ can be mended"
        raise UserError(
            Code.TARGET_EXISTS, dataset.root, finding, "arrange the scans like that, or mend the files yourself"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(Code.TARGET_EXISTS, out, "it exists already", "name a new folder after --fix")
    if out.resolve().is_relative_to(dataset.root.resolve()):
        raise UserError(
            Code.UNSAFE_TARGET, out, "it lies inside the folder that is mended", "name a folder elsewhere after --fix"
        )


def _renumbering(dataset: Dataset, counts: list[dict[int, int]]) -> tuple[Renumbering | None, tuple[str, ...]]:
    """The new label values, if any, and why values are left as they are although they should not be."""
    found = renumber(dataset.classes, [count for count in counts if count])
    if not isinstance(found, Renumbering):
        return None, () if found is None else (found,)
    unread = [case.name for case, count in zip(dataset.cases, counts, strict=True) if case.label and not count]
    if unread:
        return None, (f"label values are left as they are, since those of {unread[0]} could not be read",)
    return found, ()


def _repairs(case: Case, counts: dict[int, int], renumbering: Renumbering | None) -> Iterator[FileFix]:
    """The files of a case that are to be written anew."""
    try:
        # a file that is no scan has been told of, and nothing is wrong with its geometry
        grids = {path: read_geometry(path, VOLUMES_ARE_CHANNELS) for path in case.images}
    except UserError:
        return
    image = grids[case.images[0]]
    for path in case.images[1:]:
        if is_noise(image, grids[path]):
            yield FileFix(path, f"geometry of {case.images[0].name}, {_apart(image, grids[path])}", image)
    if case.label is None or not counts:
        return
    own = read_geometry(case.label)
    done, geometry, values = [], None, None
    if is_noise(image, own):
        geometry = image
        done.append(f"geometry of its image, {_apart(image, own)}")
    changes = {} if renumbering is None else renumbering.changes
    if renumbering is not None and changes.keys() & counts.keys():
        values = renumbering.values
        done.append("label values " + ", ".join(f"{old} -> {values[old]}" for old in sorted(counts) if old in changes))
    if done:
        yield FileFix(case.label, "; ".join(done), geometry, values)


def _apart(image: Geometry, other: Geometry) -> str:
    return f"which lay {corner_distance(image, other) / min(image.spacing):.3f} of a voxel apart"


def _put(path: Path, target: Path, root: Path, repairs: dict[Path, FileFix], classes: dict[int, str]) -> bool:
    """Put a file into the copy, mended or as it is; whether it is as it was."""
    place = target / path.relative_to(root)
    make_folder(place.parent)
    if path in repairs:
        _write(repairs[path], place)
        return False
    if path == root / LIST and classes:
        return False
    _link(path, place)
    return True


def _write(repair: FileFix, place: Path) -> None:
    place = place.with_name(repair.name)
    if repair.values is None:
        scan = read_scan(repair.path, VOLUMES_ARE_CHANNELS)
        write_scan(place, scan.array, repair.geometry or scan.geometry)
        return
    scan = read_label(repair.path)
    table = np.arange(int(scan.array.max(initial=0)) + 1, dtype=np.uint16)
    for old, new in repair.values.items():
        if old < len(table):
            table[old] = new
    write_label(place, table[scan.array], repair.geometry or scan.geometry)


def _link(path: Path, place: Path) -> None:
    """The same file under another name; a copy where the disk, or the border between two, allows no link."""
    if path.is_dir():
        place.symlink_to(path.resolve(), target_is_directory=True)
        return
    try:
        os.link(os.path.realpath(path), place)
    except OSError:
        try:
            shutil.copy2(path, place)
        except OSError as error:
            reason = error.strerror or "unknown reason"
            raise UserError(
                Code.WRITE_FAILED, path, f"cannot be copied ({reason})", "check free disk space and permissions"
            ) from None


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder, by name, without hidden ones; a link to a folder below the first two stands for it."""
    pending: list[tuple[Path, int]] = [(folder, 0)]
    while pending:
        current, depth = pending.pop()
        for path in visible_entries(current):
            if path.is_dir() and (depth == 0 or not path.is_symlink()):
                pending.append((path, depth + 1))
            else:
                yield path


def _renamed(path: Path, classes: dict[int, str]) -> dict[str, Any]:
    """The content of the list of classes with the new values, written the way it was."""
    content = read_object(path) if path.is_file() else {}
    labels = content.get("labels", {})
    by_value = bool(labels) and all(key.isdecimal() and isinstance(entry, str) for key, entry in labels.items())
    new = {str(value): name for value, name in classes.items()}
    return content | {"labels": new if by_value else {name: value for value, name in classes.items()}}
