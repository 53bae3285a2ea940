"""Drawing in Chromium: exactly the drawn voxels are saved, in the geometry of the scan."""

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import BrowserContext
from viewer_browser import AXIAL, CORONAL, SAGITTAL, VIEW, Start, ViewerTab, wait_until

from graftseg.data.scans import read_label, read_scan
from graftseg.reporting.viewer.volumes import Turn

pytestmark = [pytest.mark.web, pytest.mark.slow]


@pytest.fixture
def tab(tested_run: Path, data: Path, start: Start, context: BrowserContext) -> ViewerTab:
    tab = ViewerTab(context, start("annotate", tested_run, "--data", data).url)
    tab.wait_ready()
    tab.wait_writable()
    return tab


def clear(tab: ViewerTab, z: int) -> None:
    """Erase an axial slice with the largest brush."""
    tab.go_to((8, 8, z))
    tab.set_brush(40)
    tab.page.keyboard.press("e")
    tab.draw((8, 8, z))


def test_exactly_the_drawn_voxels_are_saved(tab: ViewerTab, data: Path) -> None:
    expected = tab.draft()
    name, z = tab.case_name, tab.voxel[2]
    tab.set_brush(1)
    tab.page.keyboard.press("2")
    tab.draw((3, 4, z), (9, 4, z), (9, 7, z))
    expected[3:10, 4, z] = 2
    expected[9, 4:8, z] = 2
    assert np.array_equal(tab.draft(), expected)
    tab.page.keyboard.press("1")
    tab.go_to((8, 6, 5))
    tab.draw((2, 6, 10), (5, 6, 10), plane=CORONAL)
    expected[2:6, 6, 10] = 1
    tab.go_to((8, 6, 5))
    tab.draw((8, 3, 2), (8, 3, 6), plane=SAGITTAL)
    expected[8, 3, 2:7] = 1
    tab.set_brush(3)
    tab.page.keyboard.press("e")
    tab.go_to((8, 6, z))
    tab.draw((4, 4, z))
    expected[[4, 3, 5, 4, 4], [4, 4, 4, 3, 5], z] = 0
    assert np.array_equal(tab.draft(), expected)
    tab.wait_saved()
    assert np.array_equal(tab.saved_draft(), expected)
    tab.page.get_by_role("button", name="Accept").click()
    wait_until(lambda: tab.case_name != name)
    saved = read_label(data / "labelsTr" / f"{name}.nii.gz")
    scan = read_scan(data / "imagesUn" / f"{name}_0000.nii.gz")
    assert np.array_equal(Turn.of(scan.geometry).to_volume(saved.array), expected)
    wait_until(lambda: f"Accepted: {name}" in tab.page.locator(".stage").inner_text())
    assert tab.page.locator(".state-accepted").count() == 1
    assert tab.errors == []


def test_drawn_voxels_are_shown_in_the_color_of_their_class(tab: ViewerTab) -> None:
    x, y, z = 2, 12, tab.voxel[2]
    tab.run(f"{VIEW}.setCrosshairWidth(0)")
    tab.set_brush(1)
    tab.page.keyboard.press("1")
    tab.draw((x, y, z))
    tab.page.mouse.move(0, 0)
    red, green, blue = map(int, tab.pixel((x, y, z), AXIAL))
    assert red > green + 20 > blue + 40
    for mirrored in ((15 - x, y, z), (x, 15 - y, z)):
        if tab.draft()[mirrored] == 0:
            assert np.ptp(tab.pixel(mirrored, AXIAL).astype(int)) < 10


def test_undo_and_redo_go_through_all_changes(tab: ViewerTab) -> None:
    z = tab.voxel[2]
    states = [tab.draft()]
    tab.set_brush(2)
    for column in (3, 6, 9):
        tab.draw((column, 3, z), (column, 9, z))
        states.append(tab.draft())
    for state in reversed(states[:-1]):
        tab.page.keyboard.press("Control+z")
        assert np.array_equal(tab.draft(), state)
    assert tab.page.get_by_role("button", name="Undo").is_disabled()
    for state in states[1:]:
        tab.page.keyboard.press("Control+y")
        assert np.array_equal(tab.draft(), state)
    tab.page.get_by_role("button", name="Undo").click()
    tab.wait_saved()
    assert np.array_equal(tab.saved_draft(), states[-2])


def test_outlines_and_regions_are_filled(tab: ViewerTab) -> None:
    z = tab.voxel[2]
    clear(tab, z)
    expected = tab.draft()
    assert not expected[:, :, z].any()
    tab.page.keyboard.press("2")
    tab.page.keyboard.press("o")
    tab.draw((2, 2, z), (12, 2, z), (12, 12, z), (2, 12, z), (2, 3, z))
    expected[2:13, 2:13, z] = 2
    assert np.array_equal(tab.draft(), expected)
    tab.page.keyboard.press("1")
    tab.page.keyboard.press("f")
    tab.draw((7, 7, z))
    expected[expected[:, :, z] == 2, z] = 1
    assert np.array_equal(tab.draft(), expected)
    tab.draw((0, 0, z))
    assert "not enclosed" in tab.page.locator(".stage").inner_text()
    assert np.array_equal(tab.draft(), expected)


def test_slices_are_interpolated(tab: ViewerTab) -> None:
    tab.page.keyboard.press("2")
    for z in (3, 7):
        clear(tab, z)
        tab.page.keyboard.press("o")
        tab.draw((4, 4, z), (10, 4, z), (10, 10, z), (4, 10, z), (4, 5, z))
    before = tab.draft()
    assert "slices 4 to 8" in tab.page.locator(".panel").inner_text()
    tab.page.keyboard.press("i")
    after = tab.draft()
    for z in (4, 5, 6):
        rows, columns = np.nonzero(after[:, :, z] == 2)
        assert (rows.min(), rows.max(), columns.min(), columns.max()) == (4, 10, 4, 10)
        assert len(rows) == 49
    for z in (3, 7):
        assert np.array_equal(after[:, :, z], before[:, :, z])
    tab.page.keyboard.press("Control+z")
    assert np.array_equal(tab.draft(), before)
    tab.wait_saved()
    assert np.array_equal(tab.saved_draft(), before)


def test_start_over_returns_to_the_prediction(tab: ViewerTab) -> None:
    original, z = tab.draft(), tab.voxel[2]
    tab.set_brush(5)
    tab.draw((8, 8, z), (3, 3, z))
    tab.wait_saved()
    tab.page.get_by_role("button", name="Start over").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Start over").click()
    wait_until(lambda: np.array_equal(tab.draft(), original))
    tab.draw((8, 8, z), (3, 3, z))
    tab.wait_saved()
    assert np.array_equal(tab.saved_draft(), tab.draft())


def test_a_rejected_scan_is_not_suggested_again(tab: ViewerTab, data: Path) -> None:
    name = tab.case_name
    tab.page.get_by_role("button", name="Reject").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert tab.case_name == name
    tab.page.get_by_role("button", name="Reject").click()
    tab.page.get_by_role("dialog").get_by_role("button", name="Reject").click()
    wait_until(lambda: tab.case_name != name)
    assert not (data / "labelsTr" / f"{name}.nii.gz").exists()
    tab.page.get_by_role("button", name="Skip").click()
    wait_until(lambda: tab.page.locator(".state-skipped").count() == 1)
    log = [json.loads(line) for line in next((data / "annotations").glob("*.jsonl")).read_text().splitlines()]
    assert [entry["action"] for entry in log] == ["reject", "skip"]
