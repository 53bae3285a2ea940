"""Gray pictures that are stored with three colors."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tifffile
from check_fakes import check
from numpy.typing import NDArray
from PIL import Image
from tiny import tiny_recipe

from graftseg import api
from graftseg.core.errors import Code
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import prepare
from graftseg.data.scans import read_case, read_scan
from user_errors import user_error

NAMES = ("imagesTr/a", "imagesTr/b", "imagesUn/c", "imagesUn/d", "imagesTs/e")
RGB = {"modality": {"0": "red", "1": "green", "2": "blue"}, "labels": {"background": 0, "disc": 1}}


def pixels(seed: int) -> NDArray[np.uint8]:
    drawn = np.random.default_rng(seed).integers(0, 100, (32, 40)).astype(np.uint8)
    drawn[8:20, 8:20] += 100
    return drawn


def save(path: Path, values: NDArray[np.uint8]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(path)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data set of gray RGB pictures, one of them with an alpha channel, one TIFF, and one gray file."""
    root, disc = tmp_path / "data", np.zeros((32, 40), np.uint8)
    disc[8:20, 8:20] = 1
    for seed, name in enumerate(NAMES):
        save(root / f"{name}.png", np.repeat(pixels(seed)[..., None], 3, axis=2))
    save(root / "imagesTr/b.png", np.dstack([pixels(1)] * 3 + [np.full((32, 40), 255, np.uint8)]))
    save(root / "imagesUn/d.png", pixels(3))
    (root / "imagesUn/c.png").unlink()
    tifffile.imwrite(root / "imagesUn/c.tif", np.repeat(pixels(2)[..., None], 3, axis=2), photometric="rgb")
    for name in ("labelsTr/a", "labelsTr/b", "labelsTs/e"):
        save(root / f"{name}.png", disc)
    return root


def set_color(path: Path) -> None:
    values = np.asarray(Image.open(path).convert("RGB")).copy()
    values[0, 0] = (1, 2, 3)
    Image.fromarray(values).save(path)


def counts(root: Path) -> list[int]:
    dataset = read_layout(root)
    return [len(dataset.reader.image(case).array) for case in dataset.cases]


def test_gray_pictures_have_one_channel(data: Path, tmp_path: Path) -> None:
    dataset = read_layout(data)
    for case in dataset.cases:
        assert np.array_equal(dataset.reader.image(case).array, [pixels("abcde".index(case.name)).T])
    assert [one.what for one in check(dataset) if "stored" in one.what] == [
        "gray pictures are stored with three colors"
    ]
    assert prepare(dataset, tmp_path / "store", tiny_recipe().data).channels == 1


def test_one_color_in_a_training_picture_keeps_all_colors(data: Path) -> None:
    (data / "imagesUn/d.png").unlink()
    set_color(data / "imagesUn/c.tif")
    assert counts(data) == [3, 3, 3, 3]
    assert not any("stored" in one.what for one in check(read_layout(data)))


def test_a_changed_picture_is_read_again(data: Path) -> None:
    (data / "imagesUn/d.png").unlink()
    assert counts(data) == [1, 1, 1, 1]
    set_color(data / "imagesTr/a.png")
    assert counts(data) == [3, 3, 3, 3]


def test_a_colored_test_picture_is_an_error(data: Path) -> None:
    set_color(data / "imagesTs/e.png")
    (found,) = [one for one in check(read_layout(data)) if one.severity == "error"]
    assert (found.what, found.cases) == ("the number of channels differs between cases", ("e",))


def test_three_named_channels_keep_gray_colors(data: Path) -> None:
    (data / "imagesUn/d.png").unlink()
    (data / "dataset.json").write_text(json.dumps(RGB))
    assert counts(data) == [3, 3, 3, 3]


def test_a_named_channel_does_not_change_colors(data: Path) -> None:
    """Without the rule for data sets, a gray picture among colors would have one channel."""
    (data / "imagesUn/d.png").unlink()
    set_color(data / "imagesTr/a.png")
    (data / "dataset.json").write_text(json.dumps({**RGB, "modality": {"0": "color"}}))
    assert counts(data) == [3, 3, 3, 3]


def test_two_files_of_a_case(data: Path) -> None:
    for path in sorted(data.glob("images*/*")):
        shutil.copy(path, path.with_name(f"{path.stem}_0001{path.suffix}"))
        path.rename(path.with_name(f"{path.stem}_0000{path.suffix}"))
    assert counts(data) == [2, 2, 2, 2, 2]
    assert len(read_case([data / "imagesTs/e_0000.png", data / "imagesTs/e_0001.png"], 2).array) == 2


def test_a_damaged_picture_is_reported_when_it_is_read(data: Path) -> None:
    path = data / "imagesTr/b.png"
    path.write_bytes(path.read_bytes()[:200])
    dataset = read_layout(data)
    assert len(dataset.reader.image(dataset.cases[0]).array) == 1
    with user_error(Code.SCAN_DAMAGED, "b.png"):
        dataset.reader.image(dataset.cases[1])


def test_a_network_with_one_channel_accepts_gray_colors(data: Path, tmp_path: Path) -> None:
    """The label map of a picture does not depend on how its gray values are stored."""
    run = tmp_path / "run"
    api.train(tiny_recipe(), data, run, device="cpu")
    save(tmp_path / "new/gray.png", pixels(7))
    save(tmp_path / "new/rgb.png", np.repeat(pixels(7)[..., None], 3, axis=2))
    labels = api.predict(run, tmp_path / "new", tmp_path / "out", device="cpu").folder
    gray, rgb = (read_scan(labels / f"{name}.nii.gz").array for name in ("gray", "rgb"))
    assert np.array_equal(gray, rgb)
    assert api.test(run, device="cpu").scores
    set_color(tmp_path / "new/rgb.png")
    (failure,) = api.predict(run, tmp_path / "new/rgb.png", tmp_path / "colored", device="cpu").failures
    assert (failure.code, "rgb.png" in failure.where) == (Code.CHANNELS_MISMATCH, True)
