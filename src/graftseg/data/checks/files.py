"""Checks of files and folders: files and scans that are not used, and images without a label map."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from graftseg.core.errors import Code
from graftseg.core.phrases import and_more, counted
from graftseg.core.predictions import MANIFEST
from graftseg.core.types import Case
from graftseg.data.checks.findings import Finding, Severity
from graftseg.data.dataset import Dataset
from graftseg.data.folders import visible_entries
from graftseg.data.grouping import nested_scans, scans_in
from graftseg.data.labels import FIXABLE_LAYOUTS
from graftseg.data.layouts import FOLDER_NAMES, misnamed_folders
from graftseg.data.unsupported_files import CONVERSION_ADVICE, CONVERT_VOLUME, most_common_ending, unsupported_ending


def file_findings(dataset: Dataset) -> Iterator[Finding]:
    """Report files and folders that are not used, and images without a label map."""
    yield from _strays(dataset)
    if dataset.layout in FIXABLE_LAYOUTS:
        yield from _unused_folders(dataset.root)
        yield from _images_without_label(dataset)
    yield from _test_scans_without_label(dataset)


def _strays(dataset: Dataset) -> Iterator[Finding]:
    """Report files in the scan folders that are not scans, and scans in subfolders."""
    nested = {name: len(nested_scans(dataset.root / name)) for name in dataset.ignored}
    for name, scans in nested.items():
        if scans:
            remedy = f"move the scans up into {Path(name).parent}, and remove the subfolder"
            yield Finding("warning", "scans in a subfolder are not used", name, counted(scans, "scan"), remedy)
    if strays := [name for name, scans in nested.items() if not scans]:
        ending = most_common_ending(strays)
        first = next(name for name in strays if ending is None or unsupported_ending(name) == ending)
        remedy = f"{CONVERT_VOLUME if ending is None else CONVERSION_ADVICE[ending]}; or remove them"
        yield Finding("warning", "files that are not scans are ignored", first, counted(len(strays), "file"), remedy)


def _unused_folders(root: Path) -> Iterator[Finding]:
    """Report folders of scans that are not read, except for predictions and misspelled names, which are errors."""
    named = {root / name for name in FOLDER_NAMES} | misnamed_folders(root).keys()
    for folder in visible_entries(root):
        if not folder.is_dir() or folder in named or (folder / MANIFEST).exists():
            continue
        if scans := scans_in(folder):
            what, remedy, unit = "the scans in this folder are not used", "unlabeled scans belong in imagesUn", "scan"
            if folder.name.lower().startswith("label"):
                what, unit = "the label maps in this folder are not used", "label map"
                remedy = "label maps belong in labelsTr or labelsTs"
            yield Finding("warning", what, folder.name, counted(len(scans), unit), remedy)


def _images_without_label(dataset: Dataset) -> Iterator[Finding]:
    """Report unlabeled images in ``imagesTr``: a warning if most images there are labeled, and otherwise a note."""
    folder = dataset.root / "imagesTr"
    labeled, unlabeled = (
        [case for case in dataset.of(split) if case.images[0].parent == folder] for split in ("labeled", "unlabeled")
    )
    if unlabeled:
        severity: Severity = "warning" if len(unlabeled) < len(labeled) else "note"
        what = "images in imagesTr have no label map, so they are used as unlabeled scans"
        remedy = "if a label map is missing, add it to labelsTr"
        if any(problem.code is Code.LABEL_UNMATCHED for problem in dataset.problems):
            remedy += "; a label map without an image may belong to one of them"
        yield _without_label(severity, what, unlabeled, len(labeled) + len(unlabeled), remedy)


def _test_scans_without_label(dataset: Dataset) -> Iterator[Finding]:
    """Report test scans without a label map, if other test scans have one."""
    tested = dataset.of("test")
    missing = [case for case in tested if case.label is None]
    if 0 < len(missing) < len(tested):
        remedy = "`graftseg test` needs a label map for each test scan: add the missing ones, or remove these scans"
        yield _without_label("warning", "test scans have no label map", missing, len(tested), remedy)


def _without_label(severity: Severity, what: str, cases: Sequence[Case], total: int, remedy: str) -> Finding:
    names = tuple(case.name for case in cases)
    where = and_more(names[0], len(names))
    return Finding(severity, what, where, f"{len(names)} of {counted(total, 'image')}", remedy, names)
