"""A browser that is killed while it draws: strokes older than the autosave interval are not lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Error
from viewer_browser import CHROMIUM, SOFTWARE_GL, Start, ViewerTab, wait_until

pytestmark = [pytest.mark.web, pytest.mark.slow]

WAITING = """() => new Promise(done => {
  indexedDB.open("graftseg").onsuccess = opened => {
    const all = opened.target.result.transaction("strokes").objectStore("strokes").count();
    all.onsuccess = () => done(all.result);
  };
})"""
"""Return the number of strokes in the database of the browser."""


class KilledBrowser:
    """A browser with a profile on disk, which can be killed and started again."""

    def __init__(self, driver: Browser, profile: Path) -> None:
        self._driver, self._profile = driver, profile
        self.context = self.start()

    def start(self) -> BrowserContext:
        """Start a browser with the profile."""
        self.context = self._driver.browser_type.launch_persistent_context(
            self._profile, executable_path=CHROMIUM, args=SOFTWARE_GL, viewport={"width": 1280, "height": 800}
        )
        return self.context

    def kill(self) -> None:
        """Send SIGKILL to all processes that use the profile."""
        option = f"--user-data-dir={self._profile}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if option in (folder / "cmdline").read_bytes().split(b"\0"):
                    os.kill(int(folder.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue
        for lock in self._profile.glob("Singleton*"):
            lock.unlink()


@pytest.fixture
def browser(chromium: Browser, tmp_path: Path) -> Iterator[KilledBrowser]:
    killed = KilledBrowser(chromium, tmp_path / "profile")
    yield killed
    try:
        killed.context.close()
    except Error:
        killed.kill()


def opened(context: BrowserContext, url: str) -> ViewerTab:
    tab = ViewerTab(context, url)
    tab.wait_ready()
    tab.wait_writable()
    tab.set_brush(1)
    return tab


def test_no_saved_stroke_is_lost(tested_run: Path, data: Path, start: Start, browser: KilledBrowser) -> None:
    server = start("annotate", tested_run, "--data", data)
    tab = opened(browser.context, server.url)
    name, z = tab.case_name, tab.voxel[2]
    tab.page.keyboard.press("2")
    expected = tab.draft()
    tab.draw((2, 2, z), (6, 2, z))
    tab.wait_saved()
    browser.context.route("**/strokes?*", lambda route: route.abort())
    tab.draw((2, 6, z), (6, 6, z))
    tab.press((2, 10, z), (6, 10, z))  # the button stays pressed
    wait_until(lambda: tab.run(WAITING) == 2)
    tab.page.mouse.move(*tab.position((9, 10, z), 0))
    browser.kill()
    again = opened(browser.start(), f"{server.url}&case={name}")
    expected[2:7, [2, 6, 10], z] = 2
    recovered = again.draft()
    recovered[7:10, 10, z] = expected[7:10, 10, z]  # drawn less than the autosave interval before the end
    assert np.array_equal(recovered, expected)
    again.wait_saved()
    assert np.array_equal(again.saved_draft(), again.draft())
