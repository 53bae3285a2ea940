"""The whole pipeline on real scans, if present: hippocampus MR of the Medical Segmentation Decathlon."""

import tarfile
from pathlib import Path

import nibabel
import numpy as np
import pytest

from graftseg import api

ARCHIVE = Path(__file__).parents[2] / "shared" / "benchmarks" / "hippocampus.tar"
CASES = 6

pytestmark = [
    pytest.mark.real_data,
    pytest.mark.skipif(not ARCHIVE.is_file(), reason="the hippocampus scans are missing"),
]


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write four labeled, six unlabeled and six test scans."""
    folder = tmp_path_factory.mktemp("hippocampus")
    with tarfile.open(ARCHIVE) as archive:
        members = sorted((m for m in archive if m.isfile()), key=lambda member: Path(member.name).name)
        images, labels = ([m for m in members if Path(m.name).parent.name == kind] for kind in ("imagesTr", "labelsTr"))
        places = ["imagesTr"] * 4 + ["imagesUn"] * 6 + ["imagesTs"] * CASES
        for place, image, label in zip(places, images, labels, strict=False):
            assert Path(image.name).name == Path(label.name).name
            targets = [(image, place)] + [(label, place.replace("images", "labels"))] * (place != "imagesUn")
            for member, target in targets:
                stream = archive.extractfile(member)
                assert stream is not None
                path = folder / target / Path(member.name).name
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(stream.read())
    return folder


def test_every_step_works_on_real_scans(scans: Path, tmp_path: Path) -> None:
    assert [finding for finding in api.check(scans) if finding.severity == "error"] == []
    overrides = ["batches.patch=[32, 48, 32]", "stages.0.steps=6", "stages.1.steps=4", "network.width=4"]
    api.train("demo-3d/bcp", scans, tmp_path / "run", overrides=overrides)
    predicted = api.predict(tmp_path / "run", scans / "imagesTs")
    assert len(predicted.cases) == CASES and predicted.failures == ()
    for case in predicted.cases:
        scan, labels = (nibabel.load(path) for path in (case.images[0], predicted.folder / case.output))
        assert np.allclose(scan.affine, labels.affine) and scan.shape == labels.shape
    rows = api.evaluate(predicted.folder, scans / "labelsTs").rows
    assert len(rows) == 2 * CASES and all(0 <= row.dice <= 1 for row in rows)
    assert api.report(tmp_path / "run").stat().st_size > 10_000


def test_a_plan_works_on_real_scans(scans: Path, tmp_path: Path) -> None:
    """Follow the tutorial with few steps: plan, train with a baseline, test both, predict with uncertainty, rank."""
    recipe = api.plan(scans, tmp_path / "plan.yaml", minutes=60)
    assert "10 volumes" not in recipe.read_text() and "4 volumes with labels and 6 without" in recipe.read_text()
    run = tmp_path / "run"
    steps = ["stages.0.steps=120", "stages.1.steps=40", "network.width=4", "batches.labeled=2", "batches.unlabeled=2"]
    adam = "{name: adam, learning_rate: 0.01, schedule: {name: poly}}"
    steps += [f"stages.{stage}.optimizer={adam}" for stage in (0, 1)]
    api.train(recipe, scans, run, overrides=[*steps, "stages.1.settings.ema_decay=0.8", "loop.tensorboard=false"])
    examined = api.test(run)
    assert list(examined.scores) == [run, run / "baseline"]
    for scores in examined.scores.values():
        assert len(scores.rows) == 2 * CASES
        assert np.mean([row.dice for row in scores.rows if row.label == 1]) > 0.3
    *_, sentence = examined.verdict()
    # with so few steps, the check of the teacher may skip self-training
    assert "mean Dice " in sentence and (f"of {CASES} cases: " in sentence or "were not used" in sentence)
    assert "Comparison with the baseline" in examined.report.read_text()
    predicted = api.predict(run, scans / "imagesUn", tmp_path / "labels", uncertainty=True)
    assert len(predicted.cases) == 6 and predicted.failures == ()
    assert len(api.rank(run, scans).rows) == 6
