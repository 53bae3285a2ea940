"""The cases of a data set, their classes, and the reader of their files."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import multimode
from typing import Any, Literal, Protocol

from graftseg.core.errors import Code, UserError
from graftseg.core.names import has_control_characters, nfc
from graftseg.core.types import SPLITS, Case, Split
from graftseg.data.formats.scan import KEEP_ONE
from graftseg.data.labeled_roles import divide_labeled
from graftseg.data.scans import Scan, read_case, read_label


class Reader(Protocol):
    """Reads the files of a case. Two readers are equal if they return the same scans."""

    def image(self, case: Case) -> Scan:
        """Read the image ``(C, *space)``."""

    def label(self, case: Case) -> Scan:
        """Read the label map ``(*space)``, integers from 0, on the grid of the image."""


@dataclass(frozen=True)
class ScanFiles:
    """Reader of scan files and label maps."""

    channel_count: int | None = None  # in ``dataset.json``, None if unknown
    classes: dict[int, str] = field(default_factory=dict)  # by label value, for DICOM labels
    is_gray: bool = False  # whether pictures with three equal colors have one channel

    def image(self, case: Case) -> Scan:
        """Read the channels of a case into one array."""
        if self.is_gray:
            return read_case(case.images, len(case.images))
        # ``read_case`` merges equal colors if the count is 1: in a data set with gray and color pictures, the gray
        # pictures would have one channel, and the others three
        is_useful = len(case.images) == 1 and self.channel_count != 1
        return read_case(case.images, self.channel_count if is_useful else None)

    def label(self, case: Case) -> Scan:
        """Read the label map of a labeled case."""
        return read_label(label_path(case), case.images[0], self.classes)


SCAN_FILES = ScanFiles()


def label_path(case: Case) -> Path:
    """Return the label map file of a labeled case."""
    if case.label is None:
        raise ValueError(f"case {case.name} has no label")
    return case.label


def same_in_all_cases(numbers: Sequence[int], cases: Sequence[Case], word: Literal["channels", "axes"]) -> int:
    """Return the common number of channels or axes. Raise a UserError if a case has another number."""
    common = min(multimode(numbers))
    for number, case in zip(numbers, cases, strict=True):
        if number != common:
            finding = f"the number of {word} is {number}, but other cases have {common}"
            series = f"; {KEEP_ONE}" if word == "channels" and number > common else ""
            remedy = f"give every case the same number of {word}{series}"
            code = Code.CHANNELS_MISMATCH if word == "channels" else Code.DATASET_INVALID
            raise UserError(code, case.images[0], finding, remedy)
    return common


@dataclass(frozen=True)
class Dataset:
    """The cases of a folder. Each split is sorted by name; benchmarks keep the order of their lists."""

    root: Path
    layout: str
    cases: tuple[Case, ...]
    classes: dict[int, str]  # by label value, empty if unknown
    problems: tuple[UserError, ...] = ()  # ``check`` reports them and ``prepare`` refuses them
    ignored: tuple[str, ...] = ()  # files in image and label folders that are neither scans nor labels
    reader: Reader = SCAN_FILES

    def __post_init__(self) -> None:
        if problem := name_problem(self.classes.values()):
            remedy = "give every class a unique name in plain letters"
            raise UserError(Code.DATASET_INVALID, self.root, f"dataset.json: {problem}", remedy)

    def of(self, split: Split) -> tuple[Case, ...]:
        """Return the cases of one split."""
        return tuple(case for case in self.cases if case.split == split)

    def refuse_problems(self) -> None:
        """Raise the first problem. Several problems are listed by ``graftseg check``."""
        if not self.problems:
            return
        first, count = self.problems[0], len(self.problems)
        if count == 1:
            raise first
        remedy = f"{first.remedy}; `graftseg check` lists all {count} problems"
        raise UserError(first.code, first.where, first.finding, remedy)

    def description(self) -> dict[str, Any]:
        """Return what ``graftseg info`` prints about the data set, as JSON values."""
        counts = {split: len(self.of(split)) for split in SPLITS}
        return {"kind": "scans", "layout": self.layout, "cases": counts, "classes": self.classes}

    def for_training(
        self, labeled_cases: int | None, validation_cases: int, held_out: Collection[str] = ()
    ) -> "Dataset":
        """Return the data set for training, without test cases and without labels that training must not see."""
        roles = divide_labeled(self.root, self.of("labeled"), labeled_cases, validation_cases, held_out)
        hidden = tuple(replace(case, label=None, split="unlabeled") for case in roles.hidden)
        labeled = roles.held_out + roles.labeled + roles.validation
        return replace(self, cases=labeled + hidden + self.of("unlabeled") + self.of("validation"))


def name_problem(names: Iterable[str]) -> str | None:
    """Describe the first problem of the class names, or return None. Letters of all scripts are allowed."""
    listed = list(names)
    for name in listed:
        if not name.strip():
            return "a class has no name"
        if has_control_characters(name):
            return f"the name of the class {name!a:.60} contains control characters"
    name, count = max(Counter(map(nfc, listed)).items(), key=lambda pair: pair[1], default=("", 0))
    return f"{count} classes have the name {name}" if count > 1 else None
