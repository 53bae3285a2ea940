"""RT structure sets as label maps: filled contours, holes, and the same class values in all cases."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pydicom
import pytest
from check_fakes import check
from hypothesis import given, settings
from hypothesis import strategies as st

from dicom_label_fakes import Image, write_rtstruct, write_seg
from graftseg.core.errors import Code
from graftseg.data.formats.dicom_labels import structures_of
from graftseg.data.formats.dicom_tags import numbers
from graftseg.data.layouts import read_layout
from graftseg.data.prepare import identity_settings, prepare
from graftseg.data.scans import grid_difference, read_geometry, read_label, write_label
from user_errors import user_error

IMAGE = Image()
CLASSES = {0: "background", 1: "liver", 2: "spleen"}
Polygon = list[tuple[float, float]]


def square(low: float, high: float) -> Polygon:
    return [(low, low), (high, low), (high, high), (low, high)]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return IMAGE.write(tmp_path_factory.mktemp("data") / "image")


def test_a_square_with_a_hole_and_a_keyhole(image: Path, tmp_path: Path) -> None:
    outer, inner = square(0.5, 5.5), square(1.5, 3.5)
    keyhole = [*outer, outer[0], *inner[::-1], inner[-1], outer[0]]
    contours = [IMAGE.contour(outer, 1), IMAGE.contour(inner, 1), IMAGE.contour(keyhole, 3)]
    path = write_rtstruct(tmp_path / "rs.dcm", [(7, "spleen", contours)])
    found = read_label(path, image, CLASSES)
    expected = np.zeros(IMAGE.shape, np.uint8)
    expected[1:6, 1:6, [1, 3]] = 2
    expected[2:4, 2:4, [1, 3]] = 0
    assert np.array_equal(found.array, expected) and expected.sum() == 2 * 2 * 21
    assert grid_difference(found.geometry, read_geometry(image)) is None


@pytest.mark.filterwarnings("ignore:The value for the data element .* exceeds the size of 64 kByte")
def test_a_contour_above_64_kb(image: Path, tmp_path: Path) -> None:
    """Explicit VR cannot store this number of values as DS, so they are written as UN and read as bytes."""
    steps = np.linspace(0, 1, 750, endpoint=False)
    corners = np.array([*square(0.5, 5.5), square(0.5, 5.5)[0]])
    points = np.concatenate([start + steps[:, None] * (end - start) for start, end in pairwise(corners)])
    assert points.shape == (3000, 2)
    contour = IMAGE.contour([(float(x), float(y)) for x, y in points], 1)
    path = write_rtstruct(tmp_path / "rs.dcm", [(1, "liver", [contour])])
    written = pydicom.dcmread(path).ROIContourSequence[0].ContourSequence[0].ContourData
    assert isinstance(written, bytes) and len(written) > 2**16
    expected = np.zeros(IMAGE.shape, np.uint8)
    expected[1:6, 1:6, 1] = 1
    assert np.array_equal(read_label(path, image, CLASSES).array, expected)


@pytest.mark.parametrize(
    "content", [b"\x01\x02\x03", b"ABC", b"1_0\\2\\3", b"1\\\\3", b"nan\\1\\2", b"1\\2\\3\0\0", b"123"]
)
def test_bytes_are_not_numbers_unless_they_are_decimal_strings(content: bytes) -> None:
    assert numbers(Path("a"), {"tag": b"1\\-2.5e1 \\ 3\0"}, "tag", 3) == pytest.approx([1, -25, 3])
    with user_error(Code.SCAN_HEADER, "a", "tag"):
        numbers(Path("a"), {"tag": content}, "tag", 3)


def test_contours_through_pixel_centers_of_an_oblique_slice(image: Path, tmp_path: Path) -> None:
    path = write_rtstruct(tmp_path / "rs.dcm", [(1, "liver", [IMAGE.contour(square(1, 4), 2)])])
    expected = np.zeros(IMAGE.shape, np.uint8)
    expected[1:4, 1:4, 2] = 1
    assert np.array_equal(read_label(path, image, CLASSES).array, expected)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_random_polygons_on_oblique_slices(image: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    measure = pytest.importorskip("skimage.measure")
    random = np.random.default_rng(seed)
    centers = np.argwhere(np.ones(IMAGE.shape[:2], bool))
    expected, contours = np.zeros(IMAGE.shape, bool), []
    for plane in random.integers(0, IMAGE.shape[2], 6):
        points = random.uniform(-2, 10, (int(random.integers(3, 8)), 2))
        contours.append(IMAGE.contour([(float(x), float(y)) for x, y in points], int(plane)))
        expected[:, :, plane] ^= measure.points_in_poly(centers, points).reshape(IMAGE.shape[:2])
    path = write_rtstruct(tmp_path_factory.mktemp("label") / "rs.dcm", [(1, "liver", contours)])
    assert np.array_equal(read_label(path, image, CLASSES).array, expected)


def test_contours_without_area_and_other_rois_are_reported(image: Path, tmp_path: Path) -> None:
    contours = [IMAGE.contour([(1, 1)], 0), IMAGE.contour(square(0.5, 2.5), 0)]
    rois = [(1, "liver", contours), (2, "BODY", [IMAGE.contour(square(-1, 20), 0.5)])]
    found = read_label(write_rtstruct(tmp_path / "rs.dcm", rois, kinds=["POINT"]), image, CLASSES)
    assert found.array.sum() == 4
    assert [guess.assumed for guess in found.guesses] == ["BODY", "1 POINT"]


def test_closed_contours_with_fewer_than_3_points_are_reported(image: Path, tmp_path: Path) -> None:
    small = [IMAGE.contour([(1, 1)], 0), IMAGE.contour([(1, 1), (4, 4)], 1), IMAGE.contour([(2, 2), (4, 2)], 1)]
    kinds = ["CLOSED_PLANAR"] * 2 + ["CLOSEDPLANAR_XOR"]
    rois = [
        (
            1,
            "liver",
            [*small, IMAGE.contour(square(0.5, 2.5), 0), IMAGE.contour([(0.5, 0.5), (2.5, 0.5), (0.5, 2.5)], 1)],
        )
    ]
    found = read_label(write_rtstruct(tmp_path / "rs.dcm", rois, kinds=kinds), image, CLASSES)
    assert found.array.sum() == 4 + 1
    taken = [guess.assumed for guess in found.guesses]
    assert [text.split(" with")[0] for text in taken] == ["2 CLOSED_PLANAR", "1 CLOSEDPLANAR_XOR"]


def test_points_on_one_line_are_reported(image: Path, tmp_path: Path) -> None:
    """A line encloses no area, so its distance from the slice does not matter."""
    line = IMAGE.contour([(1, 1), (2, 3), (3, 5), (2, 3)], 1.5)
    contours = [line, IMAGE.contour([(2, 2)] * 3, 0), IMAGE.contour(square(0.5, 2.5), 0)]
    found = read_label(write_rtstruct(tmp_path / "rs.dcm", [(1, "liver", contours)]), image, CLASSES)
    assert found.array.sum() == 4
    assert [guess.assumed.split(" with")[0] for guess in found.guesses] == ["2 CLOSED_PLANAR"]


def test_copies_of_a_contour_do_not_cancel(image: Path, tmp_path: Path) -> None:
    one, hole = IMAGE.contour(square(0.5, 4.5), 0), IMAGE.contour(square(1.5, 2.5), 0)
    turned, closed = IMAGE.contour(square(0.5, 4.5)[::-1], 0), IMAGE.contour([*square(0.5, 4.5), (0.5, 0.5)], 0)
    contours = [one, hole, one, turned, closed]
    found = read_label(write_rtstruct(tmp_path / "rs.dcm", [(1, "liver", contours)]), image, CLASSES)
    assert found.array.sum() == 16 - 1
    assert [guess.assumed for guess in found.guesses] == ["3 repeated"]
    # two ROIs may share a contour, which is then an overlap
    both = [(1, "liver", [one]), (2, "spleen", [one])]
    with user_error(Code.LABEL_INVALID, keyword="overlap in 16 pixels"):
        read_label(write_rtstruct(tmp_path / "rs.dcm", both), image, CLASSES)


def test_a_backslash_in_a_name(image: Path, tmp_path: Path) -> None:
    path = write_rtstruct(tmp_path / "rs.dcm", [(1, "liver\\left", [IMAGE.contour(square(0.5, 2.5), 0)])])
    assert [one.name for one in structures_of(path)] == ["liver\\left"]
    assert read_label(path, image, {0: "background", 1: "liver\\left"}).array.sum() == 4


def test_wrong_contours_are_refused(image: Path, tmp_path: Path) -> None:
    path = tmp_path / "rs.dcm"
    between, tilted = IMAGE.contour(square(1, 3), 1.5), IMAGE.contour(square(1, 3), 1)
    tilted[:3] = IMAGE.point(1, 1, 2).tolist()
    for contour, code in (
        (between, Code.GEOMETRY_MISMATCH),
        (tilted, Code.GEOMETRY_MISMATCH),
        (IMAGE.contour(square(1, 3), 1)[:-1], Code.SCAN_HEADER),
        ([], Code.SCAN_HEADER),
    ):
        with user_error(code, path, "contour 1 of ROI 4") as caught:
            read_label(write_rtstruct(path, [(4, "liver", [contour])]), image, CLASSES)
        assert "Doe" not in str(caught.value)
    with user_error(Code.GEOMETRY_MISMATCH, path, "FrameOfReference"):
        read_label(write_rtstruct(path, [(4, "liver", [between])], frame="1.9"), image, CLASSES)
    overlap = [(1, "liver", [IMAGE.contour(square(0.5, 3.5), 1)]), (2, "spleen", [IMAGE.contour(square(2.5, 4.5), 1)])]
    with user_error(Code.LABEL_INVALID, path, "liver and spleen overlap in 1 pixel of slice 2"):
        read_label(write_rtstruct(path, overlap), image, CLASSES)


def test_a_truncated_file_is_refused(image: Path, tmp_path: Path) -> None:
    path = write_rtstruct(tmp_path / "rs.dcm", [(1, "liver", [IMAGE.contour(square(1, 3), z) for z in range(5)])])
    content, begin = path.read_bytes(), path.read_bytes().index(b"CLOSED_PLANAR")
    for size in range(begin, len(content) - 12, 29):
        path.write_bytes(content[:size])
        with user_error(Code.SCAN_DAMAGED, path):
            read_label(path, image, CLASSES)


def data_folder(root: Path, order: dict[str, list[str]]) -> Path:
    """Write cases whose ROIs are in the given order. Liver has 4 voxels, spleen 9 and BODY 25."""
    sizes = {"liver": (0.5, 2.5), "spleen": (2.5, 5.5), "BODY": (0.5, 5.5)}
    for split in ("Tr", "Ts"):
        for case, names in order.items():
            IMAGE.write(root / f"images{split}" / f"{case}{split}")
            rois = [(9 + rank, name, [IMAGE.contour(square(*sizes[name]), 1)]) for rank, name in enumerate(names)]
            write_rtstruct(root / f"labels{split}" / f"{case}{split}.dcm", rois[::-1])
    return root


def test_rois_in_another_order_keep_their_class(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", {"a": ["spleen", "liver"], "b": ["liver", "spleen"]})
    dataset = read_layout(data)
    assert dataset.classes == {0: "background", 1: "spleen", 2: "liver"} and dataset.problems == ()
    for case in dataset.cases:
        assert np.bincount(dataset.reader.label(case).array.ravel())[1:].tolist() == [9, 4]
    assert [case.split for case in dataset.cases] == ["labeled"] * 2 + ["test"] * 2
    assert not [finding for finding in check(dataset) if finding.severity == "error"]


def test_other_rois_in_a_case_need_a_class_list(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", {"a": ["liver"], "b": ["liver", "spleen"]})
    with user_error(Code.LABEL_INVALID, "b", '{"labels": {"background": 0, "liver": 1, "spleen": 2}}'):
        prepare(read_layout(data), tmp_path / "store", identity_settings(3))
    (data / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "spleen": 1, "liver": 2}}))
    store = prepare(read_layout(data), tmp_path / "store", identity_settings(3))
    assert store.classes == ("background", "spleen", "liver")
    counts = {case.name: np.bincount(np.asarray(store.label(case)).ravel())[1:].tolist() for case in store.cases}
    assert counts == {"aTr": [0, 4], "bTr": [9, 4], "aTs": [0, 4], "bTs": [9, 4]}
    # another class list changes the values in the store
    (data / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "liver": 1, "spleen": 2}}))
    store = prepare(read_layout(data), tmp_path / "store", identity_settings(3))
    assert np.bincount(np.asarray(store.label(store.cases[1])).ravel())[1:].tolist() == [4, 9]


def test_rois_that_are_not_listed_are_ignored_and_reported(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", {"a": ["liver", "BODY"], "b": ["BODY", "liver"]})
    (data / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "liver": 1}}))
    findings = [finding for finding in check(read_layout(data)) if "not classes" in finding.what]
    assert [(finding.severity, finding.size) for finding in findings] and "BODY" in findings[0].size


def test_a_mix_with_other_formats_needs_a_class_list(tmp_path: Path) -> None:
    data = data_folder(tmp_path / "data", {"a": ["liver"], "b": ["liver"]})
    geometry = read_geometry(data / "imagesTr" / "bTr")
    (data / "labelsTr" / "bTr.dcm").unlink()
    write_label(data / "labelsTr" / "bTr.nii.gz", np.ones(IMAGE.shape, np.uint8), geometry)
    dataset = read_layout(data)
    assert dataset.classes == {}
    with user_error(Code.LABEL_INVALID, "aTr", "dataset.json"):
        dataset.reader.label(dataset.cases[0])


@pytest.mark.parametrize(("name", "keyword"), [("", "no name"), ("left\nliver", "control characters")])
def test_an_invalid_name_names_the_label_and_the_roi(tmp_path: Path, name: str, keyword: str) -> None:
    contours = [IMAGE.contour(square(0.5, 2.5), 1)]
    for case, second in (("a", "spleen"), ("b", name)):
        IMAGE.write(tmp_path / "imagesTr" / case)
        write_rtstruct(tmp_path / "labelsTr" / f"{case}.dcm", [(4, "liver", contours), (7, second, [])])
    dataset = read_layout(tmp_path)
    (problem,) = dataset.problems
    assert (problem.code, problem.where) == (Code.LABEL_INVALID, str(tmp_path / "labelsTr" / "b.dcm"))
    assert "ROI 7" in problem.finding and keyword in problem.finding and "\n" not in problem.finding
    # a class list makes the name irrelevant
    (tmp_path / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "liver": 1}}))
    dataset = read_layout(tmp_path)
    (guess,) = dataset.reader.label(dataset.cases[1]).guesses
    assert dataset.problems == () and "\n" not in guess.assumed and guess.assumed


def test_a_repeated_name_names_the_label_and_the_rois(tmp_path: Path) -> None:
    IMAGE.write(tmp_path / "imagesTr" / "a")
    rois = [(key, "liver", [IMAGE.contour(square(0.5, 2.5), 1)]) for key in (4, 7)]
    path = write_rtstruct(tmp_path / "labelsTr" / "a.dcm", rois)
    with user_error(Code.LABEL_INVALID, path, "ROI 4 and ROI 7"):
        dataset = read_layout(tmp_path)
        dataset.reader.label(dataset.cases[0])


def test_an_roi_called_background_is_not_a_class(tmp_path: Path) -> None:
    IMAGE.write(tmp_path / "imagesTr" / "a")
    rois = [(1, "background", [IMAGE.contour(square(-1, 20), 1)]), (2, "liver", [IMAGE.contour(square(0.5, 2.5), 1)])]
    write_rtstruct(tmp_path / "labelsTr" / "a.dcm", rois)
    dataset = read_layout(tmp_path)
    assert dataset.classes == {0: "background", 1: "liver"} and dataset.problems == ()
    assert dataset.reader.label(dataset.cases[0]).array.sum() == 4


@pytest.mark.parametrize("name", ['the "left" liver', "Milz\u00a0links", "L\u00e4sion"])
def test_the_suggested_class_list_is_json(tmp_path: Path, name: str) -> None:
    for case, key in (("a", "spleen"), ("b", name)):
        IMAGE.write(tmp_path / "imagesTr" / case)
        write_rtstruct(tmp_path / "labelsTr" / f"{case}.dcm", [(1, key, [IMAGE.contour(square(0.5, 2.5), 1)])])
    (problem,) = read_layout(tmp_path).problems
    text = str(problem).split("as in ")[1].removesuffix(f". [{problem.code}]")
    assert json.loads(text) == {"labels": {"background": 0, "spleen": 1, name: 2}}


@pytest.mark.parametrize("numbers", [(1, 3), (2, 4)])
def test_segment_numbers_with_gaps(tmp_path: Path, numbers: tuple[int, int]) -> None:
    mask = np.zeros((9, 7))
    mask[3, 3] = 1
    IMAGE.write(tmp_path / "imagesTr" / "a")
    names = dict(zip(numbers, ("liver", "spleen"), strict=True))
    write_seg(tmp_path / "labelsTr" / "a.dcm", IMAGE, [(numbers[1], 1, mask)], names)
    dataset = read_layout(tmp_path)
    assert dataset.classes == CLASSES and dataset.reader.label(dataset.cases[0]).array.max() == 2
    assert prepare(dataset, tmp_path / "store", identity_settings(3)).classes == ("background", "liver", "spleen")


def test_segment_numbers_are_label_values_without_a_class_list(tmp_path: Path) -> None:
    mask = np.zeros((9, 7))
    mask[3, 3] = 1
    IMAGE.write(tmp_path / "imagesTr" / "a")
    write_seg(tmp_path / "labelsTr" / "a_seg.dcm", IMAGE, [(2, 1, mask)], {2: "spleen", 1: "liver"})
    dataset = read_layout(tmp_path)
    assert dataset.classes == CLASSES
    assert dataset.reader.label(dataset.cases[0]).array[3, 3, 1] == 2
