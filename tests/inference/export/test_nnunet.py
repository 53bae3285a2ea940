"""A pseudo-labeled data set as nnU-Net reads it."""

import json
import shutil
from pathlib import Path

import nibabel
import numpy as np
import pytest
import tiny
import torch
from export_fakes import write_run
from hypothesis import given
from hypothesis import strategies as st

from graftseg.core.errors import Code, UserError
from graftseg.core.run_folder import RunFolder
from graftseg.core.types import Case, Geometry
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.scans import read_scan, write_label, write_scan
from graftseg.inference.export import Request, export_run
from graftseg.inference.export.nnunet import _folds
from graftseg.inference.predict import predict_scans
from user_errors import user_error

CLASSES = ("background", "crescent", "ring", "core")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tiny.write_scans(tmp_path / "data", labeled=3, unlabeled=3)


@pytest.fixture
def run(tmp_path: Path, data: Path) -> RunFolder:
    recipe = tiny.tiny_recipe()
    store = prepare(read_layout(data), tmp_path / "store", recipe.data)
    return write_run(tmp_path / "run", recipe, CLASSES, store=store)


def write_predictions(folder: Path, data: Path, *cases: str, value: int = 2) -> Path:
    for case in cases:
        geometry = read_scan(next((data / "imagesUn").glob(f"{case}*"))).geometry
        write_label(folder / f"{case}.nii.gz", np.full(geometry.shape, value, np.uint8), geometry)
    return folder


def stems(folder: Path) -> list[str]:
    return sorted(path.name.removesuffix(".nii.gz") for path in folder.iterdir())


def test_given_and_predicted_labels_are_exported(run: RunFolder, data: Path, tmp_path: Path) -> None:
    write_predictions(run.predictions, data, "unlabeled_000", "unlabeled_002")
    out = tmp_path / "Dataset501_Phantoms"
    lines = export_run("nnunet", Request(run, out))
    assert lines[:2] == [
        f"{out}: 3 labeled cases and 2 cases with label maps of the run",
        f"left out 1 unlabeled case without a label map in {run.predictions}",
    ]
    folds, warning = lines[2:]
    assert folds.startswith("splits_final.json: folds 0 to 2 ") and folds.endswith(f"nnUNet_preprocessed/{out.name}")
    assert warning.startswith("Warning") and "crescent, core" in warning and "ring" not in warning
    cases = ["labeled_000", "labeled_001", "labeled_002", "unlabeled_000", "unlabeled_002"]
    assert stems(out / "labelsTr") == cases and stems(out / "imagesTr") == [f"{case}_0000" for case in cases]
    description = json.loads((out / "dataset.json").read_text())
    assert description["labels"] == {"background": 0, "crescent": 1, "ring": 2, "core": 3}
    assert (description["numTraining"], description["file_ending"]) == (5, ".nii.gz")
    assert list(description["channel_names"]) == ["0"]
    assert json.loads((out / "pseudo_labels.json").read_text()) == {"pseudo_labeled": cases[3:]}
    given = next((data / "labelsTr").glob("labeled_001*"))
    written = nibabel.load(out / "labelsTr" / "labeled_001.nii.gz")
    np.testing.assert_array_equal(np.asarray(written.dataobj), np.asarray(nibabel.load(given).dataobj))
    np.testing.assert_array_equal(written.affine, nibabel.load(given).affine)
    assert (np.asarray(nibabel.load(out / "labelsTr" / "unlabeled_002.nii.gz").dataobj) == 2).all()
    dataset = read_layout(out)
    assert dataset.layout == "nnunet" and len(dataset.of("labeled")) == 5 and not dataset.problems


@given(st.integers(1, 13), st.integers(1, 4))
def test_folds_validate_on_true_labels_only(labeled: int, pseudo: int) -> None:
    true, predicted = ([f"{kind}{i:02d}" for i in range(count)] for kind, count in (("l", labeled), ("u", pseudo)))
    folds = _folds(*([Case(name, (), None, "labeled") for name in names] for names in (true, predicted)))
    assert len(folds) == min(5, labeled)
    assert sorted(name for fold in folds for name in fold["val"]) == true
    for fold in folds:
        assert fold.keys() == {"train", "val"} and set(predicted) <= set(fold["train"])
        assert sorted(fold["train"] + fold["val"]) == true + predicted


def test_no_warning_if_every_class_has_pseudo_labels(run: RunFolder, data: Path, tmp_path: Path) -> None:
    for value in (1, 2, 3):
        write_predictions(run.predictions, data, f"unlabeled_00{value - 1}", value=value)
    out = tmp_path / "Dataset501_Phantoms"
    assert not [line for line in export_run("nnunet", Request(run, out)) if line.startswith("Warning")]
    assert json.loads((out / "splits_final.json").read_text())[1] == {
        "train": ["labeled_000", "labeled_002", "unlabeled_000", "unlabeled_001", "unlabeled_002"],
        "val": ["labeled_001"],
    }


def test_labels_that_the_run_did_not_see_are_not_used(run: RunFolder, data: Path, tmp_path: Path) -> None:
    shutil.rmtree(run.path)
    batches = {"patch": [16, 16], "labeled": 2, "unlabeled": 2, "labeled_cases": 1}
    hidden = write_run(tmp_path / "run", tiny.tiny_recipe(batches=batches), CLASSES)
    write_predictions(hidden.predictions, data, "unlabeled_000")
    geometry = read_scan(next((data / "imagesTr").glob("labeled_001*"))).geometry
    write_label(hidden.predictions / "labeled_001.nii.gz", np.ones(geometry.shape, np.uint8), geometry)
    out = tmp_path / "Dataset501_Phantoms"
    export_run("nnunet", Request(hidden, out, data=data))
    assert stems(out / "labelsTr") == ["labeled_000", "labeled_001", "unlabeled_000"]
    assert (np.asarray(nibabel.load(out / "labelsTr" / "labeled_001.nii.gz").dataobj) == 1).all()


def test_multichannel_files_and_other_formats_are_converted(tmp_path: Path) -> None:
    data, rng = tmp_path / "data", np.random.default_rng(0)
    geometry = Geometry((6, 5, 4), ((2.0, 0, 0, 1), (0, 1, 0, 2), (0, 0, 1, 3), (0, 0, 0, 1)))
    images = {name: rng.normal(size=(2, 6, 5, 4)).astype(np.float32) for name in ("imagesTr/a", "imagesUn/b")}
    for name, image in images.items():
        write_scan(data / f"{name}.nii", image, geometry)
    write_label(data / "labelsTr" / "a.nii", np.ones((6, 5, 4), np.uint8), geometry)
    write_label(tmp_path / "made" / "b.nii.gz", np.zeros((6, 5, 4), np.uint8), geometry)
    (data / "dataset.json").write_text(json.dumps({"modality": {"0": "T1", "1": "CT"}, "labels": {"0": "x", "1": "y"}}))
    run = write_run(tmp_path / "run", tiny.tiny_recipe(3), ("x", "y"), channels=2)
    out = tmp_path / "Dataset002_Two"
    export_run("nnunet", Request(run, out, data=data, predictions=tmp_path / "made"))
    assert stems(out / "imagesTr") == ["a_0000", "a_0001", "b_0000", "b_0001"]
    second = read_scan(out / "imagesTr" / "b_0001.nii.gz")
    assert second.geometry == geometry and np.array_equal(second.array[0], images["imagesUn/b"][1])
    description = json.loads((out / "dataset.json").read_text())
    assert description["channel_names"] == {"0": "T1", "1": "CT"}
    assert description["labels"] == {"background": 0, "y": 1}


def test_a_run_moved_with_its_store(run: RunFolder, data: Path, tmp_path: Path) -> None:
    write_predictions(run.predictions, data, "unlabeled_000")
    (tmp_path / "store").rename(run.store)
    moved = RunFolder(run.path.rename(tmp_path / "moved"))
    (first, *_) = export_run("nnunet", Request(moved, tmp_path / "Dataset501_Phantoms"))
    assert first.endswith("3 labeled cases and 1 case with label maps of the run")
    data.rename(tmp_path / "elsewhere")
    with user_error(Code.FOLDER_MISSING, data, "--data"):
        export_run("nnunet", Request(moved, tmp_path / "Dataset502_Phantoms"))


def test_two_label_maps_of_a_case_are_an_error(run: RunFolder, data: Path, tmp_path: Path) -> None:
    write_predictions(run.predictions, data, "unlabeled_000")
    (run.predictions / "unlabeled_000.txt").write_bytes(b"no label map is read from it")
    export_run("nnunet", Request(run, tmp_path / "Dataset501_Phantoms"))
    (run.predictions / "unlabeled_000.nrrd").write_bytes(b"never read")
    with user_error(Code.CASE_DUPLICATE, "unlabeled_000.nrrd"):
        export_run("nnunet", Request(run, tmp_path / "Dataset502_Phantoms"))


def test_invalid_arguments(run: RunFolder, data: Path, tmp_path: Path) -> None:
    def refused(out: str = "Dataset501_Phantoms", **parts: Path) -> Code:
        with pytest.raises(UserError) as error:
            export_run("nnunet", Request(run, tmp_path / out, **parts))
        return error.value.code

    assert refused("phantoms") == Code.OPTION_INVALID
    assert refused() == Code.FOLDER_MISSING
    empty = tmp_path / "empty"
    empty.mkdir()
    assert refused(predictions=empty) == Code.PREDICTIONS_MISMATCH
    with user_error(Code.PREDICTIONS_MISMATCH, empty, f"graftseg predict RUN {data / 'imagesUn'} first"):
        export_run("nnunet", Request(run, tmp_path / "Dataset501_Phantoms", predictions=empty))
    large = write_predictions(tmp_path / "large", data, "unlabeled_000", value=4)
    assert refused(predictions=large) == Code.LABEL_INVALID
    shifted = Geometry((16, 16), ((1, 0, 0, 40), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)))
    write_label(tmp_path / "shifted" / "unlabeled_000.nii.gz", np.ones((16, 16), np.uint8), shifted)
    assert refused(predictions=tmp_path / "shifted") == Code.GEOMETRY_MISMATCH
    shutil.rmtree(tmp_path / "store")
    assert refused(predictions=large) == Code.STORE_MISSING
    assert not list(tmp_path.glob("Dataset*")) and not list(tmp_path.glob(".partial*"))


def test_label_maps_of_another_network_are_an_error(run: RunFolder, data: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "other", tiny.tiny_recipe(), CLASSES, seed=1)
    predict_scans(other, data / "imagesUn", tmp_path / "labels", torch.device("cpu"))
    request = Request(run, tmp_path / "Dataset501_Phantoms", predictions=tmp_path / "labels")
    with user_error(Code.PREDICTIONS_MISMATCH, tmp_path / "labels"):
        export_run("nnunet", request)
    predict_scans(run, data / "imagesUn", run.predictions, torch.device("cpu"))
    line, *_ = export_run("nnunet", Request(run, tmp_path / "Dataset501_Phantoms"))
    assert line.endswith("3 labeled cases and 3 cases with label maps of the run")
