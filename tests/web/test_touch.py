"""Drawing with a finger."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, CDPSession
from viewer_browser import AXIAL, Start, ViewerTab, Voxel

pytestmark = [pytest.mark.web, pytest.mark.slow]


@pytest.fixture
def tab(tested_run: Path, data: Path, start: Start, chromium: Browser) -> Iterator[ViewerTab]:
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, has_touch=True)
    tab = ViewerTab(context, start("annotate", tested_run, "--data", data).url)
    tab.wait_ready()
    tab.wait_writable()
    tab.set_brush(1)
    yield tab
    context.close()


def touch(tab: ViewerTab, session: CDPSession, kind: str, *voxels: Voxel) -> None:
    """Send a touch event with a finger on each voxel of the axial slice."""
    places = [tab.position(voxel, AXIAL) for voxel in voxels]
    points = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
    session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def test_a_finger_draws_and_a_second_finger_does_not(tab: ViewerTab) -> None:
    session = tab.page.context.new_cdp_session(tab.page)
    z = tab.voxel[2]
    expected = tab.draft()
    tab.page.keyboard.press("2")
    touch(tab, session, "touchStart", (3, 4, z))
    touch(tab, session, "touchMove", (9, 4, z))
    touch(tab, session, "touchStart", (9, 4, z), (2, 12, z))
    touch(tab, session, "touchMove", (9, 7, z), (6, 12, z))
    touch(tab, session, "touchEnd")
    expected[3:10, 4, z] = 2
    expected[9, 4:8, z] = 2
    assert np.array_equal(tab.draft(), expected)
    assert tab.voxel[2] == z
    tab.wait_saved()
    assert np.array_equal(tab.saved_draft(), expected)
    tab.page.touchscreen.tap(*tab.position((13, 2, z), AXIAL))
    expected[13, 2, z] = 2
    assert np.array_equal(tab.draft(), expected)
    assert tab.errors == []
