"""The cases of a data set, and the reader that turns their files into scans."""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from graftseg.core.errors import Code, UserError
from graftseg.core.names import nfc, same_names
from graftseg.core.types import Case, Split
from graftseg.data.scans import Scan, read_case, read_label


class Reader(Protocol):
    """How the files of a case become voxels and geometry. Two readers are equal if they give the same scans."""

    def image(self, case: Case) -> Scan:
        """The image ``(C, *space)``."""
        ...

    def label(self, case: Case) -> Scan:
        """The label map ``(*space)``, of whole numbers from 0, on the grid of the image."""
        ...


@dataclass(frozen=True)
class ScanFiles:
    """Scan files, one a channel, and a scan file with the label map; ``named`` is how many channels have a name."""

    named: int | None = None

    def image(self, case: Case) -> Scan:
        """The channels of a case in one array."""
        return read_case(case.images, self.named if len(case.images) == 1 else None)

    def label(self, case: Case) -> Scan:
        """The label map of a case that has one."""
        return read_label(label_path(case))


SCAN_FILES = ScanFiles()


def label_path(case: Case) -> Path:
    """The file with the label map of a case that has one."""
    if case.label is None:
        raise ValueError(f"case {case.name} has no label")
    return case.label


def same_in_all_cases(numbers: Sequence[int], cases: Sequence[Case], word: str) -> int:
    """The number of channels, or of whatever the word says, that all cases share; one unlike most is refused."""
    usual = max(sorted(set(numbers)), key=numbers.count)
    for number, case in zip(numbers, cases, strict=True):
        if number != usual:
            finding = f"the number of {word} is {number} where other cases have {usual}"
            series = "; of a time series keep one volume" if word == "channels" and number > usual else ""
            raise UserError(
                Code.DATASET_INVALID, case.images[0], finding, f"give every case the same number of {word}{series}"
            )
    return usual


@dataclass(frozen=True)
class Dataset:
    """The cases of a folder; within each split they stand in the order of their names, or of a published list.

    ``classes`` names the label values and is empty when no ``dataset.json`` does. ``problems`` are defects
    that a check reports and that preparing refuses; ``ignored`` are files among the scans that are not
    scans. ``reader`` is how files become scans and label maps.
    """

    root: Path
    layout: str
    cases: tuple[Case, ...]
    classes: dict[int, str]
    problems: tuple[UserError, ...] = ()
    ignored: tuple[str, ...] = ()
    reader: Reader = SCAN_FILES

    def __post_init__(self) -> None:
        if problem := name_problem(self.classes.values()):
            raise UserError(
                Code.DATASET_INVALID,
                self.root,
                f"dataset.json: {problem}",
                "give every class a name of its own in plain letters",
            )

    def of(self, split: Split) -> tuple[Case, ...]:
        """The cases of one split."""
        return tuple(case for case in self.cases if case.split == split)

    def for_training(
        self, labeled_cases: int | None, validation_cases: int, held_out: Collection[str] = ()
    ) -> "Dataset":
        """What a training may open: hidden labels and test cases are not in it, so nothing can read them.

        Of the labeled cases the last ``validation_cases`` keep their labels, and of the others the first
        ``labeled_cases``, or all for None; the rest becomes unlabeled and stands before the unlabeled ones.
        The folder's own validation cases stay as they are, and so do those that are held out by name, which count as
        none of them.
        """
        labeled = without_held_out(self.root, self.of("labeled"), held_out)
        unseen = tuple(case for case in self.of("labeled") if case not in labeled)
        first_held_out = len(labeled) - validation_cases
        count = labeled_cases or max(first_held_out, 1)
        if count > first_held_out:
            raise UserError(
                Code.DATASET_INVALID,
                self.root,
                f"the recipe asks for {count} labeled cases and {validation_cases} to validate on, "
                f"and the folder has {len(labeled)}" + (" that are not held out" if held_out else ""),
                "label more scans or lower batches.labeled_cases or batches.validation_cases",
            )
        hidden = tuple(replace(case, label=None, split="unlabeled") for case in labeled[count:first_held_out])
        kept = unseen + labeled[:count] + labeled[first_held_out:]
        return replace(self, cases=kept + hidden + self.of("unlabeled") + self.of("validation"))


class Named(Protocol):
    """Anything that has the name of a case."""

    @property
    def name(self) -> str:
        """The name."""
        ...


Listed = TypeVar("Listed", bound=Named)


def without_held_out(where: Path, labeled: tuple[Listed, ...], held_out: Collection[str]) -> tuple[Listed, ...]:
    """The labeled cases without those that are held out; a name that is none of them may be a slip and is refused."""
    known = same_names(held_out, (case.name for case in labeled))
    if unknown := sorted(set(held_out) - known):
        finding = f"batches.held_out names {unknown[0]}, which is no labeled case ({len(unknown)} such names)"
        raise UserError(Code.TOO_FEW_CASES, where, finding, "name labeled cases")
    return tuple(case for case in labeled if not same_names([case.name], held_out))


UNPRINTED = ("Cc", "Cs", "Zl", "Zp")
"""Kinds of characters that move the cursor, break a line or are none: control codes, surrogates, separators."""


UNSEEN = {0x200B, 0xFEFF, *range(0x202A, 0x202F), *range(0x2060, 0x206A)}
"""Characters that take no room or turn the direction of what follows; joiners, which some scripts need, are none."""


def name_problem(names: Iterable[str]) -> str | None:
    """What is wrong with names of classes, or None; letters of every script are fine."""
    listed = list(names)
    for name in listed:
        if not name.strip():
            return "a class has no name"
        if any(unicodedata.category(letter) in UNPRINTED or ord(letter) in UNSEEN for letter in name):
            return f"the class {name!a:.60} has control characters in its name"
    name, times = max(Counter(map(nfc, listed)).items(), key=lambda pair: pair[1], default=("", 0))
    return f"{times} classes are called {name}" if times > 1 else None
