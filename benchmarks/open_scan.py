"""Measure how fast ``graftseg view`` shows a CT of 512 x 512 x 300 voxels, stored as .nii and as .nii.gz, in turn.

Three times count from the request of the page: the slices are drawn, the page answers to a key, all voxels are loaded.
The CPU seconds of the server show where the time goes if other programs use the same cores. Needs the built front end
(``make web``), Playwright and Chromium.
"""

import argparse
import contextlib
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic

import nibabel
import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

SOFTWARE_GL = ["--enable-unsafe-swiftshader", "--use-angle=swiftshader", "--ignore-gpu-blocklist"]
STAGE = "document.querySelector('.stage')?.dataset"
DRAWN = """() => {
  const view = window.graftseg.page.stage.view;
  view.gl.readPixels(0, 0, 1, 1, view.gl.RGBA, view.gl.UNSIGNED_BYTE, new Uint8Array(4));
  return performance.now() / 1000;
}"""
"""Wait until the GPU, or the program that replaces it, has drawn everything, and return the age of the page."""
NAMES = ("command to address", "drawn", "interactive", "complete", "server CPU", "browser CPU")


def main() -> None:
    """Print the median times and the ratios of .nii.gz to .nii."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slices", type=int, default=300)
    arguments = parser.parse_args()
    times: dict[str, list[tuple[float, ...]]] = {"ct.nii": [], "ct.nii.gz": []}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        write_ct(Path(folder), arguments.slices)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=SOFTWARE_GL)
        for _ in range(arguments.rounds):
            for name, found in times.items():
                found.append(open_once(browser, Path(folder) / name))
                print(name, "  ".join(f"{what} {value:.2f} s" for what, value in zip(NAMES, found[-1], strict=True)))
        browser.close()
    plain, packed = (np.median(found, axis=0) for found in times.values())
    for what, one, other in zip(NAMES, plain, packed, strict=True):
        print(f"{what:20} .nii {one:6.2f} s   .nii.gz {other:6.2f} s   ratio {other / one:.2f}")
    print(f"smallest time to all voxels of .nii.gz: {min(found[3] for found in times['ct.nii.gz']):.2f} s")
    print(f"median share of the server in it: {median(one[4] / one[3] for one in times['ct.nii.gz']):.2f}")


def write_ct(folder: Path, slices: int) -> None:
    """Write a body with lungs, a spine and noise. It compresses to about 40 %, as a CT does."""
    random = np.random.default_rng(0)
    x, y = np.meshgrid(np.linspace(-1, 1, 512), np.linspace(-1, 1, 512), indexing="ij")
    voxels = np.empty((512, 512, slices), np.int16, order="F")
    body = x**2 / 0.7 + y**2 / 0.45 < 1
    for index, z in enumerate(np.linspace(-1, 1, slices)):
        plane = np.where(body, 40.0, -1000.0)
        plane[((np.abs(x) - 0.35) ** 2 / 0.06 + y**2 / 0.12 + z**2 / 0.6) < 1] = -800
        plane[x**2 + (y - 0.4) ** 2 < 0.02] = 700
        plane += random.standard_normal(plane.shape) * np.where(body, 14, 2)
        voxels[:, :, index] = np.clip(plane, -1024, 3000).round()
    nibabel.save(nibabel.Nifti1Image(voxels, np.diag([-0.7, -0.7, 1.0, 1.0])), folder / "ct.nii")
    with gzip.GzipFile(folder / "ct.nii.gz", "wb", 6) as stream:
        stream.write((folder / "ct.nii").read_bytes())


def open_once(browser: Browser, path: Path) -> tuple[float, ...]:
    """Start a server, open its page, and return the times in the order of ``NAMES``."""
    began = monotonic()
    command = [sys.executable, "-m", "graftseg", "view", str(path), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    address = next(found.group() for line in server.stdout if (found := re.search(r"http://\S+", line)))
    started, before = monotonic() - began, cpu_seconds(server.pid)
    browser_before = browser_cpu_seconds(server.pid)
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    page.goto(address)
    wait(page, f"{STAGE}?.state === 'ready'")
    drawn = page.evaluate(DRAWN)
    page.keyboard.press("ArrowUp")
    interactive = page.evaluate(DRAWN)
    wait(page, f"({STAGE}?.voxels ?? 'complete') === 'complete'")
    complete = page.evaluate(DRAWN)
    used = cpu_seconds(server.pid) - before
    used_by_browser = browser_cpu_seconds(server.pid) - browser_before
    context.close()
    server.kill()
    server.communicate()
    return started, drawn, interactive, complete, used, used_by_browser


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process and its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def browser_cpu_seconds(server: int) -> float:
    """Return the CPU time of all processes that this program has started, without the server."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sum(map(cpu_seconds, found - {os.getpid(), server}))


def wait(page: Page, condition: str) -> None:
    """Wait for a condition. The policy of the page does not allow Playwright's own waiting."""
    while not page.evaluate(condition):
        page.wait_for_timeout(20)


if __name__ == "__main__":
    main()
