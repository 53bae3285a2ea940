"""The page of a data check: verdict, findings, charts of distributions, pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from graftseg.core.phrases import class_name, counted
from graftseg.core.types import SPLITS, Split
from graftseg.core.version import __version__
from graftseg.data.check import Examination
from graftseg.data.checks.findings import SEVERITIES
from graftseg.data.fingerprint import PERCENTILES, CaseFingerprint, Fingerprint
from graftseg.reporting.distributions import Floats, bands, strips
from graftseg.reporting.missing import Missing
from graftseg.reporting.pictures import Album, label_layer
from graftseg.reporting.rendering import SELF_CONTAINED, render, write_page

MAX_PICTURES = 12
MAX_LABEL_MAPS = 500
MAX_LISTED_CASES = 3
"""Number of cases of a finding that have a picture. If a finding has more cases, the page also lists their names."""
LABEL_MAP_SIDE = 96  # longer side of the scans on the contact sheet, in pixels
COMPARED: tuple[Split, ...] = ("labeled", "unlabeled", "test")
LABEL_SPLITS: tuple[Split, ...] = ("labeled", "validation", "test")
AXES = ("right-left", "front-back", "head-foot")
FOOTER = f"Checked with graftseg {__version__}. {SELF_CONTAINED}"
NO_SCAN = Missing("No scan could be read.", "graftseg check DATA --out check.html")
NO_LABEL = Missing("No label map could be read, or all label maps are empty.")


def render_check(examination: Examination, out: Path) -> Path:
    """Write the page about a data set and return its path. The output is deterministic."""
    album = Album()
    found = {each: [finding for finding in examination.findings if finding.severity == each] for each in SEVERITIES}
    sections = [
        render("findings", findings=found, max_listed_cases=MAX_LISTED_CASES),
        _scan_comparison(examination),
        _spacing(examination.fingerprint),
        _classes(examination),
        _pictures(examination, album),
        _contact_sheet(examination, album),
    ]
    title = examination.dataset.root.resolve().name or "scans"
    return write_page(out, "graftseg check", title, _summary(examination), sections, FOOTER)


def _summary(examination: Examination) -> Markup:
    severities = [finding.severity for finding in examination.findings]
    findings = ", ".join(counted(severities.count(severity), severity) for severity in SEVERITIES)
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


def _scan_comparison(examination: Examination) -> Markup:
    """Render the comparisons of labeled scans with unlabeled and test scans, and the intensities of all groups."""
    fingerprint, likenesses = examination.fingerprint, [examination.likeness]
    if examination.test_likeness.kind != "alone" and examination.test_likeness.sentence != likenesses[0].sentence:
        likenesses.append(examination.test_likeness)
    return render(
        "scan_comparison",
        comparisons=[(likeness, max(likeness.spacing, default=0.0)) for likeness in likenesses],
        kinds=[split for split in COMPARED if fingerprint.of(split)],
        charts=[*_intensities(fingerprint)],
    )


def _intensities(fingerprint: Fingerprint) -> Iterator[Markup]:
    """Draw two charts for each channel: intensities as stored, and after normalizing each scan."""
    groups = {split: cases for split in COMPARED if (cases := fingerprint.of(split))}
    channels = min((len(case.mean) for cases in groups.values() for case in cases), default=0)
    for channel in range(channels):
        name = f", channel {channel:04d}" if channels > 1 else ""
        for state, is_normalized in (("as stored", False), ("after z-scores", True)):
            quantiles = {str(split): _quantiles(cases, channel, is_normalized) for split, cases in groups.items()}
            yield bands(f"Intensities {state}{name}", PERCENTILES, quantiles)


def _quantiles(cases: Sequence[CaseFingerprint], channel: int, is_normalized: bool) -> Floats:
    rows = []
    for case in cases:
        values = np.array(case.percentiles[channel])
        rows.append((values - case.mean[channel]) / (case.std[channel] or 1.0) if is_normalized else values)
    return np.array(rows, dtype=np.float64)


def _spacing(fingerprint: Fingerprint) -> Markup:
    """Render charts of the spacing along each axis, and a table of sizes and orientations."""
    if not fingerprint.cases:
        return render("spacing", empty=NO_SCAN)
    axes = max(len(case.shape) for case in fingerprint.cases)
    groups = {split: [case for case in fingerprint.of(split) if len(case.shape) == axes] for split in SPLITS}
    charts = []
    for axis, name in enumerate(AXES[:axes]):
        spacings = {str(split): {case.name: case.canonical_spacing[axis] for case in groups[split]} for split in groups}
        charts.append(strips(f"Spacing {name}, mm", spacings))
    sizes = []
    for split, cases in groups.items():
        if cases:
            extremes = np.percentile(np.array([case.canonical_shape for case in cases]), (0, 50, 100), axis=0)
            orientations = ", ".join(sorted({case.orientation for case in cases}))
            sizes.append([split, *("×".join(f"{value:.0f}" for value in size) for size in extremes), orientations])
    return render("spacing", charts=charts, sizes=sizes)


def _classes(examination: Examination) -> Markup:
    """Render the size of every class in the label maps of each split."""
    fingerprint = examination.fingerprint
    labeled = {split: [case for case in fingerprint.of(split) if case.label_counts] for split in LABEL_SPLITS}
    groups = {split: cases for split, cases in labeled.items() if cases}
    values = sorted({value for cases in groups.values() for case in cases for value in case.class_sizes})
    if not values:
        return render("classes", empty=NO_LABEL)
    unit = "ml" if any(len(case.shape) == 3 for cases in groups.values() for case in cases) else "mm²"
    view: dict[str, Any] = {"unit": unit, "charts": [], "rows": []}
    for value in values:
        name = examination.dataset.classes.get(value, class_name(value))
        sizes_by_split: dict[str, dict[str, float]] = {}
        for split, cases in groups.items():
            sizes = {case.name: case.class_sizes[value] for case in cases if value in case.class_sizes}
            percentiles = np.percentile([*sizes.values()], (0, 50, 100)) if sizes else ()
            extremes = [f"{size:.3g}" for size in percentiles] or ["–"] * 3
            pieces = max((case.pieces[value].count for case in cases if value in case.pieces), default="–")
            sizes_by_split[split] = sizes
            view["rows"].append([name, split, f"{len(sizes)} of {len(cases)}", *extremes, pieces])
        view["charts"].append(strips(f"{name}, {unit}", sizes_by_split))
    return render("classes", **view)


def _pictures(examination: Examination, album: Album) -> Markup:
    """Render one slice with its label map for each of the first cases that are named in findings."""
    reasons: dict[str, list[str]] = {}
    for finding in examination.findings:
        for name in finding.cases[:MAX_LISTED_CASES]:
            reasons.setdefault(name, []).append(finding.what)
    figures = []
    for name in [name for name in reasons if name in examination.thumbnails][:MAX_PICTURES]:
        thumbnail, reason = examination.thumbnails[name], "; ".join(dict.fromkeys(reasons[name]))
        layer = None if thumbnail.labels is None else label_layer(thumbnail.labels)
        picture = album.picture(thumbnail.image, layer, alt=f"{name}: {reason}", aspect=thumbnail.aspect)
        figures.append((name, reason, picture))
    return render("pictures", figures=figures, classes=_class_legend(examination))


def _contact_sheet(examination: Examination, album: Album) -> Markup:
    """Render one slice of every label map, so that people can see mistakes that no check finds."""
    splits = {case.name: case.split for case in examination.fingerprint.cases if case.label_counts}
    figures, total = [], 0
    for name, thumbnail in examination.thumbnails.items():
        if name not in splits or thumbnail.labels is None:
            continue
        total += 1
        if total <= MAX_LABEL_MAPS:
            layer, alt = label_layer(thumbnail.labels), f"label map of {name}"
            picture = album.picture(thumbnail.image, layer, alt=alt, aspect=thumbnail.aspect, limit=LABEL_MAP_SIDE)
            figures.append((name, splits[name], picture))
    return render("contact_sheet", figures=figures, total=total, classes=_class_legend(examination))


def _class_legend(examination: Examination) -> list[tuple[int, str]]:
    numbered = {value: class_name(value) for value in examination.fingerprint.label_counts}
    return sorted((examination.dataset.classes or numbered).items())
