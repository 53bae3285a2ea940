"""DICOM segmentations as label maps: position of frames, types, overlaps and class names."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from numpy.typing import NDArray

from dicom_label_fakes import SEGMENTATION, Image, write_seg
from graftseg.core.errors import Code, UserError
from graftseg.data.layouts import read_layout
from graftseg.data.scans import grid_difference, is_label_map, read_geometry, read_label, read_scan
from user_errors import user_error

IMAGE = Image()
NAMES = {1: "liver", 2: "spleen"}
CLASSES = {0: "background", 1: "liver", 2: "spleen"}
Labels = NDArray[np.uint8]


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return IMAGE.write(tmp_path / "image")


@pytest.fixture
def labels() -> Labels:
    return np.random.default_rng(3).integers(0, 3, IMAGE.shape).astype(np.uint8)


def frames_of(labels: Labels) -> list[tuple[int, float, NDArray[Any]]]:
    """Return a frame for each segment and slice, in random order."""
    frames = [(value, float(z), labels[:, :, z] == value) for value in (1, 2) for z in range(labels.shape[2])]
    return [frames[index] for index in np.random.default_rng(0).permutation(len(frames))]


def test_frames_in_any_order_are_placed_by_position(image: Path, labels: Labels, tmp_path: Path) -> None:
    path = write_seg(tmp_path / "seg.dcm", IMAGE, frames_of(labels), NAMES)
    found = read_label(path, image, CLASSES)
    assert np.array_equal(found.array, labels) and found.array.dtype == np.uint8
    assert found.guesses == () and grid_difference(found.geometry, read_geometry(image)) is None
    assert {*np.unique(read_scan(image).array[0][:, :, 2] // 100)} == {2}


def test_empty_frames_may_be_left_out(image: Path, labels: Labels, tmp_path: Path) -> None:
    labels[:, :, 1:] = 0
    frames = [frame for frame in frames_of(labels) if frame[2].any()]
    assert len(frames) == 2
    found = read_label(write_seg(tmp_path / "seg", IMAGE, frames, NAMES), image, CLASSES)
    assert np.array_equal(found.array, labels)


def test_a_label_map_segmentation(image: Path, labels: Labels, tmp_path: Path) -> None:
    frames = [(0, float(z), labels[:, :, z]) for z in (3, 0, 4, 1, 2)]
    names = {0: "Background", **NAMES}
    path = write_seg(tmp_path / "seg.dcm", IMAGE, frames, names, "LABELMAP")
    assert np.array_equal(read_label(path, image, CLASSES).array, labels)
    path = write_seg(tmp_path / "seg.dcm", IMAGE, frames, {1: "liver"}, "LABELMAP")
    with user_error(Code.SCAN_HEADER, path, "SegmentSequence"):
        read_label(path, image, CLASSES)


def test_mirrored_turned_and_smaller_frames(image: Path, labels: Labels, tmp_path: Path) -> None:
    """The frames have rows and columns swapped, run backward along the columns, and lack the first column."""
    columns, rows, _ = IMAGE.shape
    corner = IMAGE.point(columns - 1, 0, 0)
    turned = Image(
        origin=tuple(corner),
        along=IMAGE.down,
        down=tuple(-value for value in IMAGE.along),
        spacing=(IMAGE.spacing[1], IMAGE.spacing[0]),
    )
    labels[0] = 0
    frames = [(value, z, pixels[1:][::-1].T) for value, z, pixels in frames_of(labels)]
    assert frames[0][2].shape == (rows, columns - 1)
    path = write_seg(tmp_path / "seg.dcm", turned, frames, NAMES)
    assert np.array_equal(read_label(path, image, CLASSES).array, labels)


def test_uneven_slices_are_matched_by_their_own_positions(labels: Labels, tmp_path: Path) -> None:
    uneven = Image(jitter={1: 0.3, 3: -0.2})
    image = uneven.write(tmp_path / "image")
    path = write_seg(tmp_path / "seg.dcm", uneven, frames_of(labels), NAMES)
    assert np.array_equal(read_label(path, image, CLASSES).array, labels)
    with user_error(Code.GEOMETRY_MISMATCH, "seg.dcm", "nearest slice"):
        read_label(write_seg(tmp_path / "seg.dcm", IMAGE, frames_of(labels), NAMES), image, CLASSES)


@pytest.mark.parametrize("plane", [1.5, -1.0, 5.0])
def test_frames_between_and_beyond_the_slices_are_refused(plane: float, image: Path, tmp_path: Path) -> None:
    path = write_seg(tmp_path / "seg.dcm", IMAGE, [(1, plane, np.ones((9, 7)))], NAMES)
    with user_error(Code.GEOMETRY_MISMATCH, path, "frame 1 lies") as caught:
        read_label(path, image, CLASSES)
    assert "Doe" not in str(caught.value) and "12345" not in str(caught.value)


@pytest.mark.parametrize(
    "other",
    [
        Image(spacing=(1.0, 1.5)),
        Image(origin=tuple(IMAGE.point(0.4, 0, 0))),
        Image(origin=tuple(IMAGE.point(1, 0, 0))),
        Image(frame="1.2.3.5"),
    ],
    ids=["coarser", "half a pixel", "beyond the edge", "frame of reference"],
)
def test_other_grids_are_refused(other: Image, image: Path, tmp_path: Path) -> None:
    path = write_seg(tmp_path / "seg.dcm", other, [(1, 2, np.ones((9, 7)))], NAMES)
    with user_error(Code.GEOMETRY_MISMATCH, path):
        read_label(path, image, CLASSES)


def test_fractional_segmentations_are_refused(image: Path, tmp_path: Path) -> None:
    path = write_seg(tmp_path / "seg.dcm", IMAGE, [(1, 2, np.ones((9, 7)))], NAMES, "FRACTIONAL")
    with user_error(Code.SCAN_UNSUPPORTED, path, "FRACTIONAL"):
        read_label(path, image, CLASSES)


def test_overlapping_segments_are_named(image: Path, tmp_path: Path) -> None:
    both, one = np.zeros((9, 7)), np.zeros((9, 7))
    both[2:5, 1], one[4, :] = 1, 1
    path = write_seg(tmp_path / "seg.dcm", IMAGE, [(1, 2, both), (2, 2, one)], NAMES)
    with user_error(Code.LABEL_INVALID, path, "liver and spleen overlap in 1 pixel of slice 3"):
        read_label(path, image, CLASSES)
    # only one of them is a class
    found = read_label(path, image, {0: "background", 1: "spleen"})
    assert found.array.sum() == 7
    assert [guess.assumed for guess in found.guesses] == ["liver"]


def test_names_decide_the_values(image: Path, labels: Labels, tmp_path: Path) -> None:
    path = write_seg(tmp_path / "seg.dcm", IMAGE, frames_of(labels), {1: " Spleen", 2: "LIVER"})
    swapped = np.array([0, 2, 1], np.uint8)[labels]
    assert np.array_equal(read_label(path, image, CLASSES).array, swapped)
    with user_error(Code.LABEL_INVALID, path, "kidney"):
        read_label(path, image, {0: "background", 1: "kidney"})
    with user_error(Code.LABEL_INVALID, path, "class list"):
        read_label(path, image)
    with user_error(Code.LABEL_INVALID, path, "segment 1 and segment 2 have the same name"):
        read_label(write_seg(path, IMAGE, frames_of(labels), {1: "liver", 2: "Liver"}), image, CLASSES)


def test_a_folder_with_one_label_is_a_label(image: Path, labels: Labels, tmp_path: Path) -> None:
    folder = tmp_path / "labels" / "case"
    write_seg(folder / "anything", IMAGE, frames_of(labels), NAMES)
    assert is_label_map(folder) and not is_label_map(image)
    assert np.array_equal(read_label(folder, image, CLASSES).array, labels)
    write_seg(folder / "second", IMAGE, frames_of(labels), NAMES)
    with user_error(Code.LABEL_INVALID, folder, "keep one"):
        read_label(folder, image, CLASSES)


def test_other_files_are_not_labels(image: Path, tmp_path: Path) -> None:
    slice_file = sorted(image.iterdir())[0]
    assert not is_label_map(slice_file)
    with user_error(Code.SCAN_UNSUPPORTED, slice_file):
        read_label(slice_file, image, CLASSES)
    path = write_seg(tmp_path / "seg.dcm", IMAGE, [(1, 2, np.ones((9, 7)))], NAMES)
    with user_error(Code.SCAN_UNSUPPORTED, path, "DICOM image"):
        read_label(path, tmp_path / "image.nii.gz", CLASSES)
    damaged = tmp_path / "damaged.dcm"
    damaged.write_bytes(path.read_bytes()[:700])
    assert is_label_map(damaged)
    with user_error(Code.SCAN_DAMAGED, damaged):
        read_label(damaged, image, CLASSES)
    damaged.write_bytes(b"no DICOM")
    assert is_label_map(damaged)
    with user_error(Code.NOT_A_SCAN, damaged):
        read_label(damaged, image, CLASSES)


def test_the_class_is_also_read_from_the_data_set(image: Path, labels: Labels, tmp_path: Path) -> None:
    path = write_seg(tmp_path / "seg.dcm", IMAGE, frames_of(labels), NAMES)
    one = pydicom.dcmread(path)
    del one.file_meta.MediaStorageSOPClassUID
    one.save_as(path)
    assert is_label_map(path)
    assert np.array_equal(read_label(path, image, CLASSES).array, labels)
    del one.SOPClassUID
    one.save_as(path)
    assert is_label_map(path)
    with user_error(Code.SCAN_DAMAGED, path, "SOPClassUID"):
        read_label(path, image, CLASSES)


def test_a_file_cut_in_its_file_meta_is_an_error(image: Path, labels: Labels, tmp_path: Path) -> None:
    path = write_seg(tmp_path / "labelsTr" / "image.dcm", IMAGE, frames_of(labels), NAMES)
    IMAGE.write(tmp_path / "imagesTr" / "image")
    content = path.read_bytes()
    for size in range(0, content.index(SEGMENTATION.encode()) + 60, 9):
        path.write_bytes(content[:size])
        dataset = read_layout(tmp_path)
        with pytest.raises(UserError):
            dataset.reader.label(*dataset.of("labeled"))


def test_a_missing_package_is_reported_and_the_label_is_not_skipped(
    image: Path, labels: Labels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_seg(tmp_path / "seg.dcm", IMAGE, frames_of(labels), NAMES)
    monkeypatch.setitem(sys.modules, "pydicom", None)
    assert is_label_map(path)
    with user_error(Code.PACKAGE_MISSING, keyword="pip install pydicom"):
        read_label(path, image, CLASSES)
