"""The viewer in Chromium: cases, planes, overlays, window, keyboard."""

import json
import signal
from functools import partial
from pathlib import Path

import nibabel
import numpy as np
import pytest
from numpy.typing import NDArray
from playwright.sync_api import BrowserContext, Route
from viewer_browser import AXIAL, CORONAL, SAGITTAL, VIEW, Start, ViewerTab, picture_of, requested_hosts, wait_until

pytestmark = [pytest.mark.web, pytest.mark.slow]

BRIGHT = (3, 17, 8)
HOSTILE = "<img src=x onerror=alert(1)>&\"'"


def dark_scan(bright: tuple[int, ...]) -> NDArray[np.float32]:
    """Return a dark noisy scan with one bright voxel, to see where each voxel is shown."""
    array = np.random.default_rng(0).normal(0, 5, (20, 24, 12)).astype(np.float32)
    array[bright] = 1000
    return array


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    path = tmp_path / "scan.nii.gz"
    nibabel.save(nibabel.Nifti1Image(dark_scan(BRIGHT), np.diag([1.5, 1.0, 2.0, 1.0])), path)
    return path


def tab_of(context: BrowserContext, url: str) -> ViewerTab:
    tab = ViewerTab(context, url)
    tab.wait_ready()
    return tab


@pytest.mark.parametrize("affine", [(1.5, 1.0, 2.0), (-1.5, -1.0, 2.0)])
def test_each_voxel_is_shown_at_its_place(
    affine: tuple[float, ...], tmp_path: Path, start: Start, context: BrowserContext
) -> None:
    bright = tuple(i if step > 0 else n - 1 - i for i, step, n in zip(BRIGHT, affine, (20, 24, 12), strict=True))
    nibabel.save(nibabel.Nifti1Image(dark_scan(bright), np.diag([*affine, 1.0])), tmp_path / "scan.nii.gz")
    tab = tab_of(context, start("view", tmp_path / "scan.nii.gz").url)
    tab.run(f"{VIEW}.setWindow(0, 1000)")
    tab.run(f"{VIEW}.setCrosshairWidth(0)")
    tab.run(f"{VIEW}.setSmooth(false)")
    tab.go_to(BRIGHT)
    x, y, z = BRIGHT
    for plane, others in (
        (AXIAL, [(x + 1, y, z), (19 - x, y, z), (x, 23 - y, z)]),
        (CORONAL, [(x, y, z - 1), (19 - x, y, z), (x, y, 11 - z)]),
        (SAGITTAL, [(x, y - 1, z), (x, 23 - y, z), (x, y, 11 - z)]),
    ):
        assert tab.pixel(BRIGHT, plane).min() > 240
        for other in others:
            assert tab.pixel(other, plane).max() < 15
    assert tab.errors == []


def turn_wheel(tab: ViewerTab, voxel: tuple[int, int, int], plane: int, delta: int) -> None:
    """Send one wheel event to a slice. Chromium may drop events of a simulated wheel on a busy machine."""
    x, y = tab.position(voxel, plane)
    event = {"clientX": x, "clientY": y, "deltaY": delta, "bubbles": True, "cancelable": True}
    tab.page.locator("#planes").dispatch_event("wheel", event)


def test_clicks_and_keys_move_through_the_scan(scan: Path, start: Start, context: BrowserContext) -> None:
    tab = tab_of(context, start("view", scan).url)
    assert tab.voxel == [10, 12, 6]
    tab.page.mouse.click(*tab.position((4, 5, 6), AXIAL))
    assert tab.voxel == [4, 5, 6]
    tab.page.keyboard.press("ArrowUp")
    tab.page.keyboard.press("ArrowRight")
    assert tab.voxel == [4, 5, 8]
    tab.page.keyboard.press("ArrowDown")
    assert tab.voxel == [4, 5, 7]
    tab.page.mouse.move(*tab.position((4, 5, 7), CORONAL))
    tab.page.keyboard.press("Shift+ArrowUp")
    assert tab.voxel == [4, 15, 7]
    turn_wheel(tab, (4, 15, 7), CORONAL, 100)
    assert tab.voxel == [4, 16, 7]
    turn_wheel(tab, (4, 16, 7), CORONAL, -100)
    assert tab.voxel == [4, 15, 7]
    assert "slice" in tab.page.locator(".position").inner_text()
    tab.page.keyboard.press("s")
    assert tab.page.get_by_role("button", name="Sagittal").get_attribute("aria-pressed") == "true"
    tab.page.keyboard.press("?")
    assert tab.page.get_by_role("heading", name="Keyboard and mouse").is_visible()
    tab.page.keyboard.press("Escape")
    assert not tab.page.get_by_role("heading", name="Keyboard and mouse").is_visible()


def test_zoom_keeps_the_crosshair_in_place(scan: Path, start: Start, context: BrowserContext) -> None:
    tab = tab_of(context, start("view", scan).url)
    tab.page.keyboard.press("a")
    tab.go_to(BRIGHT)
    before = tab.position(BRIGHT, AXIAL)
    for _ in range(4):
        tab.page.keyboard.press("+")
    assert np.allclose(tab.position(BRIGHT, AXIAL), before, atol=1.5)
    wider = tab.position((BRIGHT[0] + 1, *BRIGHT[1:]), AXIAL)[0] - before[0]
    tab.page.keyboard.press("0")
    assert abs(wider) > 2 * abs(tab.position((BRIGHT[0] + 1, *BRIGHT[1:]), AXIAL)[0] - tab.position(BRIGHT, AXIAL)[0])


def test_a_run_shows_cases_overlays_and_scores(tested_run: Path, start: Start, context: BrowserContext) -> None:
    server = start("view", tested_run)
    tab = tab_of(context, server.url)
    rows = tab.page.locator(".case")
    assert rows.count() == 11
    first = rows.nth(0).locator(".case-name").inner_text()
    assert tab.case_name == first
    assert tab.page.locator(".scores tbody tr").count() >= 1
    assert tab.page.get_by_role("link", name="Report").get_attribute("href") == "/report"
    for name in ("Reference", "Prediction", "Uncertainty", "Difference"):
        tab.page.get_by_label(name, exact=True).check()
    wait_until(lambda: len(tab.run("document.querySelector('.stage').dataset.layers").split()) == 4)
    assert "reference:" in tab.page.locator(".position").inner_text()
    tab.page.locator("#planes").focus()
    tab.page.keyboard.press("0")
    shown = tab.page.locator("#planes").screenshot()
    tab.page.keyboard.press("Space")
    hidden = tab.page.locator("#planes").screenshot()
    assert hidden != shown
    tab.page.keyboard.press("Space")
    assert tab.page.locator("#planes").screenshot() == shown
    tab.page.keyboard.press("1")
    assert not tab.page.locator("#class-shown-1").is_checked()
    assert tab.page.locator("#planes").screenshot() != shown
    tab.page.keyboard.press("PageDown")
    second = rows.nth(1).locator(".case-name").inner_text()
    tab.wait_ready(second)
    assert second not in tab.page.url
    tab.page.reload()
    tab.wait_ready(second)
    tab.page.locator("#filter").fill("unlabeled")
    assert rows.count() == 5
    tab.page.locator("#sort").select_option("name")
    names = rows.locator(".case-name").all_inner_texts()
    assert names == sorted(names)
    assert tab.errors == []


def test_the_page_is_loaded_from_this_machine(scan: Path, start: Start, context: BrowserContext) -> None:
    tab_of(context, start("view", scan).url)
    assert requested_hosts == {"127.0.0.1"}


def test_an_address_opens_a_case(tested_run: Path, start: Start, context: BrowserContext) -> None:
    server = start("view", tested_run)
    tab = tab_of(context, server.url)
    names = tab.page.locator(".case-name").all_inner_texts()
    other = ViewerTab(context, f"{tab.origin}/?case={names[3]}")
    other.wait_ready(names[3])
    other.run("name => { location.hash = 'case=' + name }", names[5])
    other.wait_ready(names[5])


def test_the_window_is_set_by_numbers_and_by_dragging(scan: Path, start: Start, context: BrowserContext) -> None:
    tab = tab_of(context, start("view", scan).url)
    original = tab.run(f"{VIEW}.window")
    tab.page.get_by_label("Black").click(click_count=3)
    for value in ("100", "300"):
        tab.page.keyboard.type(value)
        tab.page.keyboard.press("Tab")
    assert tab.run(f"{VIEW}.window") == [100, 300]
    x, y = tab.position((10, 12, 6), AXIAL)
    tab.page.mouse.move(x, y)
    tab.page.mouse.down(button="right")
    tab.page.mouse.move(x + 30, y)
    tab.page.mouse.move(x + 60, y)
    tab.page.mouse.up(button="right")
    low, high = tab.run(f"{VIEW}.window")
    assert low < 100
    assert high > 300
    tab.page.get_by_role("button", name="Reset").click()
    assert tab.run(f"{VIEW}.window") == original


def test_the_scan_is_rendered_in_3d_when_asked_for(tested_run: Path, start: Start, context: BrowserContext) -> None:
    tab = tab_of(context, start("view", tested_run).url)
    assert tab.page.locator("#rendering").count() == 0
    tab.page.get_by_role("button", name="Render in 3-D").click()
    rendering = tab.page.locator("#rendering")
    wait_until(lambda: picture_of(rendering.screenshot())[100:-100, 100:-100].max() > 60)
    assert tab.errors == []


def test_hostile_names_are_shown_as_text(tmp_path: Path, start: Start, context: BrowserContext) -> None:
    array = np.arange(8 * 8 * 4, dtype=np.int16).reshape(8, 8, 4)
    (tmp_path / "data" / "imagesTr").mkdir(parents=True)
    (tmp_path / "data" / "labelsTr").mkdir()
    for name in ("plain", HOSTILE):
        nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / "data" / "imagesTr" / f"{name}_0000.nii.gz")
        nibabel.save(nibabel.Nifti1Image(array % 2, np.eye(4)), tmp_path / "data" / "labelsTr" / f"{name}.nii.gz")
    tab = tab_of(context, start("view", tmp_path / "data").url)
    tab.page.on("dialog", lambda dialog: tab.errors.append("a script ran"))
    tab.page.locator(".case", has_text="<img").click()
    tab.wait_ready(HOSTILE)
    assert tab.page.locator(".case img, .stage img").count() == 0
    assert HOSTILE in tab.page.locator(".cases").inner_text()
    assert tab.errors == []


def test_ctrl_c_ends_the_server_without_an_error(scan: Path, start: Start) -> None:
    process = start("view", scan).process
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert process.stdout is not None
    assert process.stdout.read() == ""


def test_a_damaged_scan_is_not_mixed_up_with_the_scan_before(scan: Path, start: Start, context: BrowserContext) -> None:
    (scan.parent / "damaged.nii.gz").write_bytes(scan.read_bytes()[:2000])
    tab = tab_of(context, start("view", scan.parent, "--case", "scan").url)
    tab.page.locator(".case", has_text="damaged").click()
    wait_until(lambda: "damaged" in tab.page.get_by_role("alert").inner_text())
    assert not tab.page.locator("#planes").is_visible()
    tab.page.locator(".case", has_text="scan").click()
    tab.wait_ready("scan")
    assert tab.page.locator("#planes").is_visible()
    assert tab.page.title() == "data – graftseg"


def test_a_flat_scan_has_one_plane(tmp_path: Path, start: Start, context: BrowserContext) -> None:
    array = np.arange(900, dtype=np.float32).reshape(30, 30)
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / "a.nii.gz")
    tab = tab_of(context, start("view", tmp_path / "a.nii.gz").url)
    assert tab.run("window.graftseg.page.details.is_2d")
    for name in ("Axial", "Coronal", "Sagittal", "All planes", "Render in 3-D"):
        assert tab.page.get_by_role("button", name=name).count() == 0
    tab.page.keyboard.press("c")
    x, y, _ = tab.voxel
    intensity = array[29 - x, 29 - y]
    assert tab.page.locator(".position").inner_text() == f"Picture · voxel {x}, {y}, 0 · intensity {intensity:g}"
    assert tab.errors == []


def test_channels_are_chosen_and_overlays_stay(tmp_path: Path, start: Start, context: BrowserContext) -> None:
    bright = ((3, 17, 8), (15, 5, 8), (10, 12, 8))
    for folder in ("imagesTr", "labelsTr"):
        (tmp_path / "data" / folder).mkdir(parents=True)
    for channel, voxel in enumerate(bright):
        image = nibabel.Nifti1Image(dark_scan(voxel), np.eye(4))
        nibabel.save(image, tmp_path / "data" / "imagesTr" / f"a_{channel:04d}.nii.gz")
    labels = np.zeros((20, 24, 12), np.uint8)
    labels[0:4, 0:4, 8] = 1
    names = {"labels": {"background": 0, "organ": 1}, "channel_names": {"0": "T1", "1": "T2", "2": "PD"}}
    (tmp_path / "data" / "dataset.json").write_text(json.dumps(names))
    nibabel.save(nibabel.Nifti1Image(labels, np.eye(4)), tmp_path / "data" / "labelsTr" / "a.nii.gz")
    tab = tab_of(context, start("view", tmp_path / "data").url)
    wait_until(lambda: tab.run("document.querySelector('.stage').dataset.layers") == "reference")
    tab.page.get_by_label("outline").first.uncheck()
    tab.run(f"{VIEW}.setCrosshairWidth(0)")
    tab.run(f"{VIEW}.setSmooth(false)")
    channels = tab.page.get_by_label("Channel")
    assert channels.locator("option").all_inner_texts() == ["1", "2", "3"]
    for shown in (0, 2, 1):
        tab.go_to(bright[shown])
        channels.select_option(index=shown)
        wait_until(partial(is_brightest, tab, bright, shown))
        assert tab.voxel == list(bright[shown])
        assert "intensity 1000" in tab.page.locator(".position").inner_text()
        assert np.ptp(tab.pixel((1, 1, 8), AXIAL).astype(int)) > 40
    assert tab.errors == []


def is_brightest(tab: ViewerTab, voxels: tuple[tuple[int, int, int], ...], number: int) -> bool:
    """Return whether a voxel is the brightest one of some voxels of the axial slice."""
    tab.run(f"{VIEW}.setWindow(0, 1000)")
    return int(np.argmax([tab.pixel(voxel, AXIAL).min() for voxel in voxels])) == number


def test_middle_slices_of_a_large_scan_are_shown_before_its_voxels(
    tmp_path: Path, start: Start, context: BrowserContext
) -> None:
    shape, middle, other = (320, 300, 140), (160, 150, 70), (40, 60, 20)
    array = np.zeros(shape, np.int16)
    marked = [(160, 100, 70), (200, 150, 70), (160, 150, 30)]
    for x, y, z in (*marked, other):
        array[x - 4 : x + 5, y - 4 : y + 5, z - 4 : z + 5] = 900
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / "large.nii.gz")
    held: list[Route] = []
    context.route("**/image.nii?*", lambda route: held.append(route))
    tab = tab_of(context, start("view", tmp_path / "large.nii.gz").url)
    tab.run(f"{VIEW}.setCrosshairWidth(0)")
    tab.run(f"{VIEW}.setWindow(0, 900)")
    assert tab.voxel == list(middle)
    assert "loading" in tab.page.locator(".position").inner_text()
    wait_until(lambda: tab.voxel and held)  # Playwright calls the handler only while it waits for the page
    assert min(tab.pixel(voxel, AXIAL).min() for voxel in marked[:2]) > 240
    assert tab.pixel(marked[2], CORONAL).min() > 240
    assert tab.pixel(marked[0], SAGITTAL).min() > 240
    assert tab.pixel((40, 60, 70), AXIAL).max() < 15
    held[0].continue_()
    tab.wait_loaded()
    assert "intensity 0" in tab.page.locator(".position").inner_text()
    tab.go_to(other)
    assert "intensity 900" in tab.page.locator(".position").inner_text()
    for plane in (AXIAL, CORONAL, SAGITTAL):
        assert tab.pixel(other, plane).min() > 240
    assert tab.errors == []
