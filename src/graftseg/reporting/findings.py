"""The findings of a check: a table for each severity, and pictures of the cases they name."""

from collections.abc import Sequence

from markupsafe import Markup

from graftseg.data.check import Examination, Finding
from graftseg.data.checks.findings import SEVERITIES, Severity
from graftseg.reporting.pictures import Album, label_layer
from graftseg.reporting.rendering import render

PICTURES = 12
NAMED = 3
TITLES: dict[Severity, str] = {
    "error": "Errors: fix these before training",
    "warning": "Warnings: check these",
    "note": "Notes: for your information",
}


def findings_section(findings: Sequence[Finding]) -> Markup:
    """Render a table of findings for each severity, errors first."""
    tables = [(one, TITLES[one], [found for found in findings if found.severity == one]) for one in SEVERITIES]
    return render("findings", tables=[table for table in tables if table[2]], listed_cases=NAMED)


def pictures_section(examination: Examination, album: Album) -> Markup:
    """Render a slice of each of the first cases that findings name, with its label."""
    reasons: dict[str, list[str]] = {}
    for found in examination.findings:
        for name in found.cases[:NAMED]:
            reasons.setdefault(name, []).append(found.what)
    shown = [name for name in reasons if name in examination.thumbnails][:PICTURES]
    figures = []
    for name in shown:
        thumbnail, why = examination.thumbnails[name], "; ".join(dict.fromkeys(reasons[name]))
        layer = None if thumbnail.labels is None else label_layer(thumbnail.labels)
        picture = album.picture(thumbnail.image, layer, alt=f"{name}: {why}", aspect=thumbnail.aspect)
        figures.append((name, why, picture))
    classes = examination.dataset.classes or {value: f"class {value}" for value in examination.fingerprint.label_counts}
    return render("pictures", figures=figures, classes=sorted(classes.items()))
