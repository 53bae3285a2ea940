"""Which files make a case: those whose names differ in the number of a channel, or each by itself."""

import re
from collections.abc import Iterator
from pathlib import Path

from graftseg.core.errors import Code, UserError
from graftseg.core.names import ENCODED_DIFFERENTLY, nfc
from graftseg.core.types import Case, Split
from graftseg.data.folders import visible_entries
from graftseg.data.scans import is_label_map, is_scan, scan_stem

CHANNEL = re.compile(r"(?P<case>.+)_(?P<channel>\d{4})", re.DOTALL)
Files = dict[str, dict[int, Path]]
"""The files of a case by channel, the cases by their names in one Unicode form."""


def by_channel(scans: list[Path], problems: list[UserError]) -> Files:
    """The cases of scans whose names end in the numbers of channels; one without a number is a problem."""
    files: Files = {}
    for path in scans:
        if match := CHANNEL.fullmatch(scan_stem(path)):
            add(files, nfc(match["case"]), int(match["channel"]), path, problems)
        else:
            problems.append(
                UserError(
                    Code.CHANNELS_MISMATCH,
                    path,
                    "the name has no channel number",
                    "call the first channel CASE_0000, the next CASE_0001",
                )
            )
    return files


def by_name(scans: list[Path], problems: list[UserError]) -> Files:
    """The cases of scans that are one each, by their whole names."""
    files: Files = {}
    for path in scans:
        add(files, nfc(scan_stem(path)), 0, path, problems)
    return files


def add(files: Files, case: str, channel: int, path: Path, problems: list[UserError]) -> None:
    """Make a file a channel of a case; a second file for the same is a problem."""
    taken = files.setdefault(case, {}).setdefault(channel, path)
    if taken != path:
        finding = f"the same scan as {taken.name}, by its name"
        if taken.name != path.name and nfc(taken.name) == nfc(path.name):
            finding += f", which {ENCODED_DIFFERENTLY}"
        problems.append(UserError(Code.CHANNELS_MISMATCH, path, finding, "keep one of the two files"))


def own_name(files: dict[int, Path], *, is_numbered: bool) -> str:
    """The name of a case in the form in which its first file has it."""
    stem = scan_stem(min(files.items())[1])
    return stem.rpartition("_")[0] if is_numbered else stem


def case_of(files: dict[int, Path], label: Path | None, split: Split, *, is_numbered: bool) -> Case:
    """A case of these channels, in their order."""
    images = tuple(files[channel] for channel in sorted(files))
    return Case(own_name(files, is_numbered=is_numbered), images, label, split)


def incomplete(files: Files, channels: int, remedy: str) -> Iterator[tuple[str, UserError]]:
    """The cases whose channels are not exactly those expected."""
    expected = f"0000 to {channels - 1:04d} are" if channels > 1 else "0000 alone is"
    for name, found in files.items():
        if set(found) != set(range(channels)):
            numbers = ", ".join(f"{channel:04d}" for channel in sorted(found))
            finding = f"the case has the channels {numbers} where {expected} expected"
            yield name, UserError(Code.CHANNELS_MISMATCH, min(found.items())[1], finding, remedy)


def scans_in(folder: Path) -> list[Path]:
    """The scans of a folder, by name; hidden files are none."""
    return [path for path in visible_entries(folder) if is_scan(path)]


def labels_in(folder: Path) -> list[Path]:
    """The label maps of a folder, by name; hidden files are none."""
    return [path for path in visible_entries(folder) if is_label_map(path)]


def duplicate_case_error(path: Path, other: Path) -> UserError:
    """What is wrong with two files of one case."""
    finding = f"the same case as {other.name}"
    if path.name != other.name and nfc(path.name) == nfc(other.name):
        finding += f", whose name {ENCODED_DIFFERENTLY}"
    return UserError(Code.CASE_DUPLICATE, path, finding, "keep one of the two files")
