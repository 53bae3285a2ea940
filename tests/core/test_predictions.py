"""The manifest and the journal of a folder of label maps."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from graftseg.core.files import read_json
from graftseg.core.predictions import (
    MANIFEST,
    Manifest,
    PredictedCase,
    append_to_journal,
    journal_name,
    read_manifest,
    write_journal,
)

CASES = tuple(PredictedCase(name, (f"{name}.nii",), f"{name}.nii.gz", 0.5) for name in "ab")


@pytest.mark.parametrize("in_journal", [True, False])
def test_the_name_of_a_case_has_the_key_case(tmp_path: Path, in_journal: bool) -> None:
    unfinished = tuple(case.output for case in CASES) if in_journal else ()
    manifest = Manifest("run", "0", {}, ("background", "left"), "last", "cpu", {}, unfinished=unfinished)
    if in_journal:
        manifest.save(tmp_path)
        write_journal(tmp_path / journal_name(None), CASES[:1])
        append_to_journal(tmp_path / journal_name(None), CASES[1])
        for case in CASES:
            (tmp_path / case.output).touch()
        lines = (tmp_path / journal_name(None)).read_text().splitlines()
        written = [json.loads(line) for line in lines]
    else:
        replace(manifest, cases=CASES).save(tmp_path)
        written = read_json(tmp_path / MANIFEST)["cases"]
    assert [next(iter(case.items())) for case in written] == [("case", "a"), ("case", "b")]
    assert all("name" not in case for case in written)
    loaded = read_manifest(tmp_path, "")
    assert loaded is not None and loaded.cases == CASES
