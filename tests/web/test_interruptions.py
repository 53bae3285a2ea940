"""Killed tabs, killed servers and second tabs: no stroke is lost or stored twice."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext
from viewer_browser import ServerProcess, Start, ViewerTab, wait_until

pytestmark = [pytest.mark.web, pytest.mark.slow]


@pytest.fixture
def server(tested_run: Path, data: Path, start: Start) -> ServerProcess:
    return start("annotate", tested_run, "--data", data)


def opened(context: BrowserContext, url: str, writable: bool = True) -> ViewerTab:
    tab = ViewerTab(context, url)
    tab.wait_ready()
    tab.wait_writable(writable)
    if writable:
        tab.set_brush(3)
    return tab


def test_a_reloaded_page_shows_the_saved_drawing(server: ServerProcess, context: BrowserContext) -> None:
    tab = opened(context, server.url)
    z = tab.voxel[2]
    tab.draw((3, 3, z), (10, 10, z))
    drawn = tab.draft()
    tab.wait_saved()
    tab.page.reload()
    tab.wait_ready()
    tab.wait_writable()
    assert np.array_equal(tab.draft(), drawn)


def test_strokes_of_a_killed_tab_are_recovered(server: ServerProcess, context: BrowserContext) -> None:
    tab = opened(context, server.url)
    name, z, start = tab.case_name, tab.voxel[2], tab.draft()
    tab.draw((2, 2, z), (6, 2, z))
    tab.wait_saved()
    context.route("**/strokes?*", lambda route: route.abort())
    tab.draw((2, 6, z), (6, 6, z))
    tab.draw((2, 10, z), (6, 10, z))
    drawn = tab.draft()
    wait_until(lambda: tab.save_state == "offline: 2 strokes wait, retrying")
    assert not np.array_equal(tab.saved_draft(), drawn)
    tab.press((10, 2, z), (13, 2, z))
    tab.page.close(run_before_unload=False)
    context.unroute("**/strokes?*")
    again = opened(context, f"{server.url}&case={name}")
    assert np.array_equal(again.draft(), drawn)
    again.wait_saved()
    assert np.array_equal(again.saved_draft(), drawn)
    assert not np.array_equal(start, drawn)


def test_strokes_wait_for_a_killed_server(server: ServerProcess, context: BrowserContext) -> None:
    tab = opened(context, server.url)
    z = tab.voxel[2]
    tab.draw((2, 2, z), (6, 2, z))
    tab.wait_saved()
    url = server.url
    server.kill()
    tab.draw((2, 6, z), (6, 6, z))
    tab.draw((2, 10, z), (6, 10, z))
    tab.page.keyboard.press("Control+z")
    wait_until(lambda: tab.save_state == "offline: 3 strokes wait, retrying")
    drawn = tab.draft()
    server.start()
    assert server.url == url
    tab.wait_saved()
    assert np.array_equal(tab.saved_draft(), drawn)
    tab.draw((10, 10, z), (12, 10, z))
    tab.wait_saved()
    assert np.array_equal(tab.saved_draft(), tab.draft())


def test_a_lost_answer_does_not_store_a_stroke_twice(server: ServerProcess, context: BrowserContext) -> None:
    tab = opened(context, server.url)
    z = tab.voxel[2]
    lost: list[int] = []

    def lose_answer(route):  # type: ignore[no-untyped-def]
        if lost:
            route.continue_()
            return
        lost.append(route.fetch().status)
        route.abort()

    context.route("**/strokes?*", lose_answer)
    tab.draw((2, 2, z), (6, 2, z))
    tab.draw((2, 6, z), (6, 6, z))
    tab.wait_saved()
    assert lost == [200]
    assert np.array_equal(tab.saved_draft(), tab.draft())


def test_a_second_tab_is_read_only_and_takes_over(server: ServerProcess, context: BrowserContext) -> None:
    first = opened(context, server.url)
    name, z = first.case_name, first.voxel[2]
    second = opened(context, f"{first.origin}/?case={name}", writable=False)
    assert "open in another tab" in second.page.locator(".stage").inner_text()
    assert second.page.get_by_role("button", name="Accept").is_disabled()
    before = second.draft()
    second.draw((3, 3, z), (8, 8, z))
    assert np.array_equal(second.draft(), before)
    first.draw((3, 9, z), (9, 9, z))
    first.wait_saved()
    wait_until(lambda: np.array_equal(second.draft(), first.draft()))
    drawn = first.draft()
    first.page.close()
    second.wait_writable()
    assert np.array_equal(second.draft(), drawn)
    second.set_brush(3)
    second.draw((3, 3, z), (8, 3, z))
    second.wait_saved()
    assert np.array_equal(second.saved_draft(), second.draft())


def test_closing_warns_only_while_strokes_wait(server: ServerProcess, context: BrowserContext) -> None:
    tab = opened(context, server.url)
    z = tab.voxel[2]
    asked: list[str] = []

    def answer(dialog: Any) -> None:
        asked.append(dialog.type)
        dialog.accept()

    tab.page.on("dialog", answer)
    tab.draw((3, 3, z), (8, 8, z))
    tab.wait_saved()
    tab.page.reload()
    tab.wait_ready()
    tab.wait_writable()
    assert asked == []
    context.route("**/strokes?*", lambda route: route.abort())
    tab.draw((8, 3, z), (3, 8, z))
    tab.page.reload()
    assert asked == ["beforeunload"]
