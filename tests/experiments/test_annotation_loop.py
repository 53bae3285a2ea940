"""The simulated annotator of ``benchmarks/annotation_loop.py``, on phantoms."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny_recipe, write_scans

from graftseg.core.run_folder import RunFolder
from markdown_pages import ROOT, load


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return the module, with a tiny recipe."""
    script = load(ROOT / "benchmarks" / "annotation_loop.py")
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(tiny_recipe().to_yaml())
    monkeypatch.setattr(script, "RECIPE", recipe)
    return script


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a data set whose images and label maps have the same names."""
    root = write_scans(tmp_path / "source", labeled=12, unlabeled=0, test=0)
    for path in (root / "imagesTr").iterdir():
        path.rename(path.with_name(path.name.replace("_0000.nii.gz", ".nii.gz")))
    return root


def settings(loop: Any, source: Path, tmp_path: Path, **changes: Any) -> Any:
    given = {"device": "cpu", "labels": (3, 4, 5), "unlabeled": 5, "test": 2} | changes
    return loop.Settings(source, tmp_path / "work", tmp_path / "results", **given)


@pytest.mark.slow
def test_simulation(loop: Any, source: Path, tmp_path: Path) -> None:
    loop.simulate(settings(loop, source, tmp_path), 0)
    records = loop.read_records(tmp_path / "results")
    assert [(record["arm"], [one["labels"] for one in record["rounds"]]) for record in records] == [
        ("covering", [3, 4, 5]),
        ("random", [3, 4, 5]),
        ("ranked", [3, 4, 5]),
    ]
    for record in records:
        first, second, third = record["rounds"]
        assert len(second["chosen"]) == len(second["corrected_voxels"]) == 1 and second["chosen"] != third["chosen"]
        assert second["seconds"].keys() == {"rank", "continue", "steps"} and "chosen" not in first
        data = tmp_path / "work" / f"seed-0-{record['arm']}" / "scans"
        # scans are not moved
        assert len([*(data / "imagesUn").iterdir()]) == 5 and len([*(data / "labelsTr").iterdir()]) == 5
    assert records[0]["rounds"][0] == records[1]["rounds"][0] == records[2]["rounds"][0]


def test_only_a_missing_arm_is_played(loop: Any, source: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    recorded = {"ranked": {"rounds": [{"labels": 4}]}, "random": {"rounds": [{"labels": 3}]}}
    for arm, record in recorded.items():
        (results / f"seed-0-{arm}.json").write_text(json.dumps(record))
    loop.simulate(settings(loop, source, tmp_path, labels=(3, 4), arms=("ranked", "covering")), 0)
    assert [path.name for path in sorted((tmp_path / "work").iterdir())] == ["seed-0-covering", "seed-0-first"]
    assert {arm: json.loads((results / f"seed-0-{arm}.json").read_text()) for arm in recorded} == recorded
    covering = json.loads((results / "seed-0-covering.json").read_text())
    chosen = loop.graftseg.rank(tmp_path / "work" / "seed-0-first" / "labels-3", by="coverage", device="cpu").rows[0]
    assert covering["arm"] == "covering" and covering["rounds"][1]["chosen"] == [chosen.case]


@pytest.mark.slow
def test_simulation_continues_after_a_stop(loop: Any, source: Path, tmp_path: Path) -> None:
    loop.simulate(settings(loop, source, tmp_path, labels=(3, 4)), 0)
    before = json.loads((tmp_path / "results" / "seed-0-random.json").read_text())["rounds"]
    loop.simulate(settings(loop, source, tmp_path), 0)
    rounds = json.loads((tmp_path / "results" / "seed-0-random.json").read_text())["rounds"]
    assert rounds[:2] == before and len(rounds) == 3
    assert len(RunFolder(tmp_path / "work" / "seed-0-random" / "labels-5").manifest()["store"]["labeled"]) == 5
    loop.simulate(settings(loop, source, tmp_path, until=0.0), 1)
    assert not (tmp_path / "work" / "seed-1-first").exists()


def test_picture(loop: Any) -> None:
    def record(arm: str, dice: float) -> dict[str, Any]:
        seconds = {"rank": 2.0, "continue": 8.0}
        later = {"labels": 6, "dice": dice + 5, "chosen": ["a"], "corrected_voxels": [100, 300], "seconds": seconds}
        return {"seed": int(dice > 75), "arm": arm, "rounds": [{"labels": 3, "dice": dice}, later]}

    drawn = ET.fromstring(loop.picture([record("ranked", 70.0), record("ranked", 80.0), record("random", 75.0)]))
    texts = [node.text for node in drawn.iter() if node.tag.endswith("text")]
    assert texts.count("ranked (2 seeds)") == texts.count("random (1 seeds)") == 2
    assert loop.means([{3: 70.0, 6: 75.0}, {3: 80.0, 6: 85.0, 9: 90.0}]) == {3: 75.0, 6: 80.0}
    *_, first, last = loop.summary([record("ranked", 70.0), record("random", 71.0)]).splitlines()
    assert first == "| 3 | 1 | 70.00 | 71.00 | -1.00 | 0 of 1 | - | - |"
    assert last == "| 6 | 1 | 75.00 | 76.00 | -1.00 | 0 of 1 | 200 / 200 | 10 / 10 |"
    tables = loop.summary([record("ranked", 70.0), record("random", 71.0), record("covering", 72.5)]).split("\n\n")
    assert [table.splitlines()[0].split(" | ")[2:4] for table in tables] == [
        ["ranked", "random"],
        ["covering", "random"],
    ]
    assert tables[1].splitlines()[2] == "| 3 | 1 | 72.50 | 71.00 | +1.50 | 1 of 1 | - | - |"
