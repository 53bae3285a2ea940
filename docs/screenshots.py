"""Take the screenshots of the annotation tutorial: ``PYTHONPATH=tests/web python docs/screenshots.py demo``.

Needs the demo (``make demo``), the page (``make web``), Playwright, Chromium and Pillow. The script corrects a scan of
the demo with its true label map, as the tutorial tells a reader to do, and continues the training. So use a demo that
you do not need any more.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright
from viewer_browser import CHROMIUM, SOFTWARE_GL, ServerProcess, ViewerTab, wait_until

from graftseg.data.phantom import make_phantom
from graftseg.data.scans import read_scan
from graftseg.reporting.viewer.volumes import Turn

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from playwright.sync_api import BrowserContext, Page

IMAGES = Path(__file__).parent / "images"
SHAPE, SHIFT, SEED = (64, 64), 0.8, 0
"""Settings of the phantoms of the demo."""
COLORS = 128
"""Number of colors of a screenshot. It keeps the files small."""


def main() -> None:
    """Take all screenshots in the order of the tutorial."""
    demo = Path(sys.argv[1])
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=SOFTWARE_GL)
        context = browser.new_context(viewport={"width": 1280, "height": 720}, color_scheme="light")
        show_run(context, demo)
        correct(context, demo)
        continue_training(context, demo)
        browser.close()


def show_run(context: BrowserContext, demo: Path) -> None:
    """Show the test scan with the lowest Dice."""
    server = ServerProcess("view", demo / "bcp")
    tab = ViewerTab(context, server.url)
    tab.wait_ready()
    wait_until(lambda: len(tab.run("document.querySelector('.stage').dataset.layers").split()) >= 2)
    save(tab.page, "loop-view")
    server.kill()


def correct(context: BrowserContext, demo: Path) -> None:
    """Correct the first suggested scan."""
    server = ServerProcess("annotate", demo / "bcp")
    tab = ViewerTab(context, server.url)
    tab.wait_ready()
    tab.wait_writable()
    save(tab.page, "loop-before")
    tab.correct(truth_of(demo, tab.case_name))
    tab.page.mouse.move(0, 0)
    tab.wait_saved()
    save(tab.page, "loop-after")
    name = tab.case_name
    tab.page.get_by_role("button", name="Accept").click()
    wait_until(lambda: tab.case_name != name)
    server.kill()


def truth_of(demo: Path, name: str) -> NDArray[np.uint8]:
    """Return the true label map of an unlabeled phantom as the page shows it."""
    phantom = make_phantom(SEED, "unlabeled", int(name.rpartition("_")[2]), SHAPE, SHIFT)
    scan = read_scan(demo / "scans" / "imagesUn" / f"{name}_0000.nii.gz")
    return np.asarray(Turn.of(scan.geometry).to_volume(np.asarray(phantom.label)), np.uint8)


def continue_training(context: BrowserContext, demo: Path) -> None:
    """Continue the training with the live page, and show the gain in the report."""
    command = [sys.executable, "-m", "graftseg", "train", "--continue-from", str(demo / "bcp")]
    command += ["--out", str(demo / "bcp-2"), "--live"]
    environment = os.environ | {"BROWSER": "true"}
    training = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - our command
    assert training.stdout is not None
    address = next(found.group() for line in training.stdout if (found := re.search(r"http://\S+", line)))
    tab = ViewerTab(context, address)
    wait_until(lambda: tab.run("(document.querySelector('progress')?.position ?? 0) > 0.6"), 900)
    save(tab.page, "loop-live")
    training.communicate()
    server = ServerProcess("view", demo / "bcp-2")
    tab = ViewerTab(context, server.url)
    tab.wait_ready()
    tab.page.goto(f"{tab.origin}/report")
    tab.page.wait_for_load_state()
    save(tab.page, "loop-report")
    server.kill()


def save(page: Page, name: str) -> None:
    """Save a screenshot with few colors."""
    page.wait_for_timeout(500)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        IMAGES / f"{name}.png", optimize=True
    )


if __name__ == "__main__":
    main()
