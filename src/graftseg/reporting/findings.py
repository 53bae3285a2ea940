"""The findings of a check: a table for each severity, and pictures of the cases they name."""

from collections.abc import Sequence

from graftseg.data.check import Examination, Finding
from graftseg.data.checks.findings import SEVERITIES, Severity
from graftseg.reporting.markup import Html, join, looks_like_path, section, short_path, table, tag
from graftseg.reporting.palette import swatch
from graftseg.reporting.pictures import Album, label_layer

PICTURES = 12
NAMED = 3
TITLES: dict[Severity, str] = {
    "error": "Errors: to be mended before training",
    "warning": "Warnings: to be looked at",
    "note": "Notes: good to know",
}


def findings_section(findings: Sequence[Finding]) -> Html:
    """What was found, where, how large it is and how to mend it; errors first."""
    if not findings:
        return section("findings", "Findings", tag("p", "Every file was read, and there is nothing to report."))
    tables = [_table(severity, [found for found in findings if found.severity == severity]) for severity in SEVERITIES]
    return section("findings", "Findings", *tables)


def pictures_section(examination: Examination, album: Album) -> Html:
    """A slice of each of the first cases that findings name, with its label outlined."""
    reasons: dict[str, list[str]] = {}
    for found in examination.findings:
        for name in found.cases[:NAMED]:
            reasons.setdefault(name, []).append(found.what)
    shown = [name for name in reasons if name in examination.thumbnails][:PICTURES]
    if not shown:
        return section("pictures", "Pictures", tag("p", "No finding names a case that could be shown."))
    figures = []
    for name in shown:
        thumbnail, why = examination.thumbnails[name], "; ".join(dict.fromkeys(reasons[name]))
        layer = None if thumbnail.labels is None else label_layer(thumbnail.labels)
        picture = album.picture(thumbnail.image, layer, alt=f"{name}: {why}", aspect=thumbnail.aspect)
        figures.append(tag("figure", picture, tag("figcaption", tag("b", name), f" {why}")))
    text = "Cases that a finding names, on the slice with most of the label or, where there are islands, through one."
    classes = examination.dataset.classes or {value: f"class {value}" for value in examination.fingerprint.label_counts}
    entries = [tag("li", swatch(value), name) for value, name in sorted(classes.items()) if value > 0]
    parts = [tag("p", text), tag("ul", *entries, class_="legend"), tag("div", *figures, class_="gallery thirds")]
    return section("pictures", "Pictures", *parts)


def _table(severity: Severity, findings: Sequence[Finding]) -> Html:
    if not findings:
        return Html("")
    rows = [[found.what, _place(found), found.size, _remedy(found.remedy)] for found in findings]
    head = ["Finding", "Where", "How large", "Remedy"]
    return table(head, rows, caption=f"{TITLES[severity]} ({len(findings)})", class_=f"findings {severity}")


def _place(found: Finding) -> Html:
    """Where a finding is; all cases of one that names many unfold."""
    where = short_path(found.where) if looks_like_path(found.where) else found.where
    if len(found.cases) <= NAMED:
        return join([where])
    names = tag("details", tag("summary", f"all {len(found.cases)} cases"), ", ".join(found.cases))
    return join([where, names])


def _remedy(remedy: str) -> Html:
    """A remedy with its commands, which stand between backticks, as code."""
    parts = remedy.split("`")
    return join(tag("code", part) if place % 2 else part for place, part in enumerate(parts))
