"""Check a data set: what is wrong, where, how severe it is, and how to fix it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from graftseg.core.phrases import counted
from graftseg.core.progress import in_parallel
from graftseg.core.types import SPLITS
from graftseg.data.checks import consistency, labels, shift
from graftseg.data.checks.cases import check_case, label_like_image_findings
from graftseg.data.checks.copies import copy_findings, rescaled_copy_findings
from graftseg.data.checks.files import file_findings
from graftseg.data.checks.findings import Finding as Finding
from graftseg.data.checks.findings import from_error, grouped, ordered
from graftseg.data.dataset import Dataset
from graftseg.data.fingerprint import Fingerprint
from graftseg.data.fix import FixedCopy
from graftseg.data.slices import Thumbnail


@dataclass(frozen=True)
class Examination:
    """The result of a check: the findings, errors first, and the measured values. Iteration yields the findings."""

    dataset: Dataset
    fingerprint: Fingerprint  # summaries of the readable cases
    findings: tuple[Finding, ...]
    likeness: shift.Likeness  # of labeled and unlabeled scans
    test_likeness: shift.Likeness  # of labeled and test scans
    thumbnails: dict[str, Thumbnail] = field(default_factory=dict)  # by case name, if requested
    mended: FixedCopy | None = None  # the fixed copy, if requested

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    @property
    def errors(self) -> int:
        """Number of findings that must be fixed before the data can be used."""
        return sum(finding.severity == "error" for finding in self.findings)

    @property
    def counts(self) -> dict[str, int]:
        """Number of cases per split."""
        return {split: len(self.dataset.of(split)) for split in SPLITS}

    @property
    def broken(self) -> dict[str, int]:
        """Number of broken cases per split: those that ``--drop`` leaves out of a copy."""
        names = {name for finding in self.findings if finding.fixed_by == "--drop" for name in finding.cases}
        return {split: sum(case.name in names for case in self.dataset.of(split)) for split in SPLITS}

    @property
    def verdict(self) -> str:
        """One sentence that states whether the data can be used."""
        if self.errors:
            return f"Not ready: fix {counted(self.errors, 'error')} first."
        if warnings := sum(finding.severity == "warning" for finding in self.findings):
            return f"Usable, with {counted(warnings, 'warning')}."
        return "Ready for training."

    def to_json(self) -> dict[str, Any]:
        """Return findings and measured values as JSON values."""
        return {
            "layout": self.dataset.layout,
            "cases": self.counts,
            "classes": {str(value): name for value, name in self.dataset.classes.items()},
            "verdict": self.verdict,
            "likeness": self.likeness.to_json(),
            "test_likeness": self.test_likeness.to_json(),
            "findings": [asdict(finding) for finding in self.findings],
            "scans": [
                {
                    "name": case.name,
                    "split": case.split,
                    "shape": list(case.shape),
                    "spacing": list(case.spacing),
                    "orientation": case.orientation,
                    "class_sizes": {str(value): size for value, size in case.class_sizes.items()},
                }
                for case in self.fingerprint.cases
            ],
            "mended": None if self.mended is None else self.mended.to_json(),
        }


def examine(dataset: Dataset, *, pictures: bool = False, workers: int | None = None) -> Examination:
    """Read every file of a data set once and report all findings. ``pictures`` adds a thumbnail per case."""
    results = in_parallel(partial(check_case, dataset, pictures=pictures), dataset.cases, "Checking scans", workers)
    summaries = Fingerprint(tuple(result.summary for result in results if result.summary is not None))
    # whether a value is valid depends on the label maps of all cases, so these findings are added last
    found = iter(labels.value_findings(summaries.cases, dataset.classes))
    results = [
        each if each.summary is None else replace(each, findings=each.findings + next(found)) for each in results
    ]
    likeness, test_likeness = shift.compare_splits(summaries), shift.compare_splits(summaries, "test")
    findings = [
        *(finding for result in results for finding in result.findings),
        *(from_error(dataset.root, problem) for problem in dataset.problems),
        *file_findings(dataset),
        *labels.class_findings(dataset, summaries),
        *labels.tested_label_findings(dataset, summaries),
        *labels.side_findings({result.case.name: result.centers for result in results}, dataset.classes),
        *labels.island_findings(summaries.cases, dataset.classes),
        *copy_findings(summaries.cases),
        *rescaled_copy_findings([(each.summary, each.coarse) for each in results if each.summary is not None]),
        *label_like_image_findings(results),
        *consistency.channel_findings([(each.case, each.geometry) for each in results if each.geometry is not None]),
        *consistency.gray_findings(dataset),
        *consistency.set_findings(summaries.cases),
        *shift.shift_findings(summaries, likeness),
        *shift.shift_findings(summaries, test_likeness),
    ]
    thumbnails = {result.case.name: result.thumbnail for result in results if result.thumbnail is not None}
    return Examination(dataset, summaries, tuple(ordered(grouped(findings))), likeness, test_likeness, thumbnails)
