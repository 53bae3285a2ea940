"""Findings about a data set: what is wrong, where, how large it is and how to mend it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from graftseg.console import in_parallel
from graftseg.data.dataset import Dataset
from graftseg.data.fingerprint import (
    CaseFingerprint,
    Fingerprint,
    fingerprint_case,
    intensity_shift,
    shift_verdict,
)
from graftseg.data.scans import grid_difference
from graftseg.errors import UserError
from graftseg.types import Case

SPACING_FACTOR = 2.0
COARSE = 3.0
"""Voxels longer than this many times their width are slices rather than parts of a volume."""

SLICES_LAST = ("ASR", "RSA", "RAS")
"""Orientations by where slices are stacked: right-left, anterior-posterior, superior-inferior; that axis is last."""

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing worth knowing. An ``error`` keeps the data from being used or makes a result worthless."""

    severity: Severity
    what: str
    where: str
    size: str
    remedy: str


def check(dataset: Dataset, *, workers: int | None = None) -> list[Finding]:
    """Read every file of a data set once and report all findings, errors first."""
    examined = in_parallel(_Examination(dataset), dataset.cases, "Checking scans", workers)
    summaries = Fingerprint(tuple(summary for summary, _ in examined if summary is not None))
    findings = [finding for _, own in examined for finding in own]
    findings += [_from_error(dataset.root, problem) for problem in dataset.problems]
    findings += _strays(dataset)
    findings += _class_list(dataset, summaries)
    findings += _duplicates(summaries.cases)
    findings += _mixtures(summaries.cases)
    findings += _odd_spacings(summaries.cases)
    findings += _slices_not_last(summaries.cases)
    findings += _shift(summaries)
    order = ("error", "warning", "note")
    return sorted(findings, key=lambda finding: (order.index(finding.severity), finding.where, finding.what))


@dataclass(frozen=True)
class _Examination:
    """Examine one case: its summary where the scan can be read, and what is wrong with it alone."""

    dataset: Dataset

    def __call__(self, case: Case) -> tuple[CaseFingerprint | None, list[Finding]]:
        try:
            scan = self.dataset.reader.image(case)
        except UserError as error:
            return None, [_from_error(self.dataset.root, error)]
        if case.label is None:
            return fingerprint_case(case, scan, None), []
        try:
            label = self.dataset.reader.label(case)
        except UserError as error:
            return fingerprint_case(case, scan, None), [_from_error(self.dataset.root, error)]
        summary = fingerprint_case(case, scan, label)
        findings = list(self._label_values(case.name, summary.label_counts))
        if difference := grid_difference(scan.geometry, label.geometry):
            remedy = "resample the label to the image's grid or correct its header"
            findings.append(Finding("error", "image and label lie on different grids", case.name, difference, remedy))
        return summary, findings

    def _label_values(self, name: str, counts: dict[int, int]) -> Iterator[Finding]:
        if set(counts) == {0}:
            yield Finding(
                "warning",
                "the label map is empty",
                name,
                f"all {counts[0]} voxels are background",
                "check that the label is finished, or leave the case unlabeled",
            )
        if not self.dataset.classes:
            return
        for value in sorted(counts.keys() - self.dataset.classes.keys()):
            yield Finding(
                "error",
                f"the label value {value} has no class",
                name,
                _voxels(counts[value]),
                "name the value in dataset.json or correct the label map",
            )


def _from_error(root: Path, error: UserError) -> Finding:
    path = Path(error.where)
    if path.is_relative_to(root):
        return Finding("error", error.finding, str(path.relative_to(root)), "1 file", error.remedy)
    return Finding("error", error.finding, error.where, "1 case", error.remedy)


def _strays(dataset: Dataset) -> Iterator[Finding]:
    if dataset.ignored:
        size = f"{len(dataset.ignored)} {'file' if len(dataset.ignored) == 1 else 'files'}"
        what = "files that are not scans are left out"
        yield Finding("warning", what, dataset.ignored[0], size, "convert them to .nii.gz or move them away")


def _class_list(dataset: Dataset, summaries: Fingerprint) -> Iterator[Finding]:
    """The list of classes against the values that occur."""
    found = summaries.label_counts
    listed = dataset.classes or {value: f"class {value}" for value in range(max(found, default=0) + 1)}
    values = sorted(listed)
    if values != list(range(len(values))):
        gap = min(set(range(len(values))) - set(values))
        what, size = "the values of the classes are not consecutive", f"{gap} is missing below {values[-1]}"
        yield Finding("error", what, "dataset.json", size, "number the classes 0, 1, 2, ... in labels and list")
    if values[-1] > 254:
        what, size = "there are too many classes", f"values up to {values[-1]}, at most 254"
        yield Finding(
            "error",
            what,
            "labelsTr",
            size,
            "number the classes 0, 1, 2, ... (a mask of 0 and 255 becomes 0 and 1)",
        )
        return
    # A label that could not be read may hold the missing class.
    if all(case.label_counts for case in summaries.of("labeled")):
        for value in values[1:]:
            if value not in found:
                what = f"no labeled case shows {listed[value]} (value {value})"
                size = f"0 of {len(summaries.of('labeled'))} cases"
                yield Finding("warning", what, "labelsTr", size, "label a case that shows it or drop the class")


def _duplicates(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Cases with the same voxels: across splits they leak, within one they only weigh double."""
    same: dict[str, list[CaseFingerprint]] = {}
    for case in cases:
        same.setdefault(case.content, []).append(case)
    for group in same.values():
        if len(group) < 2:
            continue
        splits = sorted({case.split for case in group})
        severity: Severity = "error" if len(splits) > 1 else "warning"
        names = ", ".join(case.name for case in group)
        where = "across " + " and ".join(splits) if len(splits) > 1 else f"among the {splits[0]}"
        yield Finding(severity, f"the same voxels stand {where}", names, f"{len(group)} cases", "keep one of them")


def _mixtures(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Numbers of axes and of channels that are not the same in all cases."""
    kinds = {
        "axes": (
            {case.name: len(case.shape) for case in cases},
            "keep 2-D and 3-D scans in separate data sets",
        ),
        "channels": ({case.name: len(case.mean) for case in cases}, "give every case the same channels"),
    }
    for word, (counts, remedy) in kinds.items():
        numbers = list(counts.values())
        if len(set(numbers)) < 2:
            continue
        usual = max(sorted(set(numbers)), key=numbers.count)
        odd = [name for name, number in counts.items() if number != usual]
        size = f"{counts[odd[0]]} {word} where the others have {usual}, {len(odd)} of {len(counts)} cases"
        yield Finding("error", f"the number of {word} differs between cases", odd[0], size, remedy)


def _odd_spacings(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    for axes in (2, 3):
        alike = [case for case in cases if len(case.shape) == axes]
        if not alike:
            continue
        median = np.median([case.canonical_spacing for case in alike], axis=0)
        for case in alike:
            ratio = np.array(case.canonical_spacing) / median
            worst = int(np.abs(np.log(ratio)).argmax())
            if not 1 / SPACING_FACTOR <= ratio[worst] <= SPACING_FACTOR:
                size = f"{case.canonical_spacing[worst]:.2f} mm against {median[worst]:.2f} mm, the median"
                what = "the spacing differs much from the other cases"
                yield Finding("note", what, case.name, size, "resample to one spacing when preparing")


def _slices_not_last(cases: Sequence[CaseFingerprint]) -> Iterator[Finding]:
    """Volumes of thick slices that RAS, the usual orientation, would cut across."""
    volumes = [case for case in cases if len(case.shape) == 3]
    for axis, orientation in enumerate(SLICES_LAST[:-1]):
        across = [case for case in volumes if _slice_axis(case) == axis]
        if across:
            spacing = across[0].canonical_spacing
            size = f"{max(spacing):.2f} mm against {min(spacing):.2f} mm, {len(across)} of {len(volumes)} volumes"
            what = "slices are not stacked along the last axis of RAS, along which a 2-D network is applied"
            remedy = f"set data.orientation to {orientation} in a 2-D recipe"
            yield Finding("note", what, across[0].name, size, remedy)


def _slice_axis(case: CaseFingerprint) -> int | None:
    """The axis, in canonical order, along which thick slices are stacked, if there are any."""
    spacing = case.canonical_spacing
    return spacing.index(max(spacing)) if max(spacing) > COARSE * min(spacing) else None


def _shift(summaries: Fingerprint) -> Iterator[Finding]:
    labeled, unlabeled = summaries.of("labeled"), summaries.of("unlabeled")
    if len({len(case.mean) for case in labeled + unlabeled}) == 1 and (what := shift_verdict(labeled, unlabeled)):
        raw, left = (
            intensity_shift(labeled, unlabeled),
            intensity_shift(labeled, unlabeled, standardised=True),
        )
        size = f"shift {raw:.1f} as stored, {left:.1f} after z-scores (above 1 is more than chance)"
        yield Finding(
            "warning",
            what,
            "imagesTr and imagesUn",
            size,
            "check that both come from the same kind of scanner and protocol",
        )


def _voxels(count: int) -> str:
    return f"{count} voxel" if count == 1 else f"{count} voxels"
