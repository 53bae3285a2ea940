import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from report_fakes import CASES, GEOMETRY, Page, decode_uri, disc, write_predictions

from graftseg.core.types import Geometry, Matrix
from graftseg.data.gray_window import gray_window
from graftseg.data.scans import write_label, write_scan
from graftseg.reporting.cases import cases_section, chosen_cases, predicted_in, views_of
from graftseg.reporting.gallery import Gallery
from graftseg.reporting.orientation import Orientation
from graftseg.reporting.pictures import Album, label_layer
from graftseg.reporting.results import Results, read_results
from scoring import evaluate_folder

RAS = Orientation("RAS", is_volume=True)
NAMES = ["background", "ring", "core"]


def diagonal(*spacing: float) -> Matrix:
    return tuple(tuple(row) for row in np.diag([*spacing, 1.0]).tolist())


@pytest.fixture
def results(tmp_path: Path) -> Results:
    radii = dict(zip(CASES, (7.9, 7.0, 6.0, 5.0), strict=True))
    found = read_results(write_predictions(tmp_path / "run", tmp_path / "labels", radii))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("count", "ranks"),
    [
        (1, {"0": "the only case"}),
        (2, {"0": "worst", "1": "best"}),
        (3, {"0": "worst", "1": "median", "2": "best"}),
        (4, {"0": "worst", "1": "median", "2": "third worst", "3": "best"}),
        (9, {"0": "worst", "1": "second worst", "2": "third worst", "4": "median", "8": "best"}),
    ],
)
def test_chosen_cases(count: int, ranks: dict[str, str]) -> None:
    chosen = chosen_cases([str(place) for place in range(count)])
    assert chosen == ranks
    assert list(chosen) == list(ranks)


def test_transverse_slice_shows_right_on_the_left_and_front_on_top() -> None:
    image = np.zeros((4, 5, 3))
    image[3, 4, 1] = 1.0  # the most right and most anterior voxel of a scan in RAS
    reference = np.zeros((4, 5, 3), np.uint8)
    reference[3, 4, 1] = 1
    (view,) = views_of(image, reference, reference, Geometry((4, 5, 3), diagonal(1, 2, 3)), RAS)
    assert view.image.shape == (5, 4)
    assert view.image[0, 0] == view.reference[0, 0] == view.prediction[0, 0] == 1
    assert view.image.sum() == 1
    assert view.aspect == 2.0


def test_coronal_slice_has_the_head_on_top() -> None:
    image = np.zeros((4, 5, 3))
    image[3, 2, 2] = 1.0  # right and superior
    (view,) = views_of(
        image, image.astype(np.uint8), image.astype(np.uint8), Geometry((4, 5, 3), diagonal(1, 4, 1)), RAS
    )
    assert view.image.shape == (3, 4)
    assert view.image[0, 0] == 1


def test_equal_spacing_is_cut_across_the_last_axis() -> None:
    volume = np.zeros((4, 5, 3), np.uint8)
    (view,) = views_of(volume, volume, volume, Geometry((4, 5, 3), diagonal(1, 1, 1)), RAS)
    assert view.image.shape == (5, 4)


def test_all_slices_have_the_window_of_the_scan() -> None:
    image = np.zeros((10, 10, 3), np.float32)
    image[..., 1] = np.arange(100).reshape(10, 10)
    labels = of_slices([1] * 9, [], [2])
    views = views_of(
        image, np.resize(labels, image.shape), np.zeros(image.shape), Geometry(image.shape, diagonal(1, 1, 2)), RAS
    )
    assert {view.window for view in views} == {gray_window(image)}


def of_slices(*kinds: list[int]) -> NDArray[np.uint8]:
    """Return a volume whose slices across the last axis contain these labels."""
    labels = np.zeros((4, 5, len(kinds)), np.uint8)
    for index, values in enumerate(kinds):
        labels[..., index].flat[: len(values)] = values
    return labels


@pytest.mark.parametrize(
    ("reference", "prediction", "shows", "hides"),
    [
        (of_slices([1] * 9, [1], [2] * 2), of_slices([], [], []), (2,), ()),
        (of_slices([1] * 9, [1, 2], [2]), of_slices([2] * 3, [], []), (2,), ()),
        (of_slices([1] * 9, [], []), of_slices([1], [2], [2] * 3), (2,), ()),
        (of_slices([1] * 9, [2], [3, 3]), of_slices([], [4] * 9, []), (3,), (2, 4)),
        (of_slices([1] * 9, [2, 3], [2, 2, 3]), of_slices([], [], [4]), (2, 3, 4), ()),
    ],
)
def test_second_slice_shows_classes_missing_in_the_first(
    reference: NDArray[np.uint8], prediction: NDArray[np.uint8], shows: tuple[int, ...], hides: tuple[int, ...]
) -> None:
    geometry = Geometry(reference.shape, diagonal(1, 1, 2))
    first, second = views_of(reference, reference, prediction, geometry, RAS)
    assert (first.shows, first.hides) == ((), ()) and np.count_nonzero(first.reference) == 9
    assert (second.shows, second.hides) == (shows, hides) and second.marks == first.marks
    counts = [int(np.isin(maps, shows).sum()) for maps in (second.reference, second.prediction)]
    best = [max(np.isin(maps, shows).sum(axis=(0, 1))) for maps in (reference, prediction)]
    assert counts[0] == best[0] if best[0] else counts[1] == best[1]


def test_no_second_slice_if_the_first_shows_all_classes() -> None:
    labels = of_slices([1] * 9, [2], [1, 1, 2, 2, 1, 1, 1, 1, 1, 1])
    assert len(views_of(labels, labels, labels, Geometry(labels.shape, diagonal(1, 1, 2)), RAS)) == 1


def test_worst_first_with_reference_and_prediction(results: Results) -> None:
    page = Page(cases_section(results, Gallery(NAMES, Album())))
    assert [text for element, text in page.texts if element == "b"] == list(reversed(CASES))
    layers = [decode_uri(address) for address in page.attributes("href") if address[0] != "#"]
    layers = [layer for layer in layers if layer.ndim == 3]
    np.testing.assert_array_equal(layers[0], label_layer(disc(8.0).T))
    np.testing.assert_array_equal(layers[1], label_layer(disc(5.0).T))


def test_second_row_shows_a_small_class(tmp_path: Path) -> None:
    labels, out, geometry = (
        tmp_path / "labels",
        tmp_path / "run" / "predictions",
        Geometry((4, 5, 3), diagonal(1, 1, 2)),
    )
    reference = of_slices([1] * 9, [], [2, 2])
    for folder in (labels, out):
        write_label(folder / "a.nii.gz", reference, geometry)
    write_scan(tmp_path / "a.nii.gz", reference.astype(np.float32), geometry)
    entry = {"case": "a", "images": [str(tmp_path / "a.nii.gz")], "output": "a.nii.gz"}
    (out / "manifest.json").write_text(json.dumps({"cases": [entry]}))
    evaluation = evaluate_folder(out, labels, classes={1: "ring", 2: "core"})
    results = Results(out, evaluation, labels)
    html = cases_section(results, Gallery(NAMES, Album(), RAS))
    held_out = predicted_in(results, origin="held out of fold 0")
    assert cases_section(results, Gallery(NAMES, Album(), RAS), held_out).count("most voxels of core") == 1
    assert html.count('class="row"') == 4 and html.count(" hidden>") == 3 and html.count("<figcaption>") == 1
    assert "The slice with most voxels of core" in html and "a second row shows the slice" in html
    layers = [decode_uri(address) for address in Page(html).attributes("href") if address[0] != "#"]
    layers = [layer for layer in layers if layer.ndim == 3]
    assert len(layers) == 8  # three slices and the second row
    np.testing.assert_array_equal(layers[6], label_layer(np.rot90(reference[..., 2].T, 2)))


def test_pictures_have_one_row(results: Results) -> None:
    html = cases_section(results, Gallery(NAMES, Album()))
    assert html.count('class="row"') == len(CASES) and "second row" not in html


def sentence(results: Results) -> str:
    return Page(cases_section(results, Gallery(NAMES, Album()))).text


def test_missing_scan_leaves_the_picture_out(results: Results) -> None:
    (results.folder.parents[1] / "images" / "c.nii.gz").unlink()
    assert "No picture: c.nii.gz has been moved or deleted." in sentence(results)


def test_missing_reference_leaves_the_picture_out(results: Results) -> None:
    assert results.references is not None
    (results.references / "c.nii.gz").unlink()
    assert sentence(results).count("the reference has been moved or deleted") == 1


def test_damaged_scan_leaves_the_picture_out_without_its_path(results: Results) -> None:
    image = results.folder.parents[1] / "images" / "c.nii.gz"
    image.write_bytes(image.read_bytes()[:-9])
    assert "No picture: c.nii.gz cannot be read." in sentence(results)
    assert str(image.parent) not in sentence(results)


def test_different_shape_leaves_the_picture_out(results: Results) -> None:
    geometry = Geometry((5, 5), GEOMETRY.affine)
    write_label(results.folder / "c.nii.gz", np.zeros((5, 5), np.uint8), geometry)
    assert "have different shapes" in sentence(results)


def test_manifest_without_scans(results: Results) -> None:
    entries = [{"case": case, "output": f"{case}.nii.gz"} for case in CASES]
    (results.folder / "manifest.json").write_text(json.dumps({"cases": entries}))
    assert sentence(results).count("lists no scan of this case") == len(CASES)
