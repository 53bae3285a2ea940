"""Data sets of JPEG and BMP images with PNG label maps, from the check to the prediction."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from check_fakes import check
from PIL import Image
from tiny import tiny_recipe

from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.scans import read_label, read_scan
from user_errors import user_error

NAMES = ("imagesTr/a.jpg", "imagesTr/b.JPEG", "imagesUn/c.jpg", "imagesUn/d.bmp", "imagesTs/e.jpeg")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data set of color pictures with a disc."""
    root = tmp_path / "data"
    rows, columns = np.ogrid[:32, :40]
    for seed, name in enumerate(NAMES):
        disc = ((rows - 14 - seed) ** 2 + (columns - 20) ** 2 < 60).astype(np.uint8)
        noise = np.random.default_rng(seed).integers(0, 60, (32, 40, 3)).astype(np.uint8)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise + disc[..., None] * np.array([150, 90, 60], np.uint8)).save(path)
        if "Un" not in name:
            labels = root / path.parent.name.replace("images", "labels")
            labels.mkdir(exist_ok=True)
            Image.fromarray(disc).save(labels / f"{path.stem}.png")
    return root


def test_check_and_prepare(data: Path, tmp_path: Path) -> None:
    dataset = read_layout(data)
    assert [(case.name, case.split) for case in dataset.cases] == [
        ("a", "labeled"),
        ("b", "labeled"),
        ("c", "unlabeled"),
        ("d", "unlabeled"),
        ("e", "test"),
    ]
    assert not [finding for finding in check(dataset) if finding.severity == "error"]
    store = prepare(dataset, tmp_path / "store", tiny_recipe().data)
    assert store.channels == 3


@pytest.mark.slow
def test_train_predict_and_show(data: Path, tmp_path: Path) -> None:
    run, new = tmp_path / "run", tmp_path / "new"
    page = tmp_path / "check.html"
    api.check(data, out=page)
    assert page.read_text().count("data:image/png") >= 4
    api.train(tiny_recipe(), data, run, device="cpu")
    shutil.copytree(data / "imagesTs", new)
    Image.fromarray(np.array(Image.open(new / "e.jpeg"))).save(new / "png.png")
    shutil.copy(data / "imagesUn/d.bmp", new)
    (new / "f.jpg").write_bytes((new / "e.jpeg").read_bytes()[:-100])
    predicted = api.predict(run, new, tmp_path / "out", device="cpu", pictures=True)
    (failure,) = predicted.failures
    assert (failure.code, "f.jpg" in failure.where) == (Code.SCAN_DAMAGED, True)
    labels = {name: read_scan(predicted.folder / f"{name}.nii.gz").array for name in ("d", "e", "png")}
    np.testing.assert_array_equal(labels["e"], labels["png"])
    assert labels["e"].shape == (1, 40, 32)
    np.testing.assert_array_equal(read_label(predicted.folder / "e.png").array, labels["e"][0])
    assert api.test(run, device="cpu").scores
    assert "data:image" in api.report(run).read_text()
    unlabeled = api.predict(run, data / "imagesUn", tmp_path / "pseudo", device="cpu").folder
    api.export("nnunet", run, tmp_path / "Dataset501_Disc", data=data, predictions=unlabeled)
    (channels,) = [sorted(tmp_path.glob("Dataset501_Disc/imagesTr/d_*.nii.gz"))]
    pixels = np.array(Image.open(data / "imagesUn/d.bmp")).transpose(2, 1, 0)
    np.testing.assert_array_equal([read_scan(path).array[0] for path in channels], pixels)


def test_the_same_case_as_png_and_jpeg(data: Path) -> None:
    Image.open(data / "imagesTr/a.jpg").save(data / "imagesTr/a.png")
    (problem,) = read_layout(data).problems
    assert (problem.code, Path(problem.where).name) == (Code.CASE_DUPLICATE, "a.png")
    assert "a.jpg" in problem.finding


def test_jpeg_label_maps_are_reported(data: Path) -> None:
    Image.open(data / "labelsTr/a.png").save(data / "labelsTr/a.jpg")
    (data / "labelsTr/a.png").unlink()
    (found,) = [finding for finding in check(read_layout(data)) if finding.severity == "error"]
    assert "JPEG" in f"{found.what} {found.size}" and found.cases == ("a",)


def test_bmp_label_maps(data: Path) -> None:
    for path in (data / "labelsTr").iterdir():
        Image.open(path).save(path.with_suffix(".bmp"))
        path.unlink()
    dataset = read_layout(data)
    assert not [finding for finding in check(dataset) if finding.severity == "error"]
    assert {path.suffix for case in dataset.of("labeled") for path in [case.label] if path} == {".bmp"}


def test_a_jpeg_with_another_suffix_is_an_error(data: Path) -> None:
    path = (data / "imagesTr/a.jpg").rename(data / "imagesTr/a.bmp")
    with user_error(Code.NOT_A_SCAN, path, "suffix"):
        read_scan(path)
