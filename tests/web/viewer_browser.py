"""A server of the viewer in a process of its own, and its page in Chromium."""

import io
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nibabel
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import BrowserContext, Page, Request

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
"""Chromium of the system. Playwright's own download is not used."""
SOFTWARE_GL = ["--enable-unsafe-swiftshader", "--use-angle=swiftshader", "--ignore-gpu-blocklist"]
"""Options that draw WebGL without a GPU."""
AXE = Path(__file__).parents[2] / "web/node_modules/axe-core/axe.min.js"
VIEW = "window.graftseg.page.stage.view"
AXIAL, CORONAL, SAGITTAL = 0, 1, 2
Voxel = tuple[int, int, int]
requested_hosts = set[str]()
"""All hosts that the pages of a test sent requests to."""


class ServerProcess:
    """A viewer that can be killed and started again."""

    def __init__(self, *words: str | Path) -> None:
        self.command = [sys.executable, "-m", "graftseg", *map(str, words), "--no-browser"]
        self.url = ""
        self.start()

    def start(self) -> None:
        """Start the server and wait for its address."""
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        printed = []
        for line in self.process.stdout:
            printed.append(line)
            if match := re.search(r"http://127\.0\.0\.1:\d+/\S*", line):
                self.url = match.group()
                return
        raise AssertionError(f"the server did not start: {''.join(printed)}")

    def kill(self) -> None:
        """End the server at once, as a crash does."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def wait_until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait for a true value and return it. Playwright's own waiting is not allowed by the policy of the page."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "the page does not get there"
        time.sleep(0.05)
    return value


def picture_of(png: bytes) -> NDArray[np.uint8]:
    """Return the pixels of a screenshot."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))


def record_host(request: Request) -> None:
    """Remember the host of a request over the network."""
    address = urlsplit(request.url)
    if address.scheme not in ("data", "blob"):
        requested_hosts.add(address.hostname or request.url)


class ViewerTab:
    """A tab of the viewer."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.errors: list[str] = []
        context.on("request", record_host)
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.page.goto(url)

    def run(self, script: str, value: Any = None) -> Any:
        """Return the value of a script in the page."""
        return self.page.evaluate(script, value)

    def wait_ready(self, name: str = "") -> None:
        """Wait until a case is shown."""
        state = "document.querySelector('.stage')?.dataset.state"
        wait_until(lambda: self.run(state) == "ready" and (not name or self.case_name == name))

    def wait_loaded(self) -> None:
        """Wait until all voxels of the scan are there."""
        wait_until(lambda: self.run("document.querySelector('.stage').dataset.voxels") == "complete")

    def wait_writable(self, writable: bool = True) -> None:
        """Wait until this tab may draw, or may not."""
        expected = "true" if writable else "false"
        wait_until(lambda: self.run("document.querySelector('.stage')?.dataset.writable") == expected)

    @property
    def case_name(self) -> str:
        """Name of the shown case."""
        return str(self.run("window.graftseg?.page.details?.name ?? ''"))

    @property
    def voxel(self) -> list[int]:
        """Voxel under the crosshair."""
        voxel: list[int] = self.run(f"{VIEW}.voxel")
        return voxel

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the shown scan."""
        return tuple(self.run(f"[...{VIEW}.shape]"))

    def position(self, voxel: Voxel, plane: int) -> tuple[float, float]:
        """Return the place of a voxel on the page, on the slice of a plane."""
        x, y = self.run(f"([voxel, plane]) => {VIEW}.positionOf(voxel, plane)", [list(voxel), plane])
        box = self.page.locator("#planes").bounding_box()
        assert box is not None
        return box["x"] + x, box["y"] + y

    def go_to(self, voxel: Voxel) -> None:
        """Move the crosshair."""
        self.run(f"voxel => {VIEW}.goTo(voxel)", list(voxel))

    def pixel(self, voxel: Voxel, plane: int) -> NDArray[np.uint8]:
        """Return the color in the middle of a voxel on the slice of a plane."""
        x, y = self.position(voxel, plane)
        return np.asarray(picture_of(self.page.screenshot())[round(y), round(x)])

    def draw(self, *voxels: Voxel, plane: int = AXIAL) -> None:
        """Press the left button on the first voxel, move to the others, and release it."""
        self.press(*voxels, plane=plane)
        self.page.mouse.up()

    def press(self, *voxels: Voxel, plane: int = AXIAL) -> None:
        """Press the left button on the first voxel and move to the others."""
        self.page.mouse.move(*self.position(voxels[0], plane))
        self.page.mouse.down()
        for voxel in voxels[1:]:
            self.page.mouse.move(*self.position(voxel, plane))

    def correct(self, truth: NDArray[np.uint8]) -> None:
        """Draw every row of an axial slice that differs from ``truth``, each class with the brush of one voxel."""
        self.set_brush(1)
        draft, z = self.draft(), self.voxel[2]
        for value in np.unique(truth[:, :, z]).tolist():
            for key in (str(value), "b") if value else "e":
                self.page.keyboard.press(key)
            for y in range(truth.shape[1]):
                wrong = np.flatnonzero((truth[:, y, z] == value) & (draft[:, y, z] != value))
                for run in np.split(wrong, np.flatnonzero(np.diff(wrong) > 1) + 1):
                    if run.size:
                        self.draw((int(run[0]), y, z), (int(run[-1]), y, z))

    def set_brush(self, size: int) -> None:
        """Set the size of the brush."""
        self.page.locator("#brush-size").fill(str(size))

    @property
    def save_state(self) -> str:
        """Words about saving in the header."""
        return str(self.page.locator(".save").inner_text())

    def wait_saved(self) -> None:
        """Wait until the server has confirmed all strokes."""
        wait_until(lambda: self.save_state == "saved")

    def draft(self) -> NDArray[np.uint8]:
        """Return the drawing in the page."""
        values = self.run("Array.from(window.graftseg.annotation.draft.labels)")
        return np.asarray(values, np.uint8).reshape(self.shape, order="F")

    def saved_draft(self) -> NDArray[np.uint8]:
        """Return the drawing that the server has."""
        return self.labels("draft")

    def labels(self, layer: str) -> NDArray[np.uint8]:
        """Return a label map of the shown case from the server."""
        number = self.run("window.graftseg.page.details.id")
        answer = self.page.request.get(f"{self.origin}/api/cases/{number}/{layer}.nii")
        assert answer.ok
        return np.asarray(nibabel.Nifti1Image.from_bytes(answer.body()).dataobj)

    def accessibility_problems(self) -> list[str]:
        """Return serious and critical findings of axe-core."""
        self.run(AXE.read_text(encoding="utf-8"))
        violations: list[dict[str, Any]] = self.run("axe.run().then(result => result.violations)")
        return [
            f"{violation['id']}: {node['target']} {node['failureSummary']}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]

    @property
    def origin(self) -> str:
        """Address of the server."""
        return str(self.run("location.origin"))


Start = Callable[..., ServerProcess]
"""A function that starts a server."""
Open = Callable[[str], ViewerTab]
"""A function that opens an address in a new tab."""
