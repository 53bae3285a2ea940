"""The page of a comparison of methods, with a link to the page of the folds of each method."""

from collections.abc import Sequence
from pathlib import Path

from graftseg.core.run_folder import RunFolder
from graftseg.reporting.folds_page import render_folds
from graftseg.reporting.rendering import render, write_page


def render_methods(run: RunFolder, head: Sequence[str], rows: Sequence[Sequence[str]], verdicts: Sequence[str]) -> Path:
    """Write ``report.html`` of a comparison, and of the folds of each method. Each row begins with a method."""
    for method, *_ in rows:
        render_folds(RunFolder(run.path / method))
    summary = render("method_summary", verdicts=verdicts)
    table = render("methods", columns=head, lines=rows)
    title = f"{len(rows)} methods with the same training time"
    footer = "The table is self-contained. The links lead to the pages of the methods in this folder."
    return write_page(run.path / "report.html", "graftseg train --compare", title, summary, {}, [table], footer)
