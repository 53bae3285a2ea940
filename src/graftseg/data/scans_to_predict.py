"""The scans to predict in a folder or in a text list of paths, grouped into cases."""

import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from graftseg.core.errors import Code, UserError, in_one_line
from graftseg.core.names import nfc, original_name
from graftseg.core.phrases import counted
from graftseg.core.reading import read_text
from graftseg.core.types import Case
from graftseg.data.folders import visible_entries
from graftseg.data.formats.dicom import is_dicom_case, series_folders, series_of_slices
from graftseg.data.formats.pictures import SUFFIXES as PICTURES
from graftseg.data.formats.scan import KEEP_ONE
from graftseg.data.grouping import CHANNEL, Files, add_channel, find_incomplete, group_scans, make_case, scans_in
from graftseg.data.scans import READABLE, is_dicom_file, is_dicom_scan, is_scan, read_scan, scan_stem
from graftseg.data.unsupported_files import unsupported_images_in

logger = logging.getLogger(__name__)
LIST_SUFFIX = ".txt"
MAX_LIST_BYTES = 64 * 2**20
Stems = dict[Path, str]  # names of scans without suffix, by path; a name may end in a channel number


def scan_cases(path: Path, channels: int, trained: Collection[str] = ()) -> tuple[list[Case], dict[str, UserError]]:
    """Return the cases of a scan, a folder or a list to predict, and an error for each case that cannot be predicted.

    ``scans_below`` describes lists, and folders with several DICOM series in a subfolder.
    The files ``CASE_0000``, ``CASE_0001``, ... are the channels of one case. A file without a channel number is a case.
    If every case has only the file ``CASE_0000``, that file may contain all channels, which is checked on reading. If
    the path is a file ``CASE_0000`` that does not contain all channels, the files of its other channels in the same
    folder belong to it.

    In two situations, the number in ``CASE_0007`` is a part of the case name:

    - The names of the training cases (``trained``) have the same form.
    - No file name ends in ``_0000``. Exception: if all numbers are below ``channels`` and the first file has one
      channel, the numbers are channels, and every case lacks its file ``CASE_0000``.
    """
    if not path.exists():
        raise UserError(Code.FILE_MISSING, path, "no such file or folder", "check the path")
    stems, absent = scans_below(path)
    trained_prefixes = _prefixes(trained)
    if not _prefixes(stems.values()) & trained_prefixes:
        stems |= _other_channels(path, channels)
    scans = list(stems)
    _warn_of_single_slice(path)
    _warn_of_copies(stems)
    if not scans and not absent:
        kind, remedy = unsupported_images_in(path) or ("", f"pass a folder with {READABLE} scans")
        raise UserError(Code.NOT_A_SCAN, path, "the folder contains no scan" + (f": {kind}" if kind else ""), remedy)
    problems: list[UserError] = []
    numbered = [scan for scan in scans if CHANNEL.fullmatch(stems[scan])]
    numbered = [scan for scan in numbered if not _prefixes([stems[scan]]) & trained_prefixes]
    files = group_scans(numbered, problems, is_numbered=True, stem=stems.__getitem__)
    if all(0 not in by_channel for by_channel in files.values()) and not _lack_first_channel(files, channels):
        numbered, files = [], {}
    failures = absent | dict(_find_wrong_channels(files, channels))
    others = sorted({*scans} - {*numbered})
    unnumbered = group_scans(others, problems, is_numbered=False, stem=stems.__getitem__)
    for name in sorted(unnumbered.keys() & files.keys()):
        add_channel(unnumbered, name, 0, min(files[name].items())[1], problems)
    if problems:
        raise problems[0]
    complete = {name: by_channel for name, by_channel in files.items() if name not in failures} | unnumbered
    cases = [make_case(name, by_channel, None, "test") for name, by_channel in complete.items()]
    return sorted(cases, key=lambda case: case.name), failures


def _warn_of_copies(stems: Stems) -> None:
    """Warn of scans with the name of a copy, such as ``a (1)``."""
    for scan, stem in stems.items():
        if original := original_name(stem):
            where = in_one_line(str(scan))
            logger.warning("%s: predicted as a separate case; remove it if it is a copy of %s", where, original)


def _warn_of_single_slice(path: Path) -> None:
    """Warn if a path is one slice of a DICOM series whose other slices are in the same folder."""
    if not path.is_file() or is_list(path) or not is_dicom_file(path):
        return
    files = [file for file in visible_entries(path.parent) if file.is_file()]
    others = next((len(slices) - 1 for slices in series_of_slices(files) if path in slices), 0)
    if others:
        count = counted(others, "other slice")
        finding = f"predicting a single slice, but the folder contains {count} of its series"
        logger.warning("%s: %s; pass the folder to predict the volume", in_one_line(str(path)), finding)


def _prefixes(names: Collection[str]) -> set[str]:
    """Return names without channel numbers and with 0 for all other numbers: ``site12_0007`` becomes ``site0``."""
    matches = (CHANNEL.fullmatch(nfc(name)) for name in names)
    return {re.sub(r"\d+", "0", match["case"]) for match in matches if match}


def _find_wrong_channels(files: Files, channels: int) -> Iterator[tuple[str, UserError]]:
    """Yield name and error of cases with the wrong channels. A single ``CASE_0000`` may contain all channels."""
    if channels > 1 and all(set(by_channel) == {0} for by_channel in files.values()):
        return
    remedy = "pass a folder that contains exactly the files CASE_0000, CASE_0001, ... of the case"
    for name, error in find_incomplete(files, channels, remedy):
        present = sorted(files[name])
        if len(present) > channels:
            numbers = ", ".join(f"{channel:04d}" for channel in present)
            network, kept = ("one", "channel") if channels == 1 else (str(channels), "channels")
            finding = f"the case has {len(present)} channels ({numbers}), but the network has {network}"
            rename = f"if these are different cases, rename them to {name}-{present[0]:04d} and so on"
            error = UserError(error.code, error.where, finding, f"keep the {kept} used in training; {rename}")
        yield name, error


def check_channels(where: str | Path, count: int, expected: int) -> None:
    """Raise a UserError if a scan has more or fewer channels than the training scans."""
    if count != expected:
        finding = f"has {counted(count, 'channel')}, but the run was trained on {expected}"
        remedy = "give the same channels as in training: files CASE_0000, CASE_0001, ... or one file"
        remedy += f"; {KEEP_ONE}" if count > expected else ""
        raise UserError(Code.CHANNELS_MISMATCH, where, finding, remedy)


def scans_below(path: Path) -> tuple[Stems, dict[str, UserError]]:
    """Return the names of the scans at a path, and an error by name for each listed path without a scan.

    ``path`` is a scan, a folder of scans, or a list. A list has one scan or folder of scans per line, relative to the
    folder of the list. Empty lines and lines that start with ``#`` are ignored. If several scans of a list have the
    same name, the names of their folders are put before it: ``FOLDER-NAME``.

    A subfolder with DICOM files is one scan. If it contains several series in different folders, each of these folders
    is a scan, which is named after all folders: ``patient-study-series``.
    """
    if is_list(path):
        return _scans_in_list(path)
    return _scans_in_folder(path) if path.is_dir() else {path: scan_stem(path)}, {}


def _other_channels(path: Path, channels: int) -> Stems:
    """Return the files of all other channels next to the file ``CASE_0000``.

    Return nothing if one of them is missing, or if the file contains all channels.
    """
    match = CHANNEL.fullmatch(scan_stem(path))
    is_color = channels == 3 and path.name.lower().endswith(PICTURES)  # one picture contains all channels
    if not path.is_file() or match is None or int(match["channel"]) or is_color:
        return {}
    stems = [f"{match['case']}_{channel:04d}" for channel in range(1, channels)]
    suffix = nfc(path.name)[len(scan_stem(path)) :]
    neighbors = {nfc(entry.name): entry for entry in visible_entries(path.parent)} if stems else {}
    if any(stem + suffix not in neighbors for stem in stems) or _channel_count(path, channels) == channels:
        return {}
    return {neighbors[stem + suffix]: stem for stem in stems}


def _lack_first_channel(files: Files, channels: int) -> bool:
    """Return whether files, none of which ends in ``_0000``, are the other channels of incomplete cases.

    This is so if all numbers are below ``channels`` and the first file has one channel.
    """
    paths = {path: channel for by_channel in files.values() for channel, path in by_channel.items()}
    return bool(paths) and max(paths.values()) < channels and _channel_count(next(iter(paths)), channels) == 1


def _channel_count(path: Path, channels: int) -> int | None:
    """Return the number of channels of a file for a network with ``channels`` channels, or None if it is unreadable."""
    try:
        return len(read_scan(path, channels).array)
    except UserError:
        return None


def is_list(path: Path) -> bool:
    """Return whether a path is a text list of scans."""
    return path.suffix.lower() == LIST_SUFFIX and path.is_file()


def _scans_in_folder(folder: Path) -> Stems:
    scans = scans_in(folder)
    if all(is_dicom_scan(scan) for scan in scans) and is_dicom_case(folder):
        return {folder: scan_stem(folder)}
    stems: Stems = {}
    for scan in scans:
        names = {series: nfc("-".join(series.relative_to(folder).parts)) for series in _series_below(scan)}
        stems |= names or {scan: scan_stem(scan)}
    return stems


def _series_below(scan: Path) -> list[Path]:
    """Return the folders of the series below a subfolder, or none if it is one scan or cannot be read."""
    try:
        return series_folders(scan) if scan.is_dir() else []
    except UserError:
        return []


def _scans_in_list(path: Path) -> tuple[Stems, dict[str, UserError]]:
    stems: Stems = {}
    failures: dict[str, UserError] = {}
    for entry in _paths_in(path):
        if entry.is_dir():
            scans, finding = _scans_in_folder(entry), "contains no scan"
        else:
            scans = {entry: scan_stem(entry)} if entry.exists() and is_scan(entry) else {}
            finding = "not a scan" if entry.exists() else "no such file"
        stems |= scans
        if not scans:
            error = UserError(Code.NOT_A_SCAN, entry, finding, f"list {READABLE} scans, or folders of such scans")
            failures[nfc(entry.name)] = error
    counts = Counter(stems.values())
    ambiguous = [scan for scan, stem in stems.items() if counts[stem] > 1]
    common = os.path.commonpath([scan.parent for scan in ambiguous]) if ambiguous else ""
    folders = {scan: scan.parent.relative_to(common).parts for scan in ambiguous}
    return stems | {scan: nfc("-".join([*parts, stems[scan]])) for scan, parts in folders.items()}, failures


def _paths_in(path: Path) -> list[Path]:
    """Return the absolute paths in a list, without duplicates."""
    try:
        content = read_text(path, "utf-8-sig", limit=MAX_LIST_BYTES)
        if "\0" in content:  # as in UTF-16
            raise ValueError("a null character")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UserError(Code.READ_FAILED, path, f"cannot be read ({reason})", "write one path per line") from None
    lines = [line.strip() for line in content.splitlines()]
    return list(dict.fromkeys(path.parent.absolute() / line for line in lines if line and not line.startswith("#")))
