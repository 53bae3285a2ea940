"""Fixtures of the tests in Chromium. They are skipped where Chromium, Playwright or the built page is missing."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright
from tiny import tiny_recipe, write_scans
from viewer_browser import CHROMIUM, SOFTWARE_GL, ServerProcess, Start, requested_hosts

import graftseg

STATIC = Path(graftseg.__file__).parent / "reporting/viewer/static/index.html"


@pytest.fixture(autouse=True)
def no_other_hosts() -> Iterator[None]:
    """Fail a test whose pages send a request to another machine."""
    requested_hosts.clear()
    yield
    assert requested_hosts <= {"127.0.0.1"}


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """Return a browser."""
    if not STATIC.is_file():
        pytest.skip("the page of the viewer has not been built: run make web")
    if not CHROMIUM:
        pytest.skip("Chromium is not installed")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=SOFTWARE_GL)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def tested_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny tested run. Its scans are in the folder ``scans`` next to it. Tests do not change it."""
    folder = tmp_path_factory.mktemp("web")
    write_scans(folder / "scans", 3)
    run = folder / "run"
    graftseg.train(tiny_recipe(3), folder / "scans", run, device="cpu")
    graftseg.predict(run, folder / "scans" / "imagesTs", run / "predictions", uncertainty=True, device="cpu")
    graftseg.evaluate(run / "predictions", folder / "scans" / "labelsTs")
    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a server, which is killed after the test."""
    servers: list[ServerProcess] = []

    def begin(*words: str | Path) -> ServerProcess:
        servers.append(ServerProcess(*words))
        return servers[-1]

    yield begin
    for server in servers:
        server.kill()


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    """Return a browser window without cookies."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    yield context
    context.close()


@pytest.fixture
def data(tested_run: Path, tmp_path: Path) -> Path:
    """Return a copy of the scans, because annotation changes them."""
    return Path(shutil.copytree(tested_run.parent / "scans", tmp_path / "scans"))
