"""Scans and training images have the same orientation on a page, and marks are correct or missing."""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_fakes import Page, write_run
from tiny import tiny_recipe, write_scans

from graftseg import api
from graftseg.core.types import Geometry
from graftseg.data.grid import plan_grid, to_grid
from graftseg.data.scans import read_scan
from graftseg.data.store import Store, StoredCase
from graftseg.reporting.cases import slices_of
from graftseg.reporting.orientation import (
    AS_STORED,
    MIRRORED,
    SIDES_UNKNOWN,
    TURNED,
    Orientation,
    orientation_of,
    view_sentence,
)
from graftseg.reporting.run_page import render_report

CODES = ["".join(code) for axes in itertools.permutations(("RL", "AP", "SI")) for code in itertools.product(*axes)]
SHAPE = (4, 5, 6)


def pointing(codes: str, *, thick: int | None = None) -> Geometry:
    """Return the geometry of a volume with these axis codes, with thick slices along one axis of the array."""
    affine = np.zeros((4, 4))
    for axis, code in enumerate(codes):
        step = 3.0 if axis == thick else 1.0
        affine["RLAPSI".index(code) // 2, axis] = step if code in "RAS" else -step
    affine[3, 3] = 1
    return Geometry(SHAPE, tuple(tuple(row) for row in affine.tolist()))


@settings(max_examples=60, deadline=None)
@given(source=st.sampled_from(CODES), stored=st.sampled_from(CODES))
def test_scan_and_stored_array_have_the_same_orientation(source: str, stored: str) -> None:
    volume = np.random.default_rng(0).random(SHAPE)
    # the array's last axis is that of thick slices, as plans choose it
    opposite = dict(zip("RLAPSI", "LRPAIS", strict=True))
    thick = next(axis for axis, code in enumerate(source) if stored[2] in (code, opposite[code]))
    geometry = pointing(source, thick=thick)
    orientation = Orientation(stored, is_volume=True, is_placed=True)
    grid = plan_grid(geometry, orientation=stored, spacing=None)
    array = to_grid(volume, grid, labels=False)
    planes = [orientation.training_plane(array[..., index]) for index in range(array.shape[2])]
    cut = orientation.scan_cut(geometry)
    shown = [cut.plane(volume, index).astype(np.float32) for index in range(array.shape[2])]
    assert any(np.array_equal(planes[0], plane) for plane in (shown[0], shown[-1]))
    assert orientation.scan_marks(cut, geometry) == orientation.training_marks(augmented=False)


@pytest.mark.parametrize(
    ("codes", "corner", "marks"),
    [
        ("RAS", (-1, -1), ("R", "L")),  # the most right and most anterior voxel comes to the upper left corner
        ("LPS", (0, 0), ("R", "L")),
        ("PLS", (0, 0), ("R", "L")),
        ("RSA", (-1, -1), ("R", "L")),
        ("ASR", (-1, -1), ("A", "P")),
    ],
)
def test_orientation_of_slices(codes: str, corner: tuple[int, int], marks: tuple[str, str]) -> None:
    plane = np.zeros((4, 5))
    plane[corner] = 1
    orientation = Orientation(codes, is_volume=True, is_placed=True)
    assert orientation.training_plane(plane)[0, 0] == 1 and orientation.training_marks(augmented=True) == marks


def test_unknown_orientation_is_shown_as_stored() -> None:
    volume = np.random.default_rng(0).random(SHAPE)
    labels = np.zeros(SHAPE, np.uint8)
    labels[..., 2] = 1
    (shown,) = slices_of(volume, labels, labels, pointing("RAS", thick=0), Orientation())
    np.testing.assert_array_equal(shown.image, Orientation().training_plane(volume[..., 2]))
    assert shown.marks is None and Orientation().training_marks(augmented=False) is None
    assert view_sentence([shown.axis], True, False) == SIDES_UNKNOWN


def test_no_marks_without_a_position_in_the_header() -> None:
    orientation = Orientation("RAS", is_volume=True, is_placed=False)
    unplaced = Geometry(SHAPE, pointing("RAS").affine, qform_code=0, sform_code=0)
    assert (
        orientation.scan_marks(orientation.scan_cut(unplaced), unplaced) is None
        and orientation.training_marks(augmented=False) is None
    )
    assert orientation.training_sentence(augmented=False) == SIDES_UNKNOWN


def test_no_marks_on_a_scan_without_a_position_in_its_file(tmp_path: Path) -> None:
    header = "NRRD0004\ntype: short\ndimension: 3\nsizes: 4 5 6\nendian: little\nencoding: raw\n\n"
    (tmp_path / "a.nrrd").write_bytes(header.encode() + np.arange(120, dtype="<i2").tobytes())
    scan, labels = read_scan(tmp_path / "a.nrrd"), np.ones(SHAPE, np.uint8)
    orientation = Orientation("RAS", is_volume=True, is_placed=True)
    assert slices_of(scan.array[0], labels, labels, scan.geometry, orientation)[0].marks is None
    placed = replace(scan.geometry, sform_code=1)
    assert slices_of(scan.array[0], labels, labels, placed, orientation)[0].marks == ("R", "L")


def test_mirrored_training_images_have_no_marks() -> None:
    orientation = Orientation("RAS", is_volume=True, is_placed=True, is_mirrored=True)
    assert (
        orientation.training_marks(augmented=True) is None
        and orientation.training_sentence(augmented=True) == f"{MIRRORED}, so they have no marks."
    )
    assert Orientation(is_mirrored=True).training_sentence(augmented=True) == f"{MIRRORED}."
    assert orientation.training_marks(augmented=False) == (
        "R",
        "L",
    ) and "right (R) on the left" in orientation.training_sentence(augmented=False)


@pytest.mark.parametrize(
    ("rotate", "degrees", "marks"), [(1.0, 180, None), (0.1, 46, None), (1.0, 45, ("R", "L")), (0.0, 180, ("R", "L"))]
)
def test_training_images_rotated_by_large_angles_have_no_marks(
    rotate: float, degrees: int, marks: tuple[str, str] | None
) -> None:
    augment = {"rotate_flip": 0.0, "rotate": rotate, "degrees": degrees}
    recipe = {"data": {"dimensions": 3, "orientation": "RAS"}, "batches": {"augment": augment}}
    orientation = orientation_of(recipe, stored(pointing("RAS")), True)
    assert orientation.training_marks(augmented=True) == marks and orientation.training_marks(augmented=False) == (
        "R",
        "L",
    )
    expected = orientation.training_sentence(augmented=False) if marks else f"{TURNED}, so they have no marks."
    assert orientation.training_sentence(augmented=True) == expected


def test_aspect_follows_the_voxel_spacing() -> None:
    def oriented(**data: Any) -> Orientation:
        return orientation_of({"data": data}, None, False)

    assert oriented(dimensions=3, orientation="RAS", spacing=[1, 2, 5]).training_aspect == 2
    assert oriented(dimensions=3, orientation="ARS", spacing=[1, 2, 5]).training_aspect == 0.5
    assert oriented(dimensions=3, orientation="RAS", spacing=[1, None, 5]).training_aspect == 1
    assert oriented(dimensions=2, orientation="RAS", spacing=[1, 2]).codes is None


def stored(*scans: Geometry) -> Store:
    """Return a store of scans in RAS orientation without resampling."""
    cases = []
    for name, geometry in zip("abcdef", scans, strict=False):
        grid = plan_grid(geometry, orientation="RAS", spacing=None)
        shape, hashes = grid.prepared_shape, {f"{name}.npy": ""}
        cases.append(
            StoredCase(name, "unlabeled", f"{name}.npy", None, 1, shape, (), grid, geometry, sources={}, sha256=hashes)
        )
    return Store(Path("store"), "data", {}, ("background", "ring"), 1, 2, tuple(cases))


@pytest.mark.parametrize(
    ("spacing", "aspect"),
    [(None, 3), ([None, None, 5], 3), ([None, 2, 5], 2), ([1.5, None, 5], 2), ([0, 0, 0], 3), ([1.5, None], 2)],
)
def test_unset_spacing_is_the_median_of_the_scans(spacing: list[float | None] | None, aspect: float) -> None:
    store = stored(*(pointing("RAS", thick=axis) for axis in (1, 1, 0)))
    recipe = {"data": {"dimensions": 3, "orientation": "RAS", "spacing": spacing}}
    assert orientation_of(recipe, store, False).training_aspect == aspect
    assert orientation_of(recipe | {"batches": {"fit": "stretch"}}, store, False).training_aspect == 1
    assert orientation_of({"data": recipe["data"] | {"spacing": [2, 1, 1]}}, store, False).training_aspect == 0.5


@pytest.mark.parametrize("recipe", [None, {}, {"data": {}, "batches": {}}])
def test_orientation_is_unknown_without_settings(recipe: dict[str, Any] | None) -> None:
    assert orientation_of(recipe, None, False) == Orientation()


@pytest.mark.parametrize(("tested", "sentence"), [(None, SIDES_UNKNOWN), (False, AS_STORED), (True, SIDES_UNKNOWN)])
def test_2d_run_without_store_has_pictures_only_if_pictures_were_tested(tested: bool | None, sentence: str) -> None:
    recipe = {"data": {"dimensions": 2, "orientation": "RAS", "spacing": None}}
    orientation = orientation_of(recipe, None, tested)
    assert (
        orientation.training_sentence(augmented=False) == sentence
        and orientation.training_marks(augmented=False) is None
    )


def test_untested_run_without_store_has_unknown_sides(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    shutil.rmtree(run / "predictions")
    page = Page(render_report(run).read_text())
    assert page.text.count(SIDES_UNKNOWN) == 2 and AS_STORED not in page.text


def test_caption_names_the_shown_channel() -> None:
    single, double = (Orientation("RAS", is_volume=True, is_placed=True, channels=count) for count in (1, 2))
    assert (
        double.training_sentence(augmented=False)
        == f"{single.training_sentence(augmented=False)} The first of 2 channels is shown."
    )


def marks_of(page: Page) -> list[str]:
    return [text for element, text in page.texts if element == "text" and text in ("R", "L", "A", "P")]


def test_a_report_of_volumes_has_marks_in_all_three_places(tmp_path: Path) -> None:
    scans = write_scans(tmp_path / "scans", 3, labeled=2, unlabeled=2, test=1)
    still = {"batches": {"patch": [16, 16, 16], "labeled": 2, "unlabeled": 2, "augment": {"rotate_flip": 0.0}}}
    run = tmp_path / "run"
    api.train(tiny_recipe(3, **still), scans, run, device="cpu")
    text = api.test(run, device="cpu").report.read_text()
    for identity in ("cases", "mixed", "pseudo-labels"):
        part = text[text.index(f'<section id="{identity}"') :]
        part = part[: part.index("</section>")]
        assert "patient&#39;s right (R) on the left and the front on top" in part, identity
        page = Page(part + "</section>")
        pictures = [attributes for element, attributes in page.elements if attributes.get("class") == "picture"]
        assert marks_of(page) == ["R", "L"] * len(pictures) and pictures, identity


def test_pictures_have_no_marks(tmp_path: Path) -> None:
    page = Page(render_report(write_run(tmp_path)).read_text())
    assert marks_of(page) == [] and page.text.count(AS_STORED) == 3
    assert "2-D scan, reference and prediction from left to right." in page.text
    assert "95HD voxel" not in page.text and "95HD pixel" in page.text
