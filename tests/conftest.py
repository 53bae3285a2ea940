"""Fixtures that several test files share."""

from pathlib import Path

import pytest
import tiny

from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.store import Store


@pytest.fixture(scope="session")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small 2-D phantoms; tests do not change it."""
    return tiny.write_scans(tmp_path_factory.mktemp("scans"))


@pytest.fixture(scope="session")
def store(scans: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The same, prepared; tests do not change it."""
    return prepare(read_layout(scans), tmp_path_factory.mktemp("stores") / "store", tiny.tiny_recipe().data)
