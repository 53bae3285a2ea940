import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from report_fakes import CASES, GEOMETRY, Page, decode_uri, disc, write_manifest, write_predictions

from graftseg.core.predictions import PredictedCase
from graftseg.core.types import Geometry, Matrix
from graftseg.data.scans import write_label, write_scan
from graftseg.data.slices import gray_window
from graftseg.reporting.cases import cases_section, chosen_cases, reported_cases, slices_of
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
    results = read_results(write_predictions(tmp_path / "run", tmp_path / "labels", radii))
    assert results is not None
    return results


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


def test_axial_slice_shows_right_on_the_left_and_front_on_top() -> None:
    image = np.zeros((4, 5, 3))
    image[3, 4, 1] = 1.0  # the most right and most anterior voxel of a scan in RAS
    reference = np.zeros((4, 5, 3), np.uint8)
    reference[3, 4, 1] = 1
    (shown,) = slices_of(image, reference, reference, Geometry((4, 5, 3), diagonal(1, 2, 3)), RAS)
    assert shown.image.shape == (5, 4)
    assert shown.image[0, 0] == shown.reference[0, 0] == shown.prediction[0, 0] == 1
    assert shown.image.sum() == 1
    assert shown.aspect == 2.0


def test_coronal_slice_has_the_head_on_top() -> None:
    image = np.zeros((4, 5, 3))
    image[3, 2, 2] = 1.0  # right and superior
    (shown,) = slices_of(
        image, image.astype(np.uint8), image.astype(np.uint8), Geometry((4, 5, 3), diagonal(1, 4, 1)), RAS
    )
    assert shown.image.shape == (3, 4)
    assert shown.image[0, 0] == 1


def test_equal_spacing_is_cut_across_the_last_axis() -> None:
    volume = np.zeros((4, 5, 3), np.uint8)
    (shown,) = slices_of(volume, volume, volume, Geometry((4, 5, 3), diagonal(1, 1, 1)), RAS)
    assert shown.image.shape == (5, 4)


def test_all_slices_have_the_window_of_the_scan() -> None:
    image = np.zeros((10, 10, 3), np.float32)
    image[..., 1] = np.arange(100).reshape(10, 10)
    labels = of_slices([1] * 9, [], [2])
    slices = slices_of(
        image, np.resize(labels, image.shape), np.zeros(image.shape), Geometry(image.shape, diagonal(1, 1, 2)), RAS
    )
    assert {each.window for each in slices} == {gray_window(image)}


def of_slices(*kinds: list[int]) -> NDArray[np.uint8]:
    """Return a volume whose slices across the last axis contain these labels."""
    labels = np.zeros((4, 5, len(kinds)), np.uint8)
    for index, values in enumerate(kinds):
        labels[..., index].flat[: len(values)] = values
    return labels


@pytest.mark.parametrize(
    ("reference", "prediction", "added", "absent"),
    [
        (of_slices([1] * 9, [1], [2] * 2), of_slices([], [], []), (2,), ()),
        (of_slices([1] * 9, [1, 2], [2]), of_slices([2] * 3, [], []), (2,), ()),
        (of_slices([1] * 9, [], []), of_slices([1], [2], [2] * 3), (2,), ()),
        (of_slices([1] * 9, [2], [3, 3]), of_slices([], [4] * 9, []), (3,), (2, 4)),
        (of_slices([1] * 9, [2, 3], [2, 2, 3]), of_slices([], [], [4]), (2, 3, 4), ()),
    ],
)
def test_second_slice_shows_classes_missing_in_the_first(
    reference: NDArray[np.uint8], prediction: NDArray[np.uint8], added: tuple[int, ...], absent: tuple[int, ...]
) -> None:
    geometry = Geometry(reference.shape, diagonal(1, 1, 2))
    first, second = slices_of(reference, reference, prediction, geometry, RAS)
    assert (first.added_classes, first.absent_classes) == ((), ()) and np.count_nonzero(first.reference) == 9
    assert (second.added_classes, second.absent_classes) == (added, absent) and second.marks == first.marks
    counts = [int(np.isin(plane, added).sum()) for plane in (second.reference, second.prediction)]
    largest = [max(np.isin(volume, added).sum(axis=(0, 1))) for volume in (reference, prediction)]
    assert counts[0] == largest[0] if largest[0] else counts[1] == largest[1]


def test_no_second_slice_if_the_first_shows_all_classes() -> None:
    labels = of_slices([1] * 9, [2], [1, 1, 2, 2, 1, 1, 1, 1, 1, 1])
    assert len(slices_of(labels, labels, labels, Geometry(labels.shape, diagonal(1, 1, 2)), RAS)) == 1


def test_cases_are_shown_worst_first_with_reference_and_prediction(results: Results) -> None:
    page = Page(cases_section(results, Gallery(NAMES, Album(), Orientation())))
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
    write_manifest(out, PredictedCase("a", (str(tmp_path / "a.nii.gz"),), "a.nii.gz", 0.1))
    evaluation = evaluate_folder(out, labels, classes={1: "ring", 2: "core"})
    results = Results(out, evaluation, labels)
    html = cases_section(results, Gallery(NAMES, Album(), RAS))
    held_out = reported_cases(results, origin="held out of fold 0")
    assert cases_section(results, Gallery(NAMES, Album(), RAS), held_out).count("most voxels of core") == 1
    assert html.count('class="row"') == 4 and html.count(" hidden>") == 3 and html.count("<figcaption>") == 1
    assert "The slice with the most voxels of core" in html and "a second row shows the slice" in html
    layers = [decode_uri(address) for address in Page(html).attributes("href") if address[0] != "#"]
    layers = [layer for layer in layers if layer.ndim == 3]
    assert len(layers) == 8  # three slices and the second row
    np.testing.assert_array_equal(layers[6], label_layer(np.rot90(reference[..., 2].T, 2)))


def test_2d_scans_have_one_row(results: Results) -> None:
    html = cases_section(results, Gallery(NAMES, Album(), Orientation()))
    assert html.count('class="row"') == len(CASES) and "second row" not in html


def page_text(results: Results) -> str:
    return Page(cases_section(results, Gallery(NAMES, Album(), Orientation()))).text


def test_missing_scan_leaves_the_picture_out(results: Results) -> None:
    (results.folder.parents[1] / "images" / "c.nii.gz").unlink()
    assert "No picture: c.nii.gz has been moved or deleted." in page_text(results)


def test_missing_reference_leaves_the_picture_out(results: Results) -> None:
    assert results.references is not None
    (results.references / "c.nii.gz").unlink()
    assert page_text(results).count("the reference has been moved or deleted") == 1


def test_reference_with_a_label_ending(results: Results) -> None:
    assert results.references is not None
    (results.references / "c.nii.gz").rename(results.references / "c_segmentation.nii.gz")
    assert "No picture" not in page_text(results)


def test_a_second_reference_of_a_case_does_not_hide_its_picture(results: Results) -> None:
    assert results.references is not None
    first = results.references / "c.nii.gz"
    (results.references / "c.nii").write_bytes(gzip.decompress(first.read_bytes()))
    assert "No picture" not in page_text(results)


def test_damaged_scan_leaves_the_picture_out_without_its_path(results: Results) -> None:
    image = results.folder.parents[1] / "images" / "c.nii.gz"
    image.write_bytes(image.read_bytes()[:-9])
    assert "No picture: c.nii.gz cannot be read." in page_text(results)
    assert str(image.parent) not in page_text(results)


def test_different_shape_leaves_the_picture_out(results: Results) -> None:
    geometry = Geometry((5, 5), GEOMETRY.affine)
    write_label(results.folder / "c.nii.gz", np.zeros((5, 5), np.uint8), geometry)
    assert "have different shapes" in page_text(results)


def test_manifest_without_scans(results: Results) -> None:
    write_manifest(results.folder, *(PredictedCase(case, (), f"{case}.nii.gz", 0.1) for case in CASES))
    assert page_text(results).count("lists no scan of this case") == len(CASES)
