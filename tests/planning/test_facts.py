"""Facts about scans on disk."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny

from graftseg.core.errors import Code
from graftseg.core.types import Geometry
from graftseg.data.layouts import read_layout
from graftseg.data.pieces import Pieces
from graftseg.data.scans import write_label, write_scan
from graftseg.data.sources import Sources
from graftseg.planning.facts import MAX_SAMPLES, Foreground, PieceCount, channel_names_in, facts_of
from user_errors import user_error


def write(root: Path, name: str, image: Any, label: Any = None, spacing: tuple[float, ...] = (1.0, 1.0, 1.0)) -> None:
    array = np.asarray(image)
    affine = tuple(tuple(row) for row in np.diag([*spacing, 1.0]).tolist())
    geometry = Geometry(array.shape, affine)
    write_scan(root / "imagesTr" / f"{name}.nii", array, geometry)
    if label is not None:
        write_label(root / "labelsTr" / f"{name}.nii", np.asarray(label, np.uint8), geometry)


def test_pieces_and_intensities_of_the_foreground(tmp_path: Path) -> None:
    label = np.zeros((20, 20, 20), np.uint8)
    label[2:6, 2:6, 2:6], label[10:14, 2:6, 2:6] = 1, 1
    label[15:18, 15:18, 15:18] = 2
    image = np.where(label > 0, 100, -50).astype(np.int16)
    write(tmp_path, "a", image, label)
    write(tmp_path, "b", image, label * (label == 2))
    write(tmp_path, "c", image)
    facts = facts_of(read_layout(tmp_path))
    assert (facts.labeled_count, facts.unlabeled_count, facts.channels, len(facts.classes)) == (2, 1, 1, 3)
    assert facts.pieces == (PieceCount(), PieceCount(1, 0, frozenset({2})), PieceCount(2, 2, frozenset({1})))
    assert facts.foreground == Foreground(100, 100, 0)


@pytest.mark.parametrize(
    ("sizes", "large"),
    [((100,), 1), ((100, 90), 2), ((100, 90, 1), 2), ((100, 90, 5), 0), ((100, 20), 2), ((100, 19), 0), ((5, 5, 5), 3)],
)
def test_large_pieces(sizes: tuple[int, ...], large: int) -> None:
    assert PieceCount.of(Pieces(sum(sizes), len(sizes), sizes)).large == {large}


def test_pieces_are_counted_in_slices_of_long_voxels(tmp_path: Path) -> None:
    """Slices along the first axis: the class has two pieces in one slice, and one piece in two slices."""
    label = np.zeros((5, 20, 20), np.uint8)
    label[1:4, 4:8, 4:8] = 1
    label[2, 12:16, 4:8] = 1
    write(tmp_path, "a", label.astype(np.int16), label, (6.0, 1.0, 1.0))
    assert facts_of(read_layout(tmp_path)).slice_pieces == (PieceCount(), PieceCount(3, 2, frozenset({1, 2})))


def test_separate_folders_have_no_layout(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    assert facts_of(read_layout(scans)).has_layout
    assert not facts_of(read_layout(Sources(scans / "imagesTr", scans / "labelsTr"))).has_layout


def test_samples_are_the_same_in_every_call(tmp_path: Path) -> None:
    label = np.ones((40, 40, 40), np.uint8)
    assert label.size > MAX_SAMPLES
    write(tmp_path, "a", np.arange(label.size, dtype=np.float32).reshape(label.shape), label)
    once, again = (facts_of(read_layout(tmp_path)).foreground for _ in range(2))
    assert once == again and once is not None
    assert once.low + once.high == pytest.approx(label.size, rel=0.02)
    assert once.std == pytest.approx(label.size / 12**0.5, rel=0.02)


def test_test_scans_are_not_read(tmp_path: Path) -> None:
    scans = tiny.write_scans(tmp_path / "scans")
    for folder in ("imagesTs", "labelsTs"):
        for path in (scans / folder).iterdir():
            path.write_bytes(b"not a scan")
    facts = facts_of(read_layout(scans))
    assert facts.has_test and facts.test_count == 2 and len(facts.fingerprint.cases) == 9


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ({"channel_names": {"1": "T2", "0": "T1"}}, ("T1", "T2")),
        ({"modality": {"0": "CT"}}, ("CT",)),
        ({"modality": {"CT": 0}}, ()),
        ({}, ()),
        (None, ()),
    ],
)
def test_channel_names(tmp_path: Path, content: dict[str, Any] | None, names: tuple[str, ...]) -> None:
    if content is not None:
        (tmp_path / "dataset.json").write_text(json.dumps(content))
    assert channel_names_in(tmp_path) == names


def test_empty_labels_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, "a", np.zeros((9, 9, 9), np.int16), np.zeros((9, 9, 9)))
    for data in (tmp_path, Sources(tmp_path / "imagesTr", tmp_path / "labelsTr")):
        with user_error(Code.LABELS_EMPTY, keyword="label maps of the labeled scans"):
            facts_of(read_layout(data))


def test_volumes_among_2d_scans_are_rejected(tmp_path: Path) -> None:
    write(tmp_path, "a", np.zeros((9, 9), np.int16), np.ones((9, 9)))
    write(tmp_path, "b", np.zeros((9, 9, 9), np.int16))
    with user_error(Code.DATASET_INVALID, "b.nii", "axes"):
        facts_of(read_layout(tmp_path))
