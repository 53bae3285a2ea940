"""The page of a data check: verdict, findings, distributions, pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from graftseg.core.types import SPLITS
from graftseg.core.version import __version__
from graftseg.data.check import Examination, Finding
from graftseg.data.checks.findings import SEVERITIES, Severity, counted
from graftseg.data.fingerprint import PERCENTILES, CaseFingerprint, Fingerprint
from graftseg.reporting.distributions import Band, Floats, Strip, bands, strips
from graftseg.reporting.missing import Missing
from graftseg.reporting.pictures import Album, label_layer
from graftseg.reporting.rendering import render, write_page

CONTENTS = {
    "findings": "Findings",
    "together": "Labeled and unlabeled",
    "spacing": "Spacing",
    "classes": "Classes",
    "pictures": "Pictures",
}
MAX_PICTURES = 12
LISTED_CASES = 3
TITLES: dict[Severity, str] = {
    "error": "Errors: fix these before training",
    "warning": "Warnings: check these",
    "note": "Notes: for your information",
}
AXES = ("right-left", "front-back", "head-foot")
FOOTER = f"Checked with graftseg {__version__}. This page is self-contained and loads no other files."
NO_SCAN = Missing("No scan could be read.", "graftseg check DATA --out check.html")
NO_LABEL = Missing("No label map could be read, or all label maps are empty.")


def render_check(examination: Examination, out: Path) -> Path:
    """Write the page about a data set and return its path. The output is deterministic."""
    sections = [
        _findings(examination.findings),
        _together(examination),
        _spacing(examination.fingerprint),
        _classes(examination),
        _pictures(examination),
    ]
    title = examination.dataset.root.resolve().name or "scans"
    return write_page(out, "graftseg check", title, _summary(examination), CONTENTS, sections, FOOTER)


def _summary(examination: Examination) -> Markup:
    """Render the verdict, and the number of findings, cases and classes."""
    severities = [found.severity for found in examination.findings]
    findings = ", ".join(counted(severities.count(kind), kind) for kind in SEVERITIES)
    counts = [(split, count) for split, count in examination.counts.items() if count or split != "validation"]
    values = examination.dataset.classes or examination.fingerprint.label_counts
    counts.append(("classes", len([value for value in values if value])))
    return render(
        "check_summary",
        subtitle=f"{examination.dataset.layout} layout, {findings}",
        verdict=examination.verdict,
        is_sound=not examination.findings,
        counts=[(name, f"{count:,}") for name, count in counts],
    )


def _findings(findings: Sequence[Finding]) -> Markup:
    """Render a table of findings for each severity, errors first."""
    tables = [(one, TITLES[one], [found for found in findings if found.severity == one]) for one in SEVERITIES]
    return render("findings", tables=[table for table in tables if table[2]], listed_cases=LISTED_CASES)


def _together(examination: Examination) -> Markup:
    """Render the verdict on using labeled and unlabeled scans together, and their intensities."""
    likeness, summaries = examination.likeness, examination.fingerprint
    return render(
        "together",
        likeness=likeness,
        largest_spacing=max(likeness.spacing, default=0.0),
        kinds=[split for split in ("labeled", "unlabeled") if summaries.of(split)],
        charts=[*_intensities(summaries)],
    )


def _intensities(summaries: Fingerprint) -> Iterator[Markup]:
    channels = min((len(case.mean) for case in summaries.training), default=0)
    for channel in range(channels):
        name = f", channel {channel:04d}" if channels > 1 else ""
        for state, scaled in (("as stored", False), ("after z-scores", True)):
            groups = [
                Band(split, _quantiles(summaries.of(split), channel, scaled))
                for split in ("labeled", "unlabeled")
                if summaries.of(split)
            ]
            yield bands(f"Intensities {state}{name}", PERCENTILES, groups)


def _quantiles(cases: Sequence[CaseFingerprint], channel: int, scaled: bool) -> Floats:
    rows = []
    for case in cases:
        levels = np.array(case.percentiles[channel])
        rows.append((levels - case.mean[channel]) / (case.std[channel] or 1.0) if scaled else levels)
    return np.array(rows, dtype=np.float64)


def _spacing(summaries: Fingerprint) -> Markup:
    """Render the spacing along each axis, and sizes and orientations."""
    if not summaries.cases:
        return render("spacing", empty=NO_SCAN)
    axes = max(len(case.shape) for case in summaries.cases)
    cases = [case for case in summaries.cases if len(case.shape) == axes]
    charts = []
    for axis in range(axes):
        rows = [
            Strip(split, split, {case.name: case.canonical_spacing[axis] for case in cases if case.split == split})
            for split in SPLITS
        ]
        charts.append(strips(f"Spacing {AXES[axis]}, mm", rows))
    return render("spacing", charts=charts, sizes=[*_sizes(cases)])


def _sizes(cases: Sequence[CaseFingerprint]) -> Iterator[list[str]]:
    """Yield the smallest, the median and the largest size of each split, and its orientations."""
    for split in SPLITS:
        own = [case for case in cases if case.split == split]
        if own:
            sizes = np.percentile(np.array([case.canonical_shape for case in own]), (0, 50, 100), axis=0)
            orientations = ", ".join(sorted({case.orientation for case in own}))
            yield [split, *("×".join(f"{value:.0f}" for value in size) for size in sizes), orientations]


def _classes(examination: Examination) -> Markup:
    """Render the size of every class in the labeled cases."""
    labeled = [case for case in examination.fingerprint.of("labeled") if case.label_counts]
    values = sorted({value for case in labeled for value in case.class_sizes})
    if not values:
        return render("classes", empty=NO_LABEL)
    unit = "ml" if len(labeled[0].shape) == 3 else "mm²"
    view: dict[str, Any] = {"unit": unit, "charts": [], "rows": []}
    for value in values:
        name = examination.dataset.classes.get(value, f"class {value}")
        sizes = {case.name: case.class_sizes[value] for case in labeled if value in case.class_sizes}
        pieces = max(case.pieces[value].count for case in labeled if value in case.pieces)
        ends = [f"{size:.3g}" for size in np.percentile([*sizes.values()], (0, 50, 100))]
        view["charts"].append(strips(f"{name}, {unit}", [Strip("labeled", "labeled", sizes)]))
        view["rows"].append([name, f"{len(sizes)} of {len(labeled)}", *ends, str(pieces)])
    return render("classes", **view)


def _pictures(examination: Examination) -> Markup:
    """Render a slice with its label map for the first three cases of each finding, up to twelve pictures in all."""
    reasons: dict[str, list[str]] = {}
    for found in examination.findings:
        for name in found.cases[:LISTED_CASES]:
            reasons.setdefault(name, []).append(found.what)
    shown = [name for name in reasons if name in examination.thumbnails][:MAX_PICTURES]
    figures, album = [], Album()
    for name in shown:
        thumbnail, why = examination.thumbnails[name], "; ".join(dict.fromkeys(reasons[name]))
        layer = None if thumbnail.labels is None else label_layer(thumbnail.labels)
        picture = album.picture(thumbnail.image, layer, alt=f"{name}: {why}", aspect=thumbnail.aspect)
        figures.append((name, why, picture))
    classes = examination.dataset.classes or {value: f"class {value}" for value in examination.fingerprint.label_counts}
    return render("pictures", figures=figures, classes=sorted(classes.items()))
