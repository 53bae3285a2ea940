"""``graftseg test`` builds each network once and reads each label map once per use."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_recipe, write_scans

from graftseg import api
from graftseg.core import files
from graftseg.data import scans as scan_files
from graftseg.inference import model

CASES = 3


@pytest.mark.slow
def test_a_test_with_baseline_builds_two_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scans = write_scans(tmp_path / "scans", labeled=3, unlabeled=2, test=CASES)
    api.train(tiny_recipe(baseline=True), scans, tmp_path / "run", device="cpu")
    counts: Counter[str] = Counter()

    def count(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **keywords: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **keywords)

        return counted

    monkeypatch.setattr(model, "build_method", count("networks", model.build_method))
    monkeypatch.setattr(scan_files, "class_numbers", count("label maps", scan_files.class_numbers))
    monkeypatch.setattr("graftseg.core.run_folder.read_json", count("run.json", files.read_json))
    api.test(tmp_path / "run", device="cpu")
    assert counts["networks"] == 2
    # Per case: the check reads the reference, the scoring the reference and two predictions, the report two label maps.
    assert counts["label maps"] == 6 * CASES
    assert counts["run.json"] <= 2, "run.json is parsed once for the run and once for its baseline"
