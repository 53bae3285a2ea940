"""Checks of a single case: files, voxels, size, the grids of image and label, and images that look like labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from graftseg.core.errors import UserError
from graftseg.core.phrases import counted
from graftseg.core.types import Case, Geometry
from graftseg.data import grid
from graftseg.data.checks.copies import Floats, coarse_view
from graftseg.data.checks.findings import FIX, Finding, FixedBy, from_error
from graftseg.data.checks.labels import left_right_centers
from graftseg.data.dataset import Dataset, ScanFiles
from graftseg.data.fingerprint import CaseFingerprint, fingerprint_case
from graftseg.data.labels import GRID_REMEDY, turning_advice
from graftseg.data.scans import Scan, read_case, read_geometry
from graftseg.data.slices import Thumbnail, thumbnail_of
from graftseg.data.swapped_files import looks_like_labels, read_label_of

MIN_SIZE = 16  # a scan that is smaller along two axes does not fit a network that downsamples several times
ROUNDING = 0.1  # smaller distances between corners of two grids, in voxels, come from rounding in headers
FIX_GEOMETRY = f"{FIX} writes a copy with the geometry of the "


@dataclass(frozen=True)
class CaseResult:
    """The result of reading a case once."""

    case: Case
    summary: CaseFingerprint | None = None  # None if reading failed
    findings: list[Finding] = field(default_factory=list)
    coarse: Floats | None = None  # reduced scan, to detect copies
    thumbnail: Thumbnail | None = None
    geometry: Geometry | None = None
    is_labels: bool = False  # whether the image looks like a label map
    centers: dict[int, float] = field(default_factory=dict)
    """Center of each class, from 0 (left) to 1 (right). Empty if image and label lie on different grids."""


def check_case(dataset: Dataset, case: Case, *, pictures: bool = False) -> CaseResult:
    """Read the files of a case once and return all findings. ``pictures`` adds a thumbnail."""
    findings: list[Finding] = []
    try:
        scan = dataset.reader.image(case)
    except UserError as error:
        if not isinstance(dataset.reader, ScanFiles) or not channels_differ_by_rounding(case):
            return CaseResult(case, findings=[from_error(dataset.root, error, case.name)])
        fixable = UserError(error.code, error.where, error.finding, f"{FIX_GEOMETRY}first channel")
        findings.append(replace(from_error(dataset.root, fixable, case.name), fixed_by="--fix"))
        scan = read_case(case.images, same_grid=False)
    label = None
    if case.label is not None:
        try:
            label = read_label_of(dataset, case, scan)
        except UserError as error:
            findings.append(from_error(dataset.root, error, case.name))
    summary = fingerprint_case(case, scan, label)
    findings += _image_findings(case, scan, summary)
    centers: dict[int, float] = {}
    if label is not None:
        findings += _guess_findings(case, label)
        grid_findings = list(_grid_findings(case.name, scan.geometry, label.geometry))
        findings += grid_findings
        centers = {} if grid_findings else left_right_centers(summary, label.array)
    island = next((pieces.island_at for pieces in summary.pieces.values() if pieces.island_at is not None), None)
    labels = None if label is None else label.array
    thumbnail = thumbnail_of(scan.array[0], labels, scan.geometry, island) if pictures else None
    coarse = coarse_view(grid.ras_view(scan.array, scan.geometry))
    is_labels = looks_like_labels(scan)
    return CaseResult(case, summary, findings, coarse, thumbnail, scan.geometry, is_labels, centers)


def differs_by_rounding(first: Geometry, second: Geometry) -> bool:
    """Return whether two grids differ by less than a tenth of a voxel, but are not equal."""
    return (
        grid.GRID_TOLERANCE * min(first.spacing) < grid.corner_distance(first, second) < ROUNDING * min(first.spacing)
    )


def channels_differ_by_rounding(case: Case) -> bool:
    """Return whether the grids of the channels differ by rounding only, according to their headers."""
    try:
        first, *others = [read_geometry(path) for path in case.images]
    except UserError:
        return False
    near = [grid.corner_distance(first, other) < ROUNDING * min(first.spacing) for other in others]
    return all(near) and any(differs_by_rounding(first, other) for other in others)


def label_like_image_findings(results: Sequence[CaseResult]) -> Iterator[Finding]:
    """Report images that look like label maps, unless half of all images do, or the case has an error."""
    read = [result for result in results if result.summary is not None]
    found = [result for result in read if result.is_labels]
    if 2 * len(found) >= len(read):
        return
    for result in found:
        if all(finding.severity != "error" for finding in result.findings):
            name, folder = result.case.name, result.case.images[0].parent.name
            size = f"few values, all integers, but not in {len(read) - len(found)} other scans"
            remedy = f"if it is a label map, remove it from {folder}, and put the image of the case there"
            yield Finding("warning", "the image looks like a label map", name, size, remedy, (name,))


def _guess_findings(case: Case, scan: Scan) -> Iterator[Finding]:
    for guess in scan.guesses:
        yield Finding("warning", guess.what, case.name, guess.assumed, guess.remedy, (case.name,))


def _image_findings(case: Case, scan: Scan, summary: CaseFingerprint) -> Iterator[Finding]:
    yield from _guess_findings(case, scan)
    constant = [channel for channel, std in enumerate(summary.std) if std == 0]
    if constant:
        is_constant = len(constant) == len(summary.std)
        what = "every voxel of the scan has the same value" if is_constant else "a channel has one value everywhere"
        level = f"{summary.mean[constant[0]]:g}"
        size = level if is_constant else f"{level} in channel {constant[0]:04d}"
        yield Finding("warning", what, case.name, size, "export the scan again, or leave the case out", (case.name,))
    short = sum(size < MIN_SIZE for size in summary.shape)
    if short >= 2:
        size = "x".join(map(str, summary.shape)) + f" voxels, below {MIN_SIZE} along {counted(short, 'axis', 'axes')}"
        remedy = "use scans with more of the body, or check that the axes are not mixed up"
        yield Finding("warning", "the scan is smaller than a usable patch", case.name, size, remedy, (case.name,))


def _grid_findings(name: str, image: Geometry, label: Geometry) -> Iterator[Finding]:
    difference = grid.grid_difference(image, label)
    if difference is None:
        return
    what = "image and label lie on different grids"
    remedy = GRID_REMEDY
    fixed_by: FixedBy = "--fix"
    if differs_by_rounding(image, label):
        voxels = grid.corner_distance(image, label) / min(image.spacing)
        what, remedy = "the grids of image and label differ by rounding", f"{FIX_GEOMETRY}image"
        difference += f", {voxels:.2f} of a voxel"
    elif grid.lossless_reorientation(label, image, ROUNDING):
        what = "the label map is mirrored or turned relative to the image, but has the same position"
        advice = turning_advice(image, label)
        remedy = f"{FIX} writes a copy with the label in the orientation of the image: {advice}"
    else:
        fixed_by = "--drop"
        if image.shape != label.shape and sorted(image.shape) == sorted(label.shape):
            axes = "rows and columns" if len(image.shape) == 2 else "the axes"
            what = f"{axes} of the label map look exchanged"
            remedy = "save the label map again with its axes in the order of the image"
    yield Finding("error", what, name, difference, remedy, (name,), fixed_by)
