"""Fixtures that several test files share."""

import os
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
from record_fakes import ship_rows
from sweep_fakes import Sweeper, ship_swept

# the tests run side by side, and threads that wait for each other make tiny networks slow
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"
if os.environ.get("GRAFTSEG_TEST_GPU") != "1":
    # many compare bits, which only a CPU promises to repeat
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # without a GPU, Triton's kernels run in its interpreter, which must be chosen before Triton is imported
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(autouse=True)
def _untold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was told once is told again in another test."""
    monkeypatch.setattr(graftseg.recipes.shortening, "_warned", set())


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small 2-D phantoms; tests do not change it."""
    return tiny.write_scans(tmp_path_factory.mktemp("scans"))


@pytest.fixture(scope="session")
def store(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The same, prepared; tests do not change it."""
    return prepare(read_layout(scans), tmp_path_factory.mktemp("stores") / "store", tiny.tiny_recipe().data)


@pytest.fixture(scope="session")
def volumes(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store of small 3-D phantoms; tests do not change it."""
    scans = tiny.write_scans(tmp_path_factory.mktemp("volumes"), 3)
    return prepare(read_layout(scans), tmp_path_factory.mktemp("volume-stores") / "store", tiny.tiny_recipe(3).data)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line, called as a person does."""
    return CommandLine(capsys, monkeypatch)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that ships some recipes of a table."""
    folder = tmp_path / "recipes"
    monkeypatch.setattr(graftseg.recipes.reading, "SHIPPED", folder)
    ship_rows(folder)
    return folder


@pytest.fixture
def sweeper(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Sweeper:
    """Sweeps on a tiny store, of a package that ships a few rows."""
    monkeypatch.setattr(graftseg.recipes.reading, "SHIPPED", tmp_path / "recipes")
    monkeypatch.setattr(graftseg.experiments.sweep, "classes_of", lambda name: store.classes)
    ship_swept(tmp_path / "recipes")
    return Sweeper(tmp_path, store)
