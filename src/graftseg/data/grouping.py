"""Group files into cases, and match label maps with cases by name.

A case is one file, or all files that differ only in the channel number. The label maps ``Liver_01.seg.nrrd`` and
``liver_01-label.nii.gz`` belong to ``liver_01``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from statistics import multimode

from graftseg.core.errors import Code, UserError
from graftseg.core.names import ENCODED_DIFFERENTLY, nfc, original_name
from graftseg.core.phrases import and_more
from graftseg.core.predictions import extra_files
from graftseg.core.types import Case, Split
from graftseg.data.folders import visible_entries, with_children
from graftseg.data.formats.dicom import series_of_slices
from graftseg.data.scans import is_dicom_file, is_label_map, is_scan, scan_stem

CHANNEL = re.compile(r"(?P<case>.+)_(?P<channel>\d{4})", re.DOTALL)  # case name and channel number
Files = dict[str, dict[int, Path]]  # files by case name and channel number
NAMED_SERIES = 3  # at most this many series are named in an error
ENDING = re.compile(r"[_\-. ](seg|segmentation|labels?|mask|gt)$", re.IGNORECASE)  # marks label maps
MIN_SIMILARITY = 0.6  # names below this ratio of ``SequenceMatcher`` are not suggested


def group_scans(
    scans: list[Path],
    problems: list[UserError],
    *,
    is_numbered: bool,
    channels: int | None = None,
    stem: Callable[[Path], str] = scan_stem,
) -> Files:
    """Group scans into cases by their names without suffix (``stem``).

    With ``is_numbered``, scans whose names differ only in the channel number are one case. Otherwise each scan is a
    case. A missing channel number, or a second file of a channel, is added to ``problems``. ``channels`` is the number
    of channels of a case, if known.
    """
    files: Files = {}
    for path in scans:
        if not is_numbered:
            add_channel(files, stem(path), 0, path, problems)
        elif match := CHANNEL.fullmatch(stem(path)):
            add_channel(files, match["case"], int(match["channel"]), path, problems)
        else:
            name, remedy = scan_stem(path), "name the channels CASE_0000, CASE_0001, ..."
            numbered = f"{name}_0000{nfc(path.name)[len(name) :]}"
            if channels == 1 and not (path.parent / numbered).exists():
                remedy = f"rename {path.name} to {numbered}"
            if original := original_name(stem(path)):
                remedy = f"if it is a second copy of {original}, remove it; otherwise {remedy}"
            problems.append(UserError(Code.CASE_NAME, path, "the name has no channel number", remedy))
    return files


def channel_count_of(scans: Iterable[Path]) -> int:
    """Return the most frequent number of channels of a case, the largest of several, or 1 without channel numbers."""
    counts: dict[tuple[Path, str], int] = {}
    for path in scans:
        if match := CHANNEL.fullmatch(scan_stem(path)):
            case = path.parent, match["case"]
            counts[case] = max(counts.get(case, 1), int(match["channel"]) + 1)
    return max(multimode(counts.values()), default=1)


def add_channel(files: Files, case: str, channel: int, path: Path, problems: list[UserError]) -> None:
    """Add a file to a case, or an error to ``problems`` if the channel already has a file."""
    first = files.setdefault(case, {}).setdefault(channel, path)
    if first != path:
        problems.append(duplicate_case_error(path, first))


def duplicate_case_error(path: Path, other: Path) -> UserError:
    """Return the error for two files of the same case."""
    finding = f"the same case as {other.name}"
    if path.name != other.name and nfc(path.name) == nfc(other.name):
        finding += f", whose name {ENCODED_DIFFERENTLY}"
    return UserError(Code.CASE_DUPLICATE, path, finding, "keep one of the two files")


def make_case(name: str, files: dict[int, Path], label: Path | None, split: Split) -> Case:
    """Return a case with its channels ordered by number."""
    return Case(name, tuple(files[channel] for channel in sorted(files)), label, split)


def find_incomplete(files: Files, channels: int, remedy: str) -> Iterator[tuple[str, UserError]]:
    """Yield the name and the error of each case with missing or unexpected channels."""
    expected = f"0000 to {channels - 1:04d}" if channels > 1 else "only 0000"
    for name, by_channel in files.items():
        if set(by_channel) != set(range(channels)):
            numbers = ", ".join(f"{channel:04d}" for channel in sorted(by_channel))
            finding = f"the case has the channels {numbers}, expected {expected}"
            yield name, UserError(Code.CHANNELS_MISMATCH, min(by_channel.items())[1], finding, remedy)


def scans_in(folder: Path) -> list[Path]:
    """Return the scans of a folder, sorted by name and without hidden files."""
    return [path for path in visible_entries(folder) if is_scan(path)]


def nested_scans(folder: Path) -> list[Path]:
    """Return the scans in a subfolder of a folder of scans, at most two levels deep, unless it is a DICOM scan."""
    if not folder.is_dir() or is_scan(folder):
        return []
    return [scan for inside in with_children(folder) for scan in scans_in(inside)]


def labels_in(folder: Path) -> list[Path]:
    """Return the label maps of a folder, sorted by name and without hidden files."""
    return [path for path in visible_entries(folder) if is_label_map(path)]


def label_maps_by_case(folder: Path) -> dict[str, Path]:
    """Return the label maps of a folder by case name, without other outputs of a prediction such as probabilities."""
    maps: dict[str, Path] = {}
    extras = extra_files(folder)
    for path in labels_in(folder):
        if path.name not in extras and (other := maps.setdefault(scan_stem(path), path)) != path:
            raise duplicate_case_error(path, other)
    return maps


def refuse_loose_slices(folder: Path, scans: Sequence[Path], labels: Collection[str]) -> None:
    """Refuse several slices of a DICOM series in a folder, unless a slice has its own label map (``labels``)."""
    files = [path for path in scans if is_dicom_file(path)]
    if len(files) < 2 or any(scan_stem(path) in labels for path in files) or not (series := series_of_slices(files)):
        return
    # neither the slices nor their headers contain the name of the case
    named = [and_more(slices[0].name, len(slices)) for slices in series[:NAMED_SERIES]]
    listed = ", ".join(named) + (", ..." if len(series) > NAMED_SERIES else "")
    count = sum(map(len, series))
    finding = f"{count} DICOM slices of {len(series)} series lie directly in the folder ({listed})"
    remedy = f"move the slices of each series into a subfolder with the name of its case, such as {folder.name}/case_01"
    raise UserError(Code.DICOM_SERIES, folder, finding, remedy)


def without_label_ending(name: str) -> str:
    """Return the name of a label map without a final ``_seg``, ``_label`` or similar word."""
    return ENDING.sub("", nfc(name))


def match_labels(labels: Collection[str], cases: Collection[str]) -> dict[str, str]:
    """Return the case of each label map with an unambiguous match. Other label maps are missing in the result.

    Names are compared exactly, then ignoring case, then also without the ending of the label name. A match is
    unambiguous if neither the label map nor the case has another match.
    """
    matched: dict[str, str] = {}
    for key in (nfc, _folded, _bare):
        free_labels = _by_key([label for label in labels if label not in matched], key)
        free_cases = _by_key(set(cases) - {*matched.values()}, nfc if key is nfc else _folded)
        for shared in free_labels.keys() & free_cases.keys():
            if len(free_labels[shared]) == len(free_cases[shared]) == 1:
                matched[free_labels[shared][0]] = free_cases[shared][0]
    return matched


def cases_of_name(label: str, cases: Collection[str]) -> list[str]:
    """Return the cases whose names differ from a label map only in upper and lower case and in the label ending."""
    return sorted(case for case in cases if _folded(case) in (_folded(label), _bare(label)))


def most_similar_case(label: str, cases: Collection[str]) -> str | None:
    """Return the case with the same numbers and the most similar name, or None if no name is similar."""
    bare = _bare(label)
    alike = [case for case in cases if _numbers(case) == _numbers(bare)]
    ranked = sorted((-SequenceMatcher(None, bare, _folded(case)).ratio(), case) for case in alike)
    return ranked[0][1] if ranked and -ranked[0][0] >= MIN_SIMILARITY else None


def _by_key(names: Collection[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    names_by_key: dict[str, list[str]] = {}
    for name in names:
        names_by_key.setdefault(key(name), []).append(name)
    return names_by_key


def _folded(name: str) -> str:
    return nfc(name).casefold()


def _bare(name: str) -> str:
    return _folded(without_label_ending(name))


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"[0-9]+", name)]
