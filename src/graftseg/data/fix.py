"""Write a fixed copy of a data set: correct headers, orientations and label values, and leave out broken cases."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graftseg.core.errors import Code, UserError
from graftseg.core.files import atomic_folder, link_or_copy, make_folder, write_json
from graftseg.core.types import Case, Geometry
from graftseg.data import scans
from graftseg.data.checks.cases import ROUNDING, differs_by_rounding
from graftseg.data.checks.findings import Finding
from graftseg.data.dataset import Dataset, ScanFiles
from graftseg.data.dataset_json import DatasetJson
from graftseg.data.fingerprint import Fingerprint
from graftseg.data.folders import visible_entries
from graftseg.data.formats.nifti import is_nifti
from graftseg.data.formats.scan import VOLUMES_ARE_CHANNELS
from graftseg.data.grid import Grid, axis_codes, corner_distance, lossless_reorientation, to_grid
from graftseg.data.grouping import CHANNEL, cases_of_name
from graftseg.data.labels import FIXABLE_LAYOUTS, Renumbering, renumber, turning_advice
from graftseg.data.layouts import FOLDER_NAMES

DATASET_JSON = "dataset.json"
RECORD = "mended.json"  # the content of ``FixedCopy``
NAME_PROBLEMS = (Code.CASE_DUPLICATE, Code.CASE_NAME, Code.CHANNELS_MISMATCH, Code.FILE_MISSING, Code.LABEL_UNMATCHED)
"""Problems of a layout that disappear if the named files are left out."""


@dataclass(frozen=True)
class FileFix:
    """A file to rewrite with a new geometry, new label values, or both."""

    path: Path
    what: str  # description of the change
    geometry: Geometry | None = None
    values: dict[int, int] | None = None  # new label values by old value
    grid: Grid | None = None  # how axes are permuted and flipped before the new geometry is written

    @property
    def name(self) -> str:
        """Name of the new file: NIfTI, or PNG for a PNG label map whose geometry is unchanged."""
        lower, values = self.path.name.lower(), (self.values or {}).values()
        stays_png = lower.endswith(".png") and self.geometry is None and max(values, default=256) <= 255
        return self.path.name if is_nifti(self.path) or stays_png else f"{scans.scan_stem(self.path)}.nii.gz"

    @property
    def description(self) -> str:
        """The change, and the new file name if it differs."""
        return self.what if self.name == self.path.name else f"{self.what}; written as {self.name}"


@dataclass(frozen=True)
class FixedCopy:
    """Description of a fixed copy."""

    folder: Path | None  # None if nothing needed fixing
    files: dict[str, str]  # changes of rewritten files, by path
    values: dict[int, int]  # new label values by old value
    classes: dict[int, str]  # new class list, empty if unchanged
    unchanged: int  # number of linked files
    left: tuple[str, ...]  # problems that were not fixed
    dropped: dict[str, str] = field(default_factory=dict)  # cases, and files without a case, with the reasons

    def to_json(self) -> dict[str, Any]:
        """Return plain values without the path of the folder."""
        content = asdict(self)
        del content["folder"]
        return content | {"values": {str(old): new for old, new in self.values.items()}}


def write_fixed_copy(
    dataset: Dataset, summaries: Fingerprint, out: Path, broken: dict[str, str] | None = None
) -> FixedCopy:
    """Write a copy of a data set with the same layout into ``out``, and fix its geometry and label values.

    - A label map or channel whose grid differs from its image by less than a tenth of a voxel gets the geometry of the
      image. Its voxels are unchanged.
    - A label map at the place of its image, but stored in another orientation, gets the orientation of the image.
      This is right if its header is right.
    - Label values with gaps become 0, 1, 2, ..., also in the class list.
    - Masks of 0 and 255 become masks of 0 and 1.
    - ``broken`` cases and files, given with the reasons, are left out. If there are any, files in the folders of scans
      that belong to no remaining case are left out, too.

    All other files are hard links to the originals, or copies if the disk does not support links. ``out`` appears only
    when it is complete, and is not created if nothing needs fixing.
    """
    check_fix_target(dataset, out)
    dropped = broken or {}
    if dropped:
        dataset = without_broken(dataset, dropped)
    counts_of = {(case.name, case.split): case.label_counts for case in summaries.cases}
    counts = [counts_of.get((case.name, case.split), {}) for case in dataset.cases]
    renumbering, left = _renumbering(dataset, counts)
    pairs = zip(dataset.cases, counts, strict=True)
    fixes = {each.path: each for case, values in pairs for each in _file_fixes(case, values, renumbering)}
    classes = renumbering.classes
    if not fixes and not classes and not dropped:
        return FixedCopy(None, {}, {}, {}, 0, left)
    files = {path.relative_to(dataset.root).as_posix(): file_fix.description for path, file_fix in fixes.items()}
    with atomic_folder(out) as partial:
        new_json = _new_dataset_json(dataset, classes, is_restricted=bool(dropped))
        sources = [path for path in _files(dataset.root) if new_json is None or path != dataset.root / DATASET_JSON]
        if dropped:
            sources = [*without_strays(sources, dataset)]
        # a header is written together with its voxels as one file
        voxels = {file for path in fixes if scans.is_header(path) for file in scans.files_of(path)} - fixes.keys()
        sources = [path for path in sources if path not in voxels]
        unchanged = sum(_add_file(path, partial, dataset.root, fixes) for path in sources)
        if new_json is not None:
            write_json(partial / DATASET_JSON, new_json)
        copy = FixedCopy(out, files, renumbering.changes, classes, unchanged, left, dropped)
        write_json(partial / RECORD, copy.to_json())
    return copy


def check_fix_target(dataset: Dataset, out: Path) -> None:
    """Raise a UserError if a fixed copy of the data set cannot be written to a folder."""
    if not isinstance(dataset.reader, ScanFiles) or dataset.layout not in FIXABLE_LAYOUTS:
        finding = "--fix needs a folder with imagesTr/ and labelsTr/"
        raise UserError(Code.LAYOUT_UNKNOWN, dataset.root, finding, "use this layout, or fix the files yourself")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(Code.TARGET_EXISTS, out, "already exists", "name a new folder after --fix")
    if out.resolve().is_relative_to(dataset.root.resolve()):
        raise UserError(Code.UNSAFE_TARGET, out, "inside the data folder", "name another folder after --fix")


def _renumbering(dataset: Dataset, counts: list[dict[int, int]]) -> tuple[Renumbering, tuple[str, ...]]:
    """Return the renumbering, which may be empty, and the reasons why invalid label values are not renumbered."""
    unchanged, renumbering = Renumbering({}, {}), renumber(dataset.classes, [count for count in counts if count])
    if not isinstance(renumbering, Renumbering):
        return unchanged, () if renumbering is None else (renumbering,)
    unread = [case.name for case, count in zip(dataset.cases, counts, strict=True) if case.label and not count]
    if unread:
        return unchanged, (f"label values are not renumbered because the label map of {unread[0]} cannot be read",)
    return renumbering, ()


def _file_fixes(case: Case, counts: dict[int, int], renumbering: Renumbering) -> Iterator[FileFix]:
    try:
        # skip a case with an unreadable file, which the check has already reported
        grids = {path: scans.read_geometry(path, VOLUMES_ARE_CHANNELS) for path in case.images}
    except UserError:
        return
    image = grids[case.images[0]]
    for path in case.images[1:]:
        if differs_by_rounding(image, grids[path]):
            yield FileFix(path, _geometry_change(case.images[0].name, image, grids[path]), image)
    # a DICOM label is read on the grid of its image, and names instead of values decide its classes
    if case.label is None or not counts or scans.is_dicom_scan(case.label):
        return
    label_grid = scans.read_geometry(case.label)
    descriptions, geometry, values = [], None, None
    grid = lossless_reorientation(label_grid, image, ROUNDING)
    if grid is not None:
        geometry = image
        turned = f"axes turned from {axis_codes(label_grid)} to {axis_codes(image)}, as in the image"
        descriptions.append(f"{turned} ({turning_advice(image, label_grid)})")
    elif differs_by_rounding(image, label_grid):
        geometry = image
        descriptions.append(_geometry_change("the image", image, label_grid))
    if changed := sorted(renumbering.changes.keys() & counts.keys()):
        values = renumbering.values
        descriptions.append("new label values: " + ", ".join(f"{old} -> {values[old]}" for old in changed))
    if descriptions:
        yield FileFix(case.label, "; ".join(descriptions), geometry, values, grid)


def _geometry_change(source: str, new: Geometry, old: Geometry) -> str:
    voxels = corner_distance(new, old) / min(new.spacing)
    return f"geometry replaced by the geometry of {source}, from which it differed by {voxels:.3f} voxels"


def _add_file(path: Path, target: Path, root: Path, fixes: dict[Path, FileFix]) -> bool:
    """Add a file to the copy: fixed if necessary, otherwise linked. Return whether the file is unchanged."""
    destination = target / path.relative_to(root)
    make_folder(destination.parent)
    if path in fixes:
        _write(fixes[path], destination)
    elif path.is_dir():
        destination.symlink_to(path.resolve(), target_is_directory=True)
    else:
        link_or_copy(path, destination)
    return path not in fixes


def _write(file_fix: FileFix, destination: Path) -> None:
    destination = destination.with_name(file_fix.name)
    if file_fix.values is None:
        scan = scans.read_scan(file_fix.path, VOLUMES_ARE_CHANNELS)
        scans.write_scan(destination, _reoriented(scan.array, file_fix.grid), file_fix.geometry or scan.geometry)
        return
    scan = scans.read_label(file_fix.path)
    table = np.arange(int(scan.array.max(initial=0)) + 1, dtype=np.uint16)
    for old, new in file_fix.values.items():
        if old < len(table):
            table[old] = new
    scans.write_label(destination, _reoriented(table[scan.array], file_fix.grid), file_fix.geometry or scan.geometry)


def _reoriented(array: NDArray[Any], grid: Grid | None) -> NDArray[Any]:
    return array if grid is None else to_grid(array, grid, labels=True)


def _files(folder: Path) -> Iterator[Path]:
    """Yield the visible files below a folder. In its subfolders, links to folders are yielded, not followed."""
    pending: list[tuple[Path, int]] = [(folder, 0)]
    while pending:
        current, depth = pending.pop()
        for path in visible_entries(current):
            if path.is_dir() and (depth == 0 or not path.is_symlink()):
                pending.append((path, depth + 1))
            else:
                yield path


def _new_dataset_json(dataset: Dataset, classes: dict[int, str], *, is_restricted: bool) -> dict[str, Any] | None:
    """Return the new content of dataset.json, with labels in their old form, or None if it does not change."""
    old = DatasetJson.read(dataset.root)
    content = old.restricted(dataset.cases) if is_restricted else old.content
    if not classes:
        return None if content == old.content else content
    labels = content.get("labels", {})
    by_value = bool(labels) and all(key.isdecimal() and isinstance(entry, str) for key, entry in labels.items())
    new = {str(value): name for value, name in classes.items()}
    return content | {"labels": new if by_value else {name: value for value, name in classes.items()}}


def find_broken(dataset: Dataset, findings: Iterable[Finding]) -> dict[str, str]:
    """Return the cases to leave out, and the files to leave out that belong to no case, each with the reason."""
    broken: dict[str, str] = {}
    for finding in findings:
        if finding.fixed_by == "--drop":
            broken |= {name: finding.what for name in finding.cases if name not in broken}
    for problem in dataset.problems:
        if problem.code in NAME_PROBLEMS:
            path = Path(problem.where)
            file = path.relative_to(dataset.root).as_posix() if path.is_relative_to(dataset.root) else problem.where
            for name in _cases_of(dataset, problem) or [file]:
                broken.setdefault(name, problem.finding)
    return broken


def without_broken(dataset: Dataset, broken: dict[str, str]) -> Dataset:
    """Return a data set without broken cases. Refuse to leave out all labeled cases."""
    intact = replace(dataset, cases=tuple(case for case in dataset.cases if case.name not in broken))
    if not intact.of("labeled"):
        finding = "all labeled cases are broken, so --drop would leave no labeled case"
        raise UserError(Code.TOO_FEW_CASES, dataset.root, finding, "correct at least one of the labeled cases")
    return intact


def without_strays(files: Iterable[Path], dataset: Dataset) -> Iterator[Path]:
    """Yield the files of the cases, and all files outside of the folders of images and labels."""
    paths = {path for case in dataset.cases for path in (*case.images, case.label) if path is not None}
    used = paths | {file for path in paths if not path.is_dir() for file in scans.files_of(path)}
    folders = {dataset.root / name for name in FOLDER_NAMES}
    for file in files:
        if folders.isdisjoint(file.parents) or not used.isdisjoint((file, *file.parents)):
            yield file


def _cases_of(dataset: Dataset, problem: UserError) -> list[str]:
    """Return the cases that a problem concerns: the case of the named file, or the cases with the name of the file."""
    path, stem = Path(problem.where), scans.scan_stem(Path(problem.where))
    if by_file := [case.name for case in dataset.cases if path in (*case.images, case.label)]:
        return by_file
    if problem.code is not Code.CASE_DUPLICATE:
        return []
    # an error about a duplicate case may name the case instead of a file
    stems = {problem.where, stem, *(match["case"] for match in [CHANNEL.fullmatch(stem)] if match)}
    names = [case.name for case in dataset.cases]
    return sorted({name for stem in stems for name in cases_of_name(stem, names)})
