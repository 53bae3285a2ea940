"""The file ``dataset.json`` of nnU-Net and of the Medical Segmentation Decathlon."""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graftseg.core.errors import Code, UserError
from graftseg.core.files import read_json
from graftseg.core.types import Case
from graftseg.data.folders import refuse_broken_link
from graftseg.data.grouping import CHANNEL
from graftseg.data.scans import is_scan, scan_stem

LISTS = ("training", "test", "dataset")  # keys whose values list the files of cases
MAX_PATH_BYTES, MAX_NAME_BYTES = 4000, 255  # of a listed path, and of each folder and file name in it
MAX_DIGITS = 18  # label values with more digits are invalid


@dataclass(frozen=True)
class DatasetJson:
    """The content of ``dataset.json`` in a folder, empty if the file is missing."""

    path: Path
    content: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "DatasetJson":
        """Read and check the file."""
        path = folder / "dataset.json"
        refuse_broken_link(path)
        content = read_json(path) if path.is_file() else {}
        if not isinstance(content, dict):
            raise _invalid(path, "not an object of keys and values", "restore the file or remove it")
        ending = content.get("file_ending")
        if any(map(_is_too_long, (f"case{ending}", *_listed_paths(content)))):
            raise _invalid(path, "an entry is too long for a file name", "correct the entry")
        if ending is not None and not is_scan(Path(f"case{ending}")):
            raise _invalid(path, f"file_ending {ending!r} cannot be read", "convert the scans to .nii.gz")
        for key in ("channel_names", "modality", "labels"):
            if key in content and not isinstance(content[key], dict):
                raise _invalid(path, f"{key} is not an object of keys and values", "correct the entry")
        return cls(path, content)

    @property
    def named_channels(self) -> int | None:
        """Number of channels listed in the file, or None if no channels are listed."""
        names = self.content.get("channel_names", self.content.get("modality"))
        return len(names) if names else None

    @property
    def has_channel_files(self) -> bool:
        """Whether each channel is a separate file, as in nnU-Net, whose ``channel_names`` lists several channels."""
        return len(self.content.get("channel_names") or ()) > 1

    def classes(self) -> dict[int, str]:
        """Return class names by label value, from ``{"liver": 1}`` or ``{"1": "liver"}``."""
        classes: dict[int, str] = {}
        for key, entry in self.content.get("labels", {}).items():
            value, name = self._parse_class(key, entry)
            if value in classes:
                finding = f"the label value {value} has two names, {classes[value]} and {name}"
                raise _invalid(self.path, finding, "keep one of the names")
            classes[value] = name
        if classes:
            classes.setdefault(0, "background")
        return dict(sorted(classes.items()))

    def _parse_class(self, key: str, entry: object) -> tuple[int, str]:
        """Return the value and the name of an entry of ``labels``."""
        if isinstance(entry, list):
            finding = f"the label {key!r} is a region of several values, which is not supported"
            raise _invalid(self.path, finding, "list one value for each class")
        if key == "ignore":
            raise _invalid(self.path, "a label to ignore is not supported", "remove label maps with ignored voxels")
        if isinstance(entry, str) and not _is_value(entry) and _is_value(key):
            return int(key), entry
        if isinstance(entry, int | str) and not isinstance(entry, bool) and _is_value(str(entry)):
            return int(entry), key
        finding = f"the label {key!r:.40}: {entry!r:.40} does not name a class"
        raise _invalid(self.path, finding, 'write labels as {"background": 0, "liver": 1}')

    def find_missing(self, cases: set[str]) -> Iterator[UserError]:
        """Yield an error for each listed file that belongs to no case. Refuse paths outside of the folder."""
        folder = os.path.normpath(self.path.parent)
        for entry in _listed_paths(self.content):
            path = Path(os.path.normpath(Path(folder) / entry))
            if not path.is_relative_to(folder):
                raise _invalid(self.path, f"the entry {entry!r} is outside of the folder", "move the file into it")
            if not _belongs(path, cases):
                finding = f"{entry!r} is listed, but does not exist"
                yield UserError(Code.FILE_MISSING, self.path, finding, "add the file or remove the entry")

    def restricted(self, cases: Iterable[Case]) -> dict[str, Any]:
        """Return the content with only the entries of these cases, and with their counts."""
        remaining = list(cases)
        names = case_and_label_names(remaining)
        content = dict(self.content)
        for key in LISTS:
            entries = content.get(key)
            if isinstance(entries, list):
                content[key] = [entry for entry in entries if _all_belong(entry, names)]
            elif isinstance(entries, dict):
                content[key] = {name: entry for name, entry in entries.items() if _all_belong(entry, names)}
        for key, split in (("numTraining", "labeled"), ("numTest", "test")):
            if key in content:
                content[key] = sum(case.split == split for case in remaining)
        return content


def case_and_label_names(cases: Iterable[Case]) -> set[str]:
    """Return the names of cases and of their label maps, which may differ as in ``a`` and ``a_seg``."""
    return {name for case in cases for name in (case.name, *([scan_stem(case.label)] if case.label else []))}


def _belongs(path: Path, cases: set[str]) -> bool:
    """Return whether a listed file is an image or label map of one of the cases."""
    stem = scan_stem(path)
    numbered = CHANNEL.fullmatch(stem)
    return stem in cases or (numbered is not None and numbered["case"] in cases)


def _all_belong(entry: Any, cases: set[str]) -> bool:
    return all(_belongs(Path(path), cases) for path in _paths_in(entry))


def _listed_paths(content: dict[str, Any]) -> Iterator[str]:
    return _paths_in([content.get(key) for key in LISTS])


def _paths_in(entries: Any) -> Iterator[str]:
    """Yield every path in lists of cases. The lists may be nested."""
    pending = deque([entries])
    while pending:
        entry = pending.popleft()
        if isinstance(entry, str):
            yield entry
        elif isinstance(entry, dict):
            pending += entry.values()
        elif isinstance(entry, list):
            pending += entry


def _is_too_long(entry: str) -> bool:
    parts = entry.encode(errors="replace").split(b"/")
    return sum(map(len, parts)) > MAX_PATH_BYTES or max(map(len, parts)) > MAX_NAME_BYTES


def _invalid(path: Path, finding: str, remedy: str) -> UserError:
    return UserError(Code.DATASET_INVALID, path, finding, remedy)


def _is_value(text: str) -> bool:
    return text.isdecimal() and len(text) <= MAX_DIGITS
