"""The page of a training in Chromium: curves grow, and the report is linked at the end."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import BrowserContext
from tiny import recipe_tree, write_scans
from viewer_browser import AXE, Start, ViewerTab, wait_until

pytestmark = [pytest.mark.web, pytest.mark.slow]


def test_curves_grow_until_the_report(tmp_path: Path, start: Start, context: BrowserContext) -> None:
    training, run = start_training(tmp_path, 1500), tmp_path / "run"
    try:
        wait_until(lambda: (run / "run.json").is_file() or training.poll() is not None, 120)
        assert training.poll() is None, training.communicate()[0]
        tab = ViewerTab(context, start("view", run).url)
        first = wait_until(lambda: points(tab), 60)
        wait_until(lambda: points(tab) > first, 60)
        assert "Training" in tab.page.locator(".status").inner_text()
        assert "steps per second" in tab.page.locator(".tiles").inner_text()
        wait_until(lambda: tab.page.locator(".pictures img").count() > 0, 120)
        assert tab.run("[...document.querySelectorAll('.pictures img')].every(image => image.alt !== '')")
        assert problems_in_all_sizes(tab) == {}
        wait_until(lambda: tab.page.get_by_role("link", name="Open the report").count() == 1, 240)
        assert problems_in_all_sizes(tab) == {}
        assert "Finished" in tab.page.locator(".status").inner_text()
        tab.page.get_by_role("button", name="Scans").click()
        tab.wait_ready()
        assert tab.errors == []
    finally:
        training.kill()
        training.communicate()


def test_the_page_of_a_training_ends_with_the_report(tmp_path: Path, context: BrowserContext) -> None:
    training = start_training(tmp_path, 300, "--live")
    try:
        assert training.stdout is not None
        address = next(match.group() for line in training.stdout if (match := re.search(r"http://\S+", line)))
        tab = ViewerTab(context, address)
        tab.page.wait_for_url("**/report", timeout=120_000)
        assert "graftseg report" in tab.page.content()
        assert training.wait() == 0
        assert tab.errors == []
    finally:
        training.kill()
        training.communicate()


def start_training(folder: Path, steps: int, *options: str) -> "subprocess.Popen[str]":
    """Train a tiny recipe on phantoms in ``folder/run``."""
    tree = recipe_tree(2)
    tree["stages"][1]["steps"] = steps
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tree))
    data = write_scans(folder / "scans", 2)
    command = [sys.executable, "-m", "graftseg", "train", str(folder / "recipe.yaml"), "--data", str(data)]
    command += ["--out", str(folder / "run"), "--device", "cpu", *options]
    environment = os.environ | {"BROWSER": "true"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def problems_in_all_sizes(tab: ViewerTab) -> dict[tuple[str, int], list[str]]:
    """Return the findings of axe-core in light and dark, wide and narrow, and pages that are too wide."""
    if not AXE.is_file():
        return {}
    problems: dict[tuple[str, int], list[str]] = {}
    for scheme in ("dark", "light"):
        for width in (800, 1280):
            tab.page.emulate_media(color_scheme=scheme)
            tab.page.set_viewport_size({"width": width, "height": 800})
            problems[scheme, width] = tab.accessibility_problems()
            if not tab.run("document.documentElement.scrollWidth <= innerWidth"):
                problems[scheme, width].append("too wide")
    return {key: value for key, value in problems.items() if value}


def points(tab: ViewerTab) -> int:
    """Return the number of points of the first curve."""
    return int(tab.run("document.querySelector('.means')?.getAttribute('points').split(' ').length ?? 0"))
