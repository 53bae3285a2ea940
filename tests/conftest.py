"""Fixtures that several test files share."""

import gc
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
import tiny
import torch
from command_line import CommandLine

import graftseg.experiments.sweep
import graftseg.recipes.reading
import graftseg.recipes.shortening
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store
from graftseg.reporting import pictures
from record_fakes import ship_rows
from sweep_fakes import Sweeper, ship_swept

# only make test-web installs Playwright
collect_ignore = [] if find_spec("playwright") else ["web"]
# imported modules and collected tests stay until the end; without a pause, the garbage collector visits them often
gc.disable()
# tests run in parallel, and thread synchronization makes tiny networks slow
torch.set_num_threads(1)
# programs that ``nohup`` starts ignore SIGHUP, but tests expect the default
signal.signal(signal.SIGHUP, signal.SIG_DFL)
# flushing to disk takes a seventh of the time of the tests; tests of flushing replace this function
os.fsync = lambda fd: None
os.environ["OMP_NUM_THREADS"] = "1"
# fine label layers take half of the time of a report; the fixture ``fine_layers`` restores their size
LAYER_SIDE, pictures.LAYER_SIDE = pictures.LAYER_SIDE, 48
if os.environ.get("GRAFTSEG_TEST_GPU") != "1":
    # many tests compare bits, which only a CPU reproduces
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # without a GPU, Triton kernels run in the interpreter, which must be selected before Triton is imported
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_collection_finish() -> None:
    """Enable the garbage collector again, without the objects that stay until the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


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
