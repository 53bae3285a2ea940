"""Data sets with DICOM labels through check, train, test and evaluate."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny import tiny_recipe

from dicom_label_fakes import Image, write_rtstruct, write_seg
from graftseg import api
from graftseg.core.run_folder import RunFolder
from graftseg.data.scans import read_geometry, read_label, write_label

IMAGE = Image(shape=(16, 16, 16))
CLASSES = {0: "background", 1: "liver", 2: "spleen"}
LIVER, SPLEEN = (slice(2, 6),) * 3, (slice(8, 15),) * 3


def square(low: float, high: float, plane: int) -> list[float]:
    return IMAGE.contour([(low, low), (high, low), (high, high), (low, high)], plane)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write cases with a liver of 64 and a spleen of 343 voxels. Every second label is a segmentation in a folder."""
    root = tmp_path_factory.mktemp("data")
    liver = [square(1.5, 5.5, plane) for plane in range(2, 6)]
    spleen = [square(7.5, 14.5, plane) for plane in range(8, 15)]
    labels = np.zeros(IMAGE.shape, np.uint8)
    labels[LIVER], labels[SPLEEN] = 1, 2
    for number, name in enumerate(["imagesTr/a", "imagesTr/b", "imagesUn/c", "imagesUn/d", "imagesTs/e", "imagesTs/f"]):
        IMAGE.write(root / name)
        target = root / name.replace("images", "labels")
        if number % 2:
            # the segments have other numbers than the classes
            frames = [(3 - value, float(z), labels[:, :, z] == value) for z in range(16) for value in (1, 2)]
            write_seg(target / "object", IMAGE, frames, {1: "spleen", 2: "liver"})
        else:
            write_rtstruct(target.with_suffix(".dcm"), [(4, "liver", liver), (6, "spleen", spleen)])
    return root


@pytest.mark.slow
def test_a_run_is_trained_and_scored_with_dicom_labels(data: Path, tmp_path: Path) -> None:
    assert api.check(data).errors == 0
    run = api.train(tiny_recipe(3), data, tmp_path / "run", device="cpu")
    store = RunFolder(tmp_path / "run").training_manifest()["store"]
    assert run is not None and store["classes"] == ["background", "liver", "spleen"]
    tested = api.test(tmp_path / "run", device="cpu")
    (scores,) = tested.scores.values()
    assert {(row.case, row.name) for row in scores.rows} == {(c, n) for c in "ef" for n in ("liver", "spleen")}
    voxel = read_geometry(data / "imagesTs" / "e").voxel_volume / 1000
    volumes = {(row.case, row.name): row.volume_reference_ml / voxel for row in scores.rows}
    assert volumes == {(case, name): pytest.approx(n) for case in "ef" for name, n in (("liver", 64), ("spleen", 343))}
    assert "No picture" not in (tmp_path / "run" / "report.html").read_text()


def test_predictions_are_scored_on_the_grid_of_their_scans(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recipe = tiny_recipe(3, stages=[{"method": "supervised", "steps": 1}])
    api.train(recipe, data, tmp_path / "run", device="cpu")
    folder = api.predict(tmp_path / "run", data / "imagesTs", tmp_path / "labels", device="cpu").folder
    for case, label in (("e", "e.dcm"), ("f", "f")):
        truth = read_label(data / "labelsTs" / label, data / "imagesTs" / case, CLASSES)
        write_label(folder / f"{case}.nii.gz", truth.array, truth.geometry)
    caplog.clear()
    assert {row.dice for row in api.evaluate(folder, data / "labelsTs").rows} == {1.0}
    assert caplog.messages == []
    references = shutil.copytree(data / "labelsTs", tmp_path / "references")
    shutil.copy(next((data / "imagesTs" / "e").iterdir()), references / "slice.dcm")
    assert {row.case for row in api.evaluate(folder, references).rows} == {"e", "f"}
    assert ["ignoring 'slice.dcm'" in message for message in caplog.messages] == [True]
