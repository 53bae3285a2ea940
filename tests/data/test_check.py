from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from graftseg.data import dataset as module
from graftseg.data.check import Finding, check
from graftseg.data.layouts import read_layout
from graftseg.data.scans import Scan, read_case, read_label, write_label, write_scan
from graftseg.types import Geometry

SHAPE = (6, 5, 4)
Array = npt.NDArray[np.generic]


def geometry(shape: tuple[int, ...] = SHAPE, step: float = 1.0, origin: float = 0.0) -> Geometry:
    affine = ((step, 0.0, 0.0, origin), (0.0, step, 0.0, 0.0), (0.0, 0.0, step, 0.0), (0.0, 0.0, 0.0, 1.0))
    return Geometry(shape, affine)


def image(seed: int, shape: tuple[int, ...] = SHAPE) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(100, 20, shape).astype(np.float32)


def label(*values: int) -> Array:
    array = np.zeros(SHAPE, dtype=np.uint8)
    array.flat[: len(values)] = values
    return array


def put(root: Path, name: str, array: Array, where: Geometry | None = None) -> None:
    path = root / f"{name}.nii.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    (write_label if name.startswith("labels") else write_scan)(path, array, where or geometry())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number in range(3):
        put(tmp_path, f"imagesTr/l{number}", image(number))
        put(tmp_path, f"labelsTr/l{number}", label(1, 1, 2))
        put(tmp_path, f"imagesUn/u{number}", image(10 + number))
    (tmp_path / "dataset.json").write_text('{"labels": {"background": 0, "liver": 1, "tumour": 2}}')
    return tmp_path


def findings(root: Path) -> list[Finding]:
    return check(read_layout(root), workers=2)


def only(root: Path) -> Finding:
    found = findings(root)
    assert len(found) == 1, found
    assert found[0].remedy
    return found[0]


def test_a_sound_data_set_has_no_findings(root: Path) -> None:
    assert findings(root) == []


def test_every_file_is_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def case(paths: tuple[Path, ...]) -> Scan:
        reads.extend(path.name for path in paths)
        return read_case(paths)

    def label_map(path: Path) -> Scan:
        reads.append(path.name)
        return read_label(path)

    monkeypatch.setattr(module, "read_case", case)
    monkeypatch.setattr(module, "read_label", label_map)
    check(read_layout(root), workers=1)
    assert sorted(reads) == sorted(f"{n}.nii.gz" for n in ["l0", "l0", "l1", "l1", "l2", "l2", "u0", "u1", "u2"])


def test_a_damaged_file_does_not_end_the_check(root: Path) -> None:
    (root / "imagesUn/u1.nii.gz").write_bytes(b"garbage")
    (root / "labelsTr/l1.nii.gz").write_bytes(b"garbage")
    found = findings(root)
    assert [(finding.severity, finding.where, finding.size) for finding in found] == [
        ("error", "imagesUn/u1.nii.gz", "1 file"),
        ("error", "labelsTr/l1.nii.gz", "1 file"),
    ]


def test_problems_of_the_layout_are_errors(root: Path) -> None:
    put(root, "labelsTr/orphan", label(1))
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", "labelsTr/orphan.nii.gz")
    assert finding.what == "no image belongs to this label"


def test_a_name_used_twice(root: Path) -> None:
    put(root, "imagesUn/l0", image(30))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("error", "l0", "1 case")


def test_strays(root: Path) -> None:
    (root / "imagesUn/u9.mha").touch()
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "imagesUn/u9.mha", "1 file")


def test_grids_that_differ(root: Path) -> None:
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=2.5))
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", "l1")
    assert finding.size == "origin 2.50 mm apart"


def test_duplicates_across_splits_and_within_one(root: Path) -> None:
    put(root, "imagesUn/u9", image(0).astype(np.float64))
    put(root, "imagesTs/t0", image(11))
    put(root, "imagesUn/u8", image(12))
    found = findings(root)
    assert [(finding.severity, finding.where, finding.size) for finding in found] == [
        ("error", "l0, u9", "2 cases"),
        ("error", "u1, t0", "2 cases"),
        ("warning", "u2, u8", "2 cases"),
    ]
    assert found[0].what == "the same voxels stand across labeled and unlabeled"
    assert found[2].what == "the same voxels stand among the unlabeled"


def test_label_values_without_a_class(root: Path) -> None:
    put(root, "labelsTr/l1", label(1, 2, 7, 7, 7, 9))
    found = findings(root)
    assert [(finding.severity, finding.what, finding.size) for finding in found] == [
        ("error", "the label value 7 has no class", "3 voxels"),
        ("error", "the label value 9 has no class", "1 voxel"),
    ]


def test_a_class_that_no_label_shows(root: Path) -> None:
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(1))
    finding = only(root)
    assert (finding.severity, finding.size) == ("warning", "0 of 3 cases")
    assert finding.what == "no labeled case shows tumour (value 2)"


def test_an_unreadable_label_may_hold_the_missing_class(root: Path) -> None:
    for number in range(2):
        put(root, f"labelsTr/l{number}", label(1))
    (root / "labelsTr/l2.nii.gz").write_bytes(b"garbage")
    assert only(root).where == "labelsTr/l2.nii.gz"


def test_values_without_a_list(root: Path) -> None:
    (root / "dataset.json").unlink()
    assert findings(root) == []
    put(root, "labelsTr/l0", label(1, 4))
    assert only(root).what == "no labeled case shows class 3 (value 3)"
    put(root, "labelsTr/l0", label(255))
    finding = only(root)
    assert (finding.severity, finding.size) == ("error", "values up to 255, at most 254")
    assert "0 and 255 becomes 0 and 1" in finding.remedy


def test_a_list_with_a_gap(root: Path) -> None:
    (root / "dataset.json").write_text('{"labels": {"background": 0, "liver": 1, "tumour": 3}}')
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(1, 3))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == (
        "error",
        "dataset.json",
        "2 is missing below 3",
    )


def test_an_empty_label_map(root: Path) -> None:
    put(root, "labelsTr/l2", label())
    finding = only(root)
    assert (finding.severity, finding.where) == ("warning", "l2")
    assert finding.size == "all 120 voxels are background"


def test_channels_that_differ(root: Path) -> None:
    put(root, "imagesUn/u9", np.stack([image(40), image(41)]))
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", "u9")
    assert finding.size == "2 channels where the others have 1, 1 of 7 cases"


def test_axes_that_differ(root: Path) -> None:
    put(root, "imagesUn/u9", image(50, (30, 4)), geometry((30, 4)))
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", "u9")
    assert finding.size == "2 axes where the others have 3, 1 of 7 cases"


def test_an_odd_spacing(root: Path) -> None:
    put(root, "imagesUn/u9", image(60), geometry(step=2.5))
    finding = only(root)
    assert (finding.severity, finding.where) == ("note", "u9")
    assert finding.size == "2.50 mm against 1.00 mm, the median"


@pytest.mark.parametrize(
    ("spacing", "orientation"), [((4.0, 1.0, 1.0), "ASR"), ((1.0, 4.0, 1.0), "RSA"), ((1.0, 1.0, 4.0), None)]
)
def test_slices_across_the_last_axis(root: Path, spacing: tuple[float, ...], orientation: str | None) -> None:
    rows = (*np.diag((*spacing, 1.0)).tolist(),)
    where = Geometry(SHAPE, tuple(tuple(row) for row in rows))
    for number in range(3):
        put(root, f"imagesTr/l{number}", image(number), where)
        put(root, f"labelsTr/l{number}", label(1, 1, 2), where)
        put(root, f"imagesUn/u{number}", image(10 + number), where)
    if orientation is None:
        assert findings(root) == []
        return
    finding = only(root)
    assert (finding.severity, finding.where) == ("note", "l0")
    assert finding.size == "4.00 mm against 1.00 mm, 6 of 6 volumes"
    assert finding.remedy == f"set data.orientation to {orientation} in a 2-D recipe"


def test_intensities_that_differ(root: Path) -> None:
    for number in range(3):
        put(root, f"imagesUn/u{number}", 2 * image(10 + number) + 100)
    finding = only(root)
    assert finding.severity == "warning"
    assert finding.what.startswith("labeled and unlabeled scans differ in brightness or range")
    assert finding.size.startswith("shift ")


def test_errors_stand_first(root: Path) -> None:
    put(root, "imagesUn/u9", image(60), geometry(step=2.5))
    put(root, "labelsTr/l2", label())
    put(root, "labelsTr/orphan", label(1))
    assert [finding.severity for finding in findings(root)] == ["error", "warning", "note"]
