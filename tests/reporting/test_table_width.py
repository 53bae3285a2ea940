"""Measure the tables of a page in Chromium, if it is installed."""

import re
from pathlib import Path

import pytest
from markupsafe import Markup
from report_fakes import in_chromium

from graftseg.evaluation.scores import Evaluation, Row
from graftseg.reporting.rendering import write_page
from graftseg.reporting.results import Results, results_section

pytestmark = pytest.mark.slow

ORGANS = ["aorta", "gallbladder", "esophagus", "stomach", "pancreas", "spleen", "colon", "left ventricle", "duodenum"]
DISTANCES = [
    (123.45, 123.45, 123.45, 123.45, 234.56, 234.56, 234.56, 234.56),
    (12.34, 12.34, 12.34, 12.34, 23.45, 23.45, 23.45, 23.45),
]
"""Different distances of two cases, for wide standard deviations."""
MEASURE = """<script>document.title = [...document.querySelectorAll(".wide")]
.map(region => region.scrollWidth - region.clientWidth).join(" ")</script></body>"""


def test_no_column_is_cut_off_at_1400_pixels(tmp_path: Path) -> None:
    sections = [_results(tmp_path, ORGANS[:count]) for count in (1, 4, 9)]
    page = write_page(tmp_path / "page.html", "", "", Markup(), sections, "").read_text()
    page = re.sub("<meta http-equiv.*?>", "", page).replace("</body>", MEASURE)  # allow the script that measures
    (tmp_path / "page.html").write_text(page)
    title = re.search("<title>(.*?)</title>", in_chromium(tmp_path / "page.html"))
    assert title is not None and title.group(1) == "0 0 0 0 0 0 0"  # two tables each, and a third with many classes


def _results(folder: Path, classes: list[str]) -> Markup:
    """Render results with all columns and wide numbers."""
    rows = [
        Row(f"patient_{case}_frame_0001", label, name, 0.99 - case / 2, 0.98, *distances, 1234.5, 99.0 + case)
        for case, distances in enumerate(DISTANCES)
        for label, name in enumerate(classes, 1)
    ]
    results = Results(folder, Evaluation(tuple(rows), "standard"), None)
    return results_section(results, {}, baseline=dict.fromkeys(results.ranking, 0.5))
