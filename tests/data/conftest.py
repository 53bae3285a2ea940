"""Fixtures that several tests of the data share. Imports are local, because only processes that run tests need them."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a valid data set of three labeled and three unlabeled scans."""
    from check_fakes import make_scans

    return make_scans(tmp_path / "data")


@pytest.fixture
def volume() -> NDArray[np.int16]:
    """Return random voxels ``(x, y, z)``."""
    return np.random.default_rng(0).integers(-1000, 1000, (4, 3, 8)).astype(np.int16)
