"""The page of a training in Chromium: curves grow, and the report is linked at the end."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from playwright.sync_api import BrowserContext
from tiny import recipe_tree, write_scans
from viewer_browser import ServerProcess, ViewerTab, wait_until

pytestmark = [pytest.mark.web, pytest.mark.slow]


def test_curves_grow_until_the_report(tmp_path: Path, context: BrowserContext) -> None:
    tree = recipe_tree(2)
    tree["stages"][1]["steps"] = 1500
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tree))
    data, run = write_scans(tmp_path / "scans", 2), tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "graftseg",
        "train",
        str(tmp_path / "recipe.yaml"),
        "--data",
        str(data),
        "--out",
        str(run),
    ]
    training = subprocess.Popen([*command, "--device", "cpu"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: (run / "run.json").is_file() or training.poll() is not None, 120)
        assert training.poll() is None, training.communicate()[0].decode()
        server = ServerProcess("view", run)
        tab = ViewerTab(context, server.url)
        first = wait_until(lambda: points(tab), 60)
        wait_until(lambda: points(tab) > first, 60)
        assert "Training" in tab.page.locator(".status").inner_text()
        assert "steps per second" in tab.page.locator(".tiles").inner_text()
        wait_until(lambda: tab.page.locator(".pictures img").count() > 0, 120)
        assert tab.run("[...document.querySelectorAll('.pictures img')].every(one => one.alt !== '')")
        wait_until(lambda: tab.page.get_by_role("link", name="Open the report").count() == 1, 240)
        assert "Finished" in tab.page.locator(".status").inner_text()
        tab.page.get_by_role("button", name="Scans").click()
        tab.wait_ready()
        assert tab.errors == []
        server.kill()
    finally:
        training.kill()
        training.communicate()


def points(tab: ViewerTab) -> int:
    """Return the number of points of the first curve."""
    return int(tab.run("document.querySelector('.means')?.getAttribute('points').split(' ').length ?? 0"))
