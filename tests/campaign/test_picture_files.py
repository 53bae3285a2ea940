"""Damaged PNG, TIFF and NIfTI files are read or refused with a sentence."""

from pathlib import Path

import numpy as np
import pytest
from picture_files import FORMATS, read, sample
from picture_mutants import mutants

from graftseg.core.errors import UserError

CHECKED = {kind for kind in FORMATS if kind.startswith("png") or kind == "nii.gz"}
"""Formats with a checksum of every byte that matters."""


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a{FORMATS[kind]}"
    path.write_bytes(sample(kind))
    before, refused, changed = read(path, kind), 0, 0
    for content in mutants(sample(kind), 1, 80):
        path.write_bytes(content)
        try:
            changed += not np.array_equal(read(path, kind), before)
        except UserError as error:
            assert error.where == str(path)
            refused += 1
    assert refused > 0
    assert not changed or kind not in CHECKED
