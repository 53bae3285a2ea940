"""Find the scans of an archive: a folder, a text list of paths, or a tree of folders with DICOM series."""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.data.formats.dicom import is_dicom_case, series_folders
from graftseg.data.grouping import scans_in
from graftseg.data.scans import READABLE, is_dicom_scan, is_scan, scan_stem

LIST = ".txt"
"""Suffix of a list of scans."""

Stems = dict[Path, str]
"""The name of each scan, without suffix and possibly with a channel number."""


def scans_below(path: Path) -> tuple[Stems, dict[str, UserError]]:
    """Return the scans of a scan, folder or list with their names, and an error for each listed path without a scan.

    A list has one path per line, relative to the folder of the list. Empty lines and lines that start with ``#`` are
    ignored. A path is a scan or a folder of scans. Scans with the same name are named after their folders, too.

    A subfolder with DICOM files is one scan. If it contains several series in different folders, each of these folders
    is a scan, which is named after all folders: ``patient-study-series``.
    """
    if is_list(path):
        return _listed(path)
    return _in_folder(path) if path.is_dir() else {path: scan_stem(path)}, {}


def is_list(path: Path) -> bool:
    """Return whether a path is a text list of scans."""
    return path.suffix.lower() == LIST and path.is_file()


def _in_folder(folder: Path) -> Stems:
    """Return the scans of a folder. A folder of DICOM slices is one scan."""
    scans = scans_in(folder)
    if all(is_dicom_scan(scan) for scan in scans) and is_dicom_case(folder):
        return {folder: scan_stem(folder)}
    stems: Stems = {}
    for scan in scans:
        names = {place: nfc("-".join(place.relative_to(folder).parts)) for place in _series_below(scan)}
        stems |= names or {scan: scan_stem(scan)}
    return stems


def _series_below(scan: Path) -> list[Path]:
    """Return the series of a subfolder, or nothing if it is one scan, or if reading it will fail."""
    try:
        return series_folders(scan) if scan.is_dir() else []
    except UserError:
        return []


def _listed(path: Path) -> tuple[Stems, dict[str, UserError]]:
    stems: Stems = {}
    failures: dict[str, UserError] = {}
    for place in _paths_in(path):
        found: Stems = {}
        finding = "contains no scan" if place.is_dir() else "not a scan" if place.exists() else "no such file"
        if place.is_dir():
            found = _in_folder(place)
        elif place.exists() and is_scan(place):
            found = {place: scan_stem(place)}
        stems |= found
        if not found:
            error = UserError(Code.NOT_A_SCAN, place, finding, f"list {READABLE} scans, or folders of such scans")
            failures[nfc(place.name)] = error
    repeated = {stem for stem, count in Counter(stems.values()).items() if count > 1}
    same = [place for place, stem in stems.items() if stem in repeated]
    return stems | _named_after_folders(same, stems), failures


def _paths_in(path: Path) -> list[Path]:
    """Return the absolute paths of a list, each of them once."""
    try:
        lines = [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({reason})", "write one path per line") from None
    return list(dict.fromkeys(path.parent.absolute() / line for line in lines if line and not line.startswith("#")))


def _named_after_folders(places: Sequence[Path], stems: Stems) -> Stems:
    """Return longer names of some scans: the folders below their common folder, and the name."""
    if not places:
        return {}
    common = os.path.commonpath([place.parent for place in places])
    return {place: nfc("-".join([*place.parent.relative_to(common).parts, stems[place]])) for place in places}
