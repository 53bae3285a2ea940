"""Accessibility of all pages by axe-core, in light and dark, wide and narrow."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser
from tiny import tiny_recipe
from viewer_browser import AXE, Start, ViewerTab, wait_until

import graftseg

pytestmark = [pytest.mark.web, pytest.mark.slow]


@pytest.mark.parametrize("mode", ["view", "annotate"])
def test_no_serious_finding(
    mode: str, tested_run: Path, data: Path, start: Start, chromium: Browser, tmp_path: Path
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run make web")
    server = start("view", tested_run) if mode == "view" else start("annotate", tested_run, "--data", data)
    problems = {}
    for scheme in ("light", "dark"):
        context = chromium.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
        tab = ViewerTab(context, server.url)
        tab.wait_ready()
        if mode == "annotate" and scheme == "light":
            tab.wait_writable()
        for width in (1280, 800):
            tab.page.set_viewport_size({"width": width, "height": 800})
            problems[scheme, str(width)] = tab.accessibility_problems()
            tab.page.screenshot(path=tmp_path / f"{mode}-{scheme}-{width}.png")
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), f"{scheme}, {width} px: too wide"
        tab.page.keyboard.press("?")
        problems[scheme, "help"] = tab.accessibility_problems()
        tab.page.keyboard.press("Escape")
        tab.page.get_by_role("button", name="Render in 3-D").click()
        wait_until(tab.page.locator("#rendering").is_visible)
        problems[scheme, "rendering"] = tab.accessibility_problems()
        if mode == "annotate":
            tab.wait_writable()
            for name in ("Start over", "Reject"):
                tab.page.get_by_role("button", name=name).click()
                assert tab.page.get_by_role("heading", name=name).is_visible()
                problems[scheme, name] = tab.accessibility_problems()
                tab.page.screenshot(path=tmp_path / f"{mode}-{scheme}-{name}.png")
                tab.page.keyboard.press("Escape")
        context.close()
    assert {key: value for key, value in problems.items() if value} == {}


@pytest.mark.parametrize("kind", ["run", "folds"])
def test_no_serious_finding_in_reports(
    kind: str, tested_run: Path, start: Start, chromium: Browser, tmp_path: Path
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run make web")
    run = tested_run if kind == "run" else train_folds(tested_run.parent / "scans", tmp_path / "run")
    server = start("view", run)
    problems = {}
    for scheme in ("light", "dark"):
        context = chromium.new_context(color_scheme=scheme)
        tab = ViewerTab(context, server.url)
        tab.wait_ready()
        name = tab.case_name
        tab.page.goto(f"{tab.origin}/report")
        for width in (1280, 800):
            tab.page.set_viewport_size({"width": width, "height": 800})
            problems[scheme, str(width)] = tab.accessibility_problems()
            tab.page.screenshot(path=tmp_path / f"report-{scheme}-{width}.png")
        tab.page.get_by_role("link", name=name, exact=True).first.click()
        tab.wait_ready(name)
        context.close()
    assert {key: value for key, value in problems.items() if value} == {}


def train_folds(scans: Path, run: Path) -> Path:
    """Train two folds of a tiny recipe."""
    graftseg.train_folds(tiny_recipe(3), scans, run, folds=2, device="cpu")
    return run


def test_all_controls_are_reached_by_the_tab_key(tested_run: Path, start: Start, chromium: Browser) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    tab = ViewerTab(context, start("view", tested_run).url)
    tab.wait_ready()
    controls = "a, button, input, select, canvas, [tabindex='0']"
    usable = "node => node.checkVisibility() && !node.disabled"
    expected = tab.run(f'[...document.querySelectorAll("{controls}")].filter({usable}).length')
    tab.run("window.reached = new Set()")
    for _ in range(expected + 5):
        tab.page.keyboard.press("Tab")
        tab.run("if (document.activeElement !== document.body) window.reached.add(document.activeElement)")
    assert tab.run("window.reached.size") == expected
    context.close()
