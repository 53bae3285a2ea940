"""Damaged files of every format: a reader returns a scan or raises a UserError about the file."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from files import CLASSES, SAMPLES, VOXELS, read, sample, write
from mutants import mutants
from picture_files import SUFFIXES

from graftseg.core.errors import UserError

MUTANTS = 30


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_valid(tmp_path: Path, name: str) -> None:
    files = sample(name)
    write(tmp_path, files)
    found = read(tmp_path, files).array
    if next(iter(files)).startswith("label"):
        assert {*np.unique(found).tolist()} == {*CLASSES}
    elif next(iter(files)).startswith("slice") or name == "dicom-zip":
        np.testing.assert_array_equal(found[0], VOXELS[:, :, :3])
    elif name in SUFFIXES:
        assert found.size >= 20 * 24 and len(np.unique(found)) > 2
    else:
        np.testing.assert_array_equal(found[0], VOXELS)


@pytest.mark.parametrize("name", SAMPLES)
def test_mutants_are_read_or_refused(tmp_path: Path, name: str) -> None:
    files = sample(name)
    first = next(iter(files))
    write(tmp_path, files)
    refusals = 0
    for mutant in mutants(files[first], seed=1, count=MUTANTS):
        (tmp_path / first).write_bytes(mutant)
        try:
            assert read(tmp_path, files).array.size > 0
        except UserError as error:
            assert error.where.startswith(str(tmp_path))
            refusals += 1
    assert refusals > 0


def test_mutants_depend_only_on_content_and_seed() -> None:
    content = bytes(range(200)) + b"sizes: 10 20 30"
    first = [*mutants(content, 1, 40)]
    assert first == [*mutants(content, 1, 40)] == [*islice(mutants(content, 1, 90), 40)]
    assert first != [*mutants(content, 2, 40)]
    assert sum(mutant != content for mutant in first) > 35
