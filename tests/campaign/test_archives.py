"""Hostile zips next to a good scan."""

from pathlib import Path
from random import Random

import pytest
from archives import archives
from hostile_zips import hostile_zip


def test_zips_depend_on_the_seed_only(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.zip", "b.zip")]
    drawn = [hostile_zip(path, Random(3)) for path in paths]
    assert drawn[0] == drawn[1] and paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.slow
def test_archives(tmp_path: Path) -> None:
    part = archives(tmp_path, seed=0, count=6)
    assert (part.tried, part.failures) == (6, [])
