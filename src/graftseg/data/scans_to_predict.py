"""Scans to predict -> cases: which files are channels of one, by their number and by how a training named its cases."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc
from graftseg.core.types import Case
from graftseg.data.folders import unsupported_images_in
from graftseg.data.formats.dicom import holds_own_slices
from graftseg.data.grouping import CHANNEL, Files, add, by_channel, by_name, case_of, incomplete, own_name, scans_in
from graftseg.data.scans import READABLE, is_label_map, scan_stem


def scan_cases(path: Path, channels: int, trained: Collection[str] = ()) -> tuple[list[Case], dict[str, UserError]]:
    """The cases of a scan or of a folder of scans to predict, and by name those that lack or exceed channels.

    ``CASE_0000`` to the last channel are one case, and so is ``CASE_0000`` where no case has another file: it may hold
    all channels, as reading tells. A file without such a number is a case. For a network of one channel
    so is every ``CASE_0007`` if no name ends in ``_0000``, or if cases that it was ``trained`` on are numbered so.
    """
    if not path.exists():
        raise UserError(Code.FILE_MISSING, path, "there is no such file or folder", "check the spelling of the path")
    scans = _to_predict(path)
    if not scans:
        kind, remedy = unsupported_images_in(path) or ("", f"name a folder with {READABLE} scans")
        raise UserError(Code.NOT_A_SCAN, path, "the folder holds no scan" + (f": {kind}" if kind else ""), remedy)
    problems: list[UserError] = []
    series = _series(trained) if channels == 1 else set()
    numbered = [
        scan for scan in scans if CHANNEL.fullmatch(scan_stem(scan)) and not _series([scan_stem(scan)]) & series
    ]
    files = by_channel(numbered, problems)
    if channels == 1 and all(0 not in found for found in files.values()):
        numbered, files = [], {}
    failures = dict(_unfit(files, channels))
    whole = by_name([scan for scan in scans if scan not in numbered], problems)
    for name in sorted(whole.keys() & files.keys()):
        add(whole, name, 0, min(files[name].items())[1], problems)
    if problems:
        raise problems[0]
    complete = {name: found for name, found in files.items() if name not in failures} | whole
    cases = [case_of(found, None, "test", is_numbered=name in files) for name, found in complete.items()]
    own_names = {own_name(files[name], is_numbered=True): error for name, error in failures.items()}
    return sorted(cases, key=lambda case: case.name), own_names


def _to_predict(path: Path) -> list[Path]:
    """A scan by itself, which a folder of slices is too, or the scans of a folder."""
    if not path.is_dir():
        return [path]
    scans = scans_in(path)
    only_dicom = not any(is_label_map(scan) for scan in scans)
    return [path] if only_dicom and holds_own_slices(path) else scans


def _series(names: Collection[str]) -> set[str]:
    """What stands before the numbers of numbered cases, whatever the digits in it: ``site0`` for ``site12_0007``."""
    matches = (CHANNEL.fullmatch(nfc(name)) for name in names)
    return {re.sub(r"\d+", "0", match["case"]) for match in matches if match}


def _unfit(files: Files, channels: int) -> Iterator[tuple[str, UserError]]:
    """The cases that have other channels than the network; where all are CASE_0000, each file may hold all channels."""
    if channels > 1 and all(set(found) == {0} for found in files.values()):
        return
    remedy = "give the case its files CASE_0000 and so on, no more and no fewer, and name their folder"
    for name, error in incomplete(files, channels, remedy):
        found = sorted(files[name])
        if channels == 1 and len(found) > 1:
            numbers = ", ".join(f"{channel:04d}" for channel in found)
            finding = f"the case has {len(found)} channels ({numbers}) where the network takes one"
            hint = f"{own_name(files[name], is_numbered=True)}-{found[0]:04d}"
            error = UserError(
                Code.DATASET_INVALID,
                error.where,
                finding,
                f"keep the file of the channel that it was trained on; if these are different cases, call them {hint} "
                "and so on",
            )
        yield name, error
