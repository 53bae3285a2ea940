"""Fixtures that several test files share."""

from functools import lru_cache
from pathlib import Path

import pytest
import tiny
import torch
from command_line import CommandLine
from hypothesis import settings

import graftseg.experiments.sweep
import graftseg.recipes.reading
import graftseg.recipes.shortening
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store
from graftseg.reporting import pictures
from record_fakes import ship_rows
from sweep_fakes import Sweeper, ship_swept

# tests run in parallel, and thread synchronization makes tiny networks slow
torch.set_num_threads(1)
# tests that need more examples say so
settings.register_profile("short", max_examples=40, deadline=None)
settings.load_profile("short")
# tests read and write many recipes, and should not parse the shipped recipes again and again
graftseg.recipes.reading._parse = lru_cache(maxsize=4096)(graftseg.recipes.reading._parse.__wrapped__)
# fine label layers take half of the time of a report; the fixture ``fine_layers`` restores their size
LAYER_SIDE, pictures.LAYER_SIDE = pictures.LAYER_SIDE, 48


@pytest.fixture(autouse=True)
def _forget_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show warnings again that are shown once per process."""
    monkeypatch.setattr(graftseg.recipes.shortening, "_warned", set())


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of small 2-D phantoms; tests do not change it."""
    return tiny.write_scans(tmp_path_factory.mktemp("scans"))


@pytest.fixture(scope="session")
def store(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return the prepared phantoms; tests do not change them."""
    return prepare(read_layout(scans), tmp_path_factory.mktemp("stores") / "store", tiny.tiny_recipe().data)


@pytest.fixture(scope="session")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Return a store of small 3-D phantoms; tests do not change it."""
    scans = tiny.write_scans(tmp_path_factory.mktemp("volumes"), 3)
    return prepare(read_layout(scans), tmp_path_factory.mktemp("volume-stores") / "store", tiny.tiny_recipe(3).data)


@pytest.fixture
def fine_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw label layers as large as in a user's report."""
    monkeypatch.setattr(pictures, "LAYER_SIDE", LAYER_SIDE)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """Return the command line."""
    return CommandLine(capsys, monkeypatch)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace the shipped recipes by some rows of a table."""
    folder = tmp_path / "recipes"
    monkeypatch.setattr(graftseg.recipes.reading, "SHIPPED", folder)
    ship_rows(folder)
    return folder


@pytest.fixture
def sweeper(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Sweeper:
    """Return sweeps on a tiny store with a few shipped rows."""
    monkeypatch.setattr(graftseg.recipes.reading, "SHIPPED", tmp_path / "recipes")
    monkeypatch.setattr(graftseg.experiments.sweep, "classes_of", lambda name: store.classes)
    ship_swept(tmp_path / "recipes")
    return Sweeper(tmp_path, store)
