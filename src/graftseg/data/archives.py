"""Find the scans in a folder, in a text list of paths, or in a tree of folders with DICOM series."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.reading import read_text
from graftseg.data.formats.dicom import is_dicom_case, series_folders
from graftseg.data.grouping import scans_in
from graftseg.data.scans import READABLE, is_dicom_scan, is_scan, scan_stem

LIST_SUFFIX = ".txt"
MAX_LIST_BYTES = 64 * 2**20

Stems = dict[Path, str]
"""Names of scans by path, without suffix. A name may end in a channel number."""


def scans_below(path: Path) -> tuple[Stems, dict[str, UserError]]:
    """Return the names of the scans at a path, and an error by name for each listed path without a scan.

    ``path`` is a scan, a folder of scans, or a list. A list has one scan or folder of scans per line, relative to the
    folder of the list. Empty lines and lines that start with ``#`` are ignored. If several scans have the same name,
    the names of their folders are put in front.

    A subfolder with DICOM files is one scan. If it contains several series in different folders, each of these folders
    is a scan, which is named after all folders: ``patient-study-series``.
    """
    if is_list(path):
        return _listed(path)
    return _in_folder(path) if path.is_dir() else {path: scan_stem(path)}, {}


def is_list(path: Path) -> bool:
    """Return whether a path is a text list of scans."""
    return path.suffix.lower() == LIST_SUFFIX and path.is_file()


def _in_folder(folder: Path) -> Stems:
    """Return the scans of a folder. A folder of DICOM slices is one scan."""
    scans = scans_in(folder)
    if all(is_dicom_scan(scan) for scan in scans) and is_dicom_case(folder):
        return {folder: scan_stem(folder)}
    stems: Stems = {}
    for scan in scans:
        names = {series: nfc("-".join(series.relative_to(folder).parts)) for series in _series_below(scan)}
        stems |= names or {scan: scan_stem(scan)}
    return stems


def _series_below(scan: Path) -> list[Path]:
    """Return the folders of the series below a subfolder. Return nothing if it is one scan or cannot be read."""
    try:
        return series_folders(scan) if scan.is_dir() else []
    except UserError:
        return []


def _listed(path: Path) -> tuple[Stems, dict[str, UserError]]:
    stems: Stems = {}
    failures: dict[str, UserError] = {}
    for entry in _paths_in(path):
        scans: Stems = {}
        finding = "contains no scan" if entry.is_dir() else "not a scan" if entry.exists() else "no such file"
        if entry.is_dir():
            scans = _in_folder(entry)
        elif entry.exists() and is_scan(entry):
            scans = {entry: scan_stem(entry)}
        stems |= scans
        if not scans:
            error = UserError(Code.NOT_A_SCAN, entry, finding, f"list {READABLE} scans, or folders of such scans")
            failures[nfc(entry.name)] = error
    repeated = {stem for stem, count in Counter(stems.values()).items() if count > 1}
    ambiguous = [scan for scan, stem in stems.items() if stem in repeated]
    return stems | _named_after_folders(ambiguous, stems), failures


def _paths_in(path: Path) -> list[Path]:
    """Return the absolute paths in a list, without duplicates."""
    try:
        lines = [line.strip() for line in read_text(path, "utf-8-sig", limit=MAX_LIST_BYTES).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({reason})", "write one path per line") from None
    return list(dict.fromkeys(path.parent.absolute() / line for line in lines if line and not line.startswith("#")))


def _named_after_folders(scans: Sequence[Path], stems: Stems) -> Stems:
    """Return names that begin with the folders of each scan, counted from the common folder of all these scans."""
    if not scans:
        return {}
    common = os.path.commonpath([scan.parent for scan in scans])
    return {scan: nfc("-".join([*scan.parent.relative_to(common).parts, stems[scan]])) for scan in scans}
