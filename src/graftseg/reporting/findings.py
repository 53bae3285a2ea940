"""The findings of a check: a table for each severity, and pictures of the cases they name."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from graftseg.data.check import Examination, Finding
from graftseg.data.checks.findings import SEVERITIES, Severity
from graftseg.reporting.pictures import Album, label_layer
from graftseg.reporting.rendering import render
from graftseg.reporting.text import shown_text

PICTURES = 12
NAMED = 3
TITLES: dict[Severity, str] = {
    "error": "Errors: fix these before training",
    "warning": "Warnings: check these",
    "note": "Notes: for your information",
}


@dataclass(frozen=True)
class FindingLine:
    """A row of a table of findings; ``cases`` are listed if there are many; ``remedy`` alternates text and code."""

    finding: str
    where: str
    cases: Sequence[str]
    size: str
    remedy: list[str]


@dataclass(frozen=True)
class CasePicture:
    """A slice of a case, and the findings that name the case."""

    name: str
    reasons: str
    picture: Markup


def findings_section(findings: Sequence[Finding]) -> Markup:
    """Render a table of findings for each severity, errors first."""
    tables = {severity: [_line(one) for one in findings if one.severity == severity] for severity in SEVERITIES}
    shown = [(severity, TITLES[severity], lines) for severity, lines in tables.items() if lines]
    return render("findings", tables=shown)


def _line(found: Finding) -> FindingLine:
    cases = found.cases if len(found.cases) > NAMED else ()
    return FindingLine(found.what, shown_text(found.where), cases, found.size, found.remedy.split("`"))


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
        figures.append(CasePicture(name, why, picture))
    classes = examination.dataset.classes or {value: f"class {value}" for value in examination.fingerprint.label_counts}
    return render("pictures", figures=figures, classes=sorted(classes.items()))
