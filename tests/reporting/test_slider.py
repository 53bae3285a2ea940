import base64
import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from report_fakes import Page, decode_uri, in_chromium, write_facts, write_manifest, write_run

from graftseg.core.predictions import PredictedCase
from graftseg.core.types import Geometry
from graftseg.data.scans import write_label, write_scan
from graftseg.data.slices import Cut
from graftseg.reporting.cases import MAX_SLICES, slices_of
from graftseg.reporting.orientation import Orientation
from graftseg.reporting.run_page import render_report
from scoring import evaluate_folder

AFFINE = ((1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0), (0.0, 0.0, 3.0, 0.0), (0.0, 0.0, 0.0, 1.0))
SHAPE = (6, 5, 40)


def write_volume_run(folder: Path, shape: tuple[int, int, int] = SHAPE) -> Path:
    """Write a run with one predicted volume. Its foreground is in slices 10 to 30, counted from 1."""
    run, out, geometry = folder / "run", folder / "run" / "predictions", Geometry(shape, AFFINE)
    write_facts(run)
    labels = np.zeros(shape, np.uint8)
    labels[1:4, 1:3, 9:30] = 1
    labels[:, :, 12] = 1
    for place in (folder / "labels", out):
        write_label(place / "a.nii.gz", labels, geometry)
    write_scan(folder / "a.nii.gz", np.random.default_rng(0).random(shape).astype(np.float32), geometry)
    write_manifest(out, PredictedCase("a", (str(folder / "a.nii.gz"),), "a.nii.gz", 0.1))
    evaluate_folder(out, folder / "labels", classes={1: "ring"}).write_csv(out / "metrics.csv")
    (out / "metrics.json").write_text(json.dumps({"references": str(folder / "labels"), "protocol": "standard"}))
    return run


def rows_of(page: Page) -> dict[str, bool]:
    """Return the number of each slice on a page, and whether it is visible."""
    cases = [attributes for _, attributes in page.elements if "data-slice" in attributes]
    return {attributes["data-slice"]: "hidden" not in attributes for attributes in cases}


@pytest.mark.parametrize(
    ("filled", "shown", "count", "expected"),
    [
        ((10, 30), 13, 5, [10, 13, 20, 25, 30]),
        ((10, 12), 11, 9, [10, 11, 12]),
        ((10, 10), 10, 9, [10]),
        ((0, 39), 39, 3, [0, 20, 39]),
    ],
)
def test_slices_are_evenly_spaced_through_the_foreground(
    filled: tuple[int, int], shown: int, count: int, expected: list[int]
) -> None:
    labels, cut = np.zeros(SHAPE, np.uint8), Cut.as_stored(Geometry(SHAPE, AFFINE))
    labels[2, 2, filled[0]], labels[2, 2, filled[1]] = 1, 2
    assert cut.through(shown, count, labels, np.zeros_like(labels)) == expected
    assert cut.through(shown, count, np.zeros_like(labels), labels) == expected
    assert cut.through(7, count, np.zeros_like(labels)) == [7]
    assert cut.count(labels) == 40


def test_flipped_slices_show_their_own_content() -> None:
    flipped = Geometry(SHAPE, (*AFFINE[:2], (0.0, 0.0, -3.0, 0.0), AFFINE[3]))
    labels = np.zeros(SHAPE, np.uint8)
    labels[0, 0, 2:5] = 1
    (shown,) = slices_of(labels, labels, labels, flipped, Orientation("RAS", is_volume=True))
    assert [each.number for each in shown.neighbors] == [36, 37, 38]
    assert all(each.reference.any() for each in shown.neighbors)


def test_only_the_fullest_slice_is_visible_without_a_script(tmp_path: Path) -> None:
    page = Page(render_report(write_volume_run(tmp_path)).read_text())
    shown = rows_of(page)
    assert len(shown) == MAX_SLICES and [number for number, is_visible in shown.items() if is_visible] == ["13"]
    (slider,) = (attributes for tag, attributes in page.elements if tag == "input")
    assert (slider["type"], slider["min"], slider["max"]) == ("range", "0", "8")
    assert list(shown)[int(slider["value"])] == "13"
    (label,) = (attributes for tag, attributes in page.elements if tag == "label")
    assert "hidden" in label  # it does nothing without the script


def test_the_browser_may_run_this_script_only(tmp_path: Path) -> None:
    text = render_report(write_volume_run(tmp_path)).read_text()
    (source,) = re.findall("<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
    assert f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'\"" in text
    assert "script-src" not in render_report(write_run(tmp_path / "flat")).read_text()  # 2-D scans have one slice


def test_the_slider_works_in_a_browser(tmp_path: Path) -> None:
    page = Page(in_chromium(render_report(write_volume_run(tmp_path))))
    (label,) = (attributes for tag, attributes in page.elements if tag == "label")
    (slider,) = (attributes for tag, attributes in page.elements if tag == "input")
    assert "hidden" not in label and slider["aria-valuetext"] == "slice 13"


def test_hidden_slices_are_stored_small(tmp_path: Path) -> None:
    page = Page(render_report(write_volume_run(tmp_path, (400, 8, 40))).read_text())
    pictures = [decode_uri(address) for address in page.attributes("href") if address.startswith("data:")]
    shapes = [picture.shape for picture in pictures if picture.ndim == 2]
    assert shapes.count((8, 400)) == 1 and shapes.count((4, 200)) == MAX_SLICES - 1
