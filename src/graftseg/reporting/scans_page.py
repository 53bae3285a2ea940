"""What a check saw as one self-contained html page: verdict, findings, distributions, pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graftseg.core.files import write_text
from graftseg.core.types import SPLITS
from graftseg.core.version import __version__
from graftseg.data.check import Examination
from graftseg.data.checks.findings import SEVERITIES, counted
from graftseg.data.fingerprint import PERCENTILES, CaseFingerprint, Fingerprint
from graftseg.reporting.distributions import Band, Floats, Strip, bands, kinds_legend, strips
from graftseg.reporting.findings import findings_section, pictures_section
from graftseg.reporting.markup import Html, join, missing, section, table, tag
from graftseg.reporting.page import document
from graftseg.reporting.pictures import Album

CONTENTS = {
    "findings": "Findings",
    "together": "Labeled and unlabeled",
    "spacing": "Spacing",
    "classes": "Classes",
    "pictures": "Pictures",
}
AXES = ("right-left", "front-back", "head-foot")
FOOTER = f"Checked with graftseg {__version__}. This page holds everything it shows and loads nothing."
COMMAND = "graftseg check DATA --out check.html"


def render_check(examination: Examination, out: Path) -> Path:
    """Write the page about a data set and return its path. The same data gives the same bytes."""
    summaries = examination.fingerprint
    about = [
        tag("p", _subtitle(examination), class_="subtitle"),
        tag("p", examination.verdict, class_="state" if examination.findings else "state sound"),
        _tiles(examination),
    ]
    sections = [
        findings_section(examination.findings),
        _together(examination),
        _spacing(summaries),
        _classes(examination),
        pictures_section(examination, Album()),
    ]
    title = examination.dataset.root.resolve().name or "scans"
    write_text(out, document("graftseg check", title, about, CONTENTS, sections, FOOTER))
    return out


def _subtitle(examination: Examination) -> str:
    severities = [found.severity for found in examination.findings]
    counts = ", ".join(counted(severities.count(kind), kind) for kind in SEVERITIES)
    return f"{examination.dataset.layout} layout, {counts}"


def _tiles(examination: Examination) -> Html:
    """Cases of each split, and classes."""
    counts = [(split, count) for split, count in examination.counts.items() if count or split != "validation"]
    values = examination.dataset.classes or examination.fingerprint.label_counts
    counts.append(("classes", len([value for value in values if value])))
    tiles = [tag("div", tag("dt", name), tag("dd", f"{count:,}")) for name, count in counts]
    return tag("dl", *tiles, class_="tiles")


def _together(examination: Examination) -> Html:
    """The verdict on using labeled and unlabeled scans together, and the intensities behind it."""
    alike, summaries = examination.likeness, examination.fingerprint
    parts = [tag("p", alike.sentence, class_="state sound" if alike.kind == "alike" else "state")]
    if alike.spacing:
        figures = (
            f"In units of what chance explains, intensities differ by {alike.stored:.2f} as stored and by "
            f"{alike.standardised:.2f} after normalising each scan, and spacings by {max(alike.spacing):.2f}. "
            "Up to 1 is no surprise."
        )
        parts.append(tag("p", figures))
    kinds = [split for split in ("labeled", "unlabeled") if summaries.of(split)]
    charts = [*_intensities(summaries)]
    if charts:
        text = "Intensity quantiles: the median case as a line, the middle half of the cases shaded."
        parts += [tag("p", text, class_="caption"), kinds_legend(kinds), tag("div", *charts, class_="small-charts")]
    return section("together", "Labeled and unlabeled scans", *parts)


def _intensities(summaries: Fingerprint) -> Iterator[Html]:
    training = summaries.training
    channels = min((len(case.mean) for case in training), default=0)
    for channel in range(channels):
        name = f", channel {channel:04d}" if channels > 1 else ""
        for what, scaled in (("as stored", False), ("after z-scores", True)):
            groups = [
                Band(split, _quantiles(summaries.of(split), channel, scaled))
                for split in ("labeled", "unlabeled")
                if summaries.of(split)
            ]
            yield bands(f"Intensities {what}{name}", PERCENTILES, groups)


def _quantiles(cases: Sequence[CaseFingerprint], channel: int, scaled: bool) -> Floats:
    rows = []
    for case in cases:
        levels = np.array(case.percentiles[channel])
        rows.append((levels - case.mean[channel]) / (case.std[channel] or 1.0) if scaled else levels)
    return np.array(rows, dtype=np.float64)


def _spacing(summaries: Fingerprint) -> Html:
    """Spacing along each axis, and sizes and orientations in figures."""
    if not summaries.cases:
        return section("spacing", "Spacing and size", missing("No scan could be read.", COMMAND))
    axes = max(len(case.shape) for case in summaries.cases)
    cases = [case for case in summaries.cases if len(case.shape) == axes]
    charts = []
    for axis in range(axes):
        rows = [
            Strip(split, split, {case.name: case.canonical_spacing[axis] for case in cases if case.split == split})
            for split in SPLITS
        ]
        charts.append(strips(f"Spacing {AXES[axis]}, mm", rows))
    return section("spacing", "Spacing and size", tag("div", *charts, class_="small-charts"), _sizes(cases))


def _sizes(cases: Sequence[CaseFingerprint]) -> Html:
    rows = []
    for split in SPLITS:
        own = [case for case in cases if case.split == split]
        if own:
            shapes = np.array([case.canonical_shape for case in own])
            cells = ["×".join(f"{value:.0f}" for value in edge) for edge in _edges(shapes)]
            rows.append([split, *cells, ", ".join(sorted({case.orientation for case in own}))])
    head = ["Cases", "Smallest", "Median", "Largest", "Orientation"]
    return table(head, rows, caption="Voxels along each axis, in the order of the charts")


def _edges(shapes: npt.NDArray[np.int64]) -> list[list[float]]:
    return [[float(value) for value in edge] for edge in np.percentile(shapes, (0, 50, 100), axis=0)]


def _classes(examination: Examination) -> Html:
    """Sizes of every class over the labeled cases."""
    labeled = [case for case in examination.fingerprint.of("labeled") if case.label_counts]
    values = sorted({value for case in labeled for value in case.class_sizes})
    if not values:
        return section("classes", "Classes", missing("No label map could be read, or all are empty."))
    unit = "ml" if len(labeled[0].shape) == 3 else "mm²"
    names = {value: examination.dataset.classes.get(value, f"class {value}") for value in values}
    charts, rows = [], []
    for value in values:
        sizes = {case.name: case.class_sizes[value] for case in labeled if value in case.class_sizes}
        charts.append(strips(f"{names[value]}, {unit}", [Strip("labeled", "labeled", sizes)]))
        pieces = [case.pieces[value].count for case in labeled if value in case.pieces]
        low, middle, high = np.percentile([*sizes.values()], (0, 50, 100))
        figures = [
            f"{len(sizes)} of {len(labeled)}",
            *(f"{size:.3g}" for size in (low, middle, high)),
            f"{max(pieces)}",
        ]
        rows.append([names[value], *figures])
    head = ["Class", "In cases", f"Smallest {unit}", f"Median {unit}", f"Largest {unit}", "Most pieces"]
    figures_table = table(head, rows, caption="Each class over the labeled cases that show it")
    return section("classes", "Classes", join([figures_table, tag("div", *charts, class_="small-charts")]))
