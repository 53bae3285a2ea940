"""Scans and label maps in a notebook: the widget shows what the files contain."""

import sys
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tiny

from graftseg import api
from graftseg.core.colors import color_of
from graftseg.core.errors import Code
from graftseg.data.phantom import CLASSES
from graftseg.data.store import Store
from graftseg.reporting.notebook import OPACITY, layers_of, score_table, view
from graftseg.reporting.viewer.case_reader import CaseReader
from graftseg.reporting.viewer.collection import ClassScore, ViewedCase, collect
from user_errors import user_error


@pytest.fixture(scope="module")
def run(scans: Path, store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook") / "run"
    api.train(tiny.tiny_recipe(), store.path, folder, device="cpu")
    api.predict(folder, scans / "imagesTs", uncertainty=True, device="cpu")
    api.evaluate(folder / "predictions", scans / "labelsTs")
    return folder


def test_layers_have_the_voxels_and_colors_of_the_files(run: Path, scans: Path) -> None:
    shown = collect(run)
    number = next(number for number, case in enumerate(shown.cases) if case.name == "test_001")
    layers = layers_of(shown, CaseReader(shown.cases), number)
    assert [layer.name for layer in layers] == ["scan", "reference", "prediction", "uncertainty", "difference"]
    scan, reference, prediction, uncertainty, _ = layers
    for layer, file in (
        (scan, scans / "imagesTs" / "test_001_0000.nii.gz"),
        (reference, scans / "labelsTs" / "test_001.nii.gz"),
        (prediction, run / "predictions" / "test_001.nii.gz"),
        (uncertainty, run / "predictions" / "test_001_uncertainty.nii.gz"),
    ):
        voxels = np.asarray(nibabel.Nifti1Image.from_bytes(layer.content).dataobj)[..., 0]
        expected = np.asarray(nibabel.load(file).dataobj).reshape(voxels.shape)
        assert np.allclose(voxels[::-1, ::-1], expected, atol=1e-6), layer.name  # 2-D scans are turned by 180 degrees
    assert uncertainty.window == (0.0, 1.0)
    assert reference.names == tuple(CLASSES.values()) and reference.colors[1:] == tuple(map(color_of, (1, 2, 3)))
    assert scan.window is not None and scan.window[0] < scan.window[1] and not scan.names


def test_the_widget_shows_the_chosen_case_and_layer(run: Path) -> None:
    widget = view(run, case="test_001")
    box, screen, scores = widget.children
    cases, channel, layer = box.children
    assert (channel.options, channel.layout.display) == ((("1", 0),), "none")
    assert cases.label.startswith("test_001 (test, Dice ") and layer.value == "prediction"
    assert layer.options == ("reference", "prediction", "uncertainty", "difference", "none")
    assert [volume.opacity for volume in screen.volumes] == [1.0, 0.0, OPACITY, 0.0, 0.0]
    assert screen.volumes[1].colormap_label.labels == list(CLASSES.values())
    shown = next(case for case in collect(run).cases if case.name == "test_001")
    rows = [f"<td>{score.name}</td><td>{100 * score.dice:.1f}</td>" for score in shown.scores]
    assert len(rows) == len(CLASSES) - 1
    assert all(row in scores.value for row in rows)
    layer.value = "uncertainty"
    assert [volume.opacity for volume in screen.volumes] == [1.0, 0.0, 0.0, OPACITY, 0.0]
    assert screen.volumes[3].colormap == "inferno"
    layer.value = "none"
    assert [volume.opacity for volume in screen.volumes] == [1.0, 0.0, 0.0, 0.0, 0.0]
    before = screen.volumes[0].data
    cases.value = next(number for title, number in cases.options if title.startswith("labeled_000"))
    assert layer.options == ("reference", "none") and screen.volumes[0].data != before and scores.value == ""
    cases.value = next(number for title, number in cases.options if title.startswith("unlabeled_000"))
    assert layer.options == ("none",) and len(screen.volumes) == 1


def test_a_channel_is_chosen(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 100, (4, 5, 3, 2), np.int16)
    nibabel.save(nibabel.Nifti1Image(image, np.diag([-1, -1, 1, 1])), tmp_path / "scan.nii.gz")
    box, screen, _ = view(tmp_path / "scan.nii.gz").children
    channel = box.children[1]
    assert (channel.options, channel.layout.display) == ((("1", 0), ("2", 1)), None)
    for chosen in (1, 0):
        channel.value = chosen
        voxels = np.asarray(nibabel.Nifti1Image.from_bytes(screen.volumes[0].data).dataobj)
        assert np.array_equal(voxels[::-1, ::-1], image[..., chosen])


def test_names_of_classes_are_escaped() -> None:
    case = ViewedCase("a", "", lambda: pytest.fail("not read"), scores=(ClassScore("<b>", 0.5, float("nan")),))
    assert "<td>&lt;b&gt;</td><td>50.0</td><td>–</td>" in score_table(case)


def test_unknown_cases_and_missing_packages_are_errors(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with user_error(Code.UNKNOWN_NAME, "--case nobody"):
        view(run, case="nobody")
    with user_error(Code.FILE_MISSING, "nowhere"):
        view("nowhere")
    monkeypatch.setitem(sys.modules, "ipyniivue", None)
    with user_error(Code.PACKAGE_MISSING, "ipyniivue", "[notebook]"):
        view(run)
