import json
from pathlib import Path

import numpy as np
import pytest
from check_fakes import SHAPE, check, geometry, image, label, put

from graftseg.core.errors import Code, UserError
from graftseg.core.types import Geometry
from graftseg.data import dataset as module
from graftseg.data.check import Finding, examine
from graftseg.data.checks.findings import from_error, grouped
from graftseg.data.layouts import read_layout
from graftseg.data.scans import Scan, read_case, read_label


def findings(root: Path) -> list[Finding]:
    return check(read_layout(root), workers=2)


def only(root: Path) -> Finding:
    found = findings(root)
    assert len(found) == 1, found
    assert found[0].remedy
    return found[0]


def test_a_valid_data_set_has_no_findings(root: Path) -> None:
    assert findings(root) == []


def test_every_file_is_read_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[str] = []

    def case(paths: tuple[Path, ...], named: int | None) -> Scan:
        reads.extend(path.name for path in paths)
        return read_case(paths, named)

    def label_map(path: Path, image: Path, classes: dict[int, str]) -> Scan:
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
    assert "no image" in finding.what


def test_errors_of_one_kind_become_one_finding(root: Path) -> None:
    for number in range(90):
        put(root, f"imagesUn/v{number:02d}", image(number))
        (root / f"imagesUn/v{number:02d}.nii.gz").write_bytes(b"")
    finding = only(root)
    assert (finding.where, finding.size) == ("imagesUn/v00.nii.gz and 89 more", "90 files")
    assert finding.cases == tuple(f"v{number:02d}" for number in range(90))
    assert "empty" in finding.what


def test_four_errors_of_one_kind_are_listed(root: Path) -> None:
    for number in range(5):
        put(root, f"labelsTr/orphan_{number}", label(1))
    finding = only(root)
    assert finding.where == "labelsTr/orphan_0.nii.gz and 4 more"
    assert finding.cases == tuple(f"labelsTr/orphan_{number}.nii.gz" for number in range(5))
    (root / "labelsTr/orphan_4.nii.gz").unlink()
    assert len(findings(root)) == 4


def test_a_name_used_twice(root: Path) -> None:
    put(root, "imagesUn/l0", image(30))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("error", "l0", "1 case")


def test_a_file_that_is_not_a_scan(root: Path) -> None:
    (root / "imagesUn/u9.txt").touch()
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "imagesUn/u9.txt", "1 file")


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
    assert found[0].what == "identical voxels in labeled and unlabeled cases"
    assert found[2].what == "identical voxels in several unlabeled cases"


def test_label_values_without_a_class(root: Path) -> None:
    put(root, "labelsTr/l1", label(1, 2, 7, 7, 7, 9))
    found = findings(root)
    assert [(finding.severity, finding.what, finding.size) for finding in found] == [
        ("error", "the label value 7 has no class", "3 voxels, 0.29 %"),
        ("error", "the label value 9 has no class", "1 voxel, 0.098 %"),
    ]


def test_test_labels_need_no_value_without_a_class(root: Path) -> None:
    put(root, "labelsTr/l1", label(1, 2, 7))
    put(root, "imagesTs/t", image(20))
    put(root, "labelsTs/t", label(1, 2))
    assert only(root).what == "the label value 7 has no class"


def test_a_class_without_voxels(root: Path) -> None:
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(1))
    finding = only(root)
    assert (finding.severity, finding.size) == ("warning", "0 of 3 cases")
    assert finding.what == "no labeled case contains tumour (value 2)"


def test_a_class_in_no_test_label(root: Path) -> None:
    put(root, "imagesTs/t", image(20))
    put(root, "labelsTs/t", label(1))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("warning", "test labels", "0 of 1 case")
    assert "tumour (value 2)" in finding.what
    put(root, "imagesTs/s", image(21))
    put(root, "labelsTs/s", label(2))
    assert findings(root) == []
    (root / "labelsTs/s.nii.gz").write_bytes(b"garbage")
    assert only(root).where == "labelsTs/s.nii.gz"


def test_a_value_that_only_a_test_label_contains(root: Path) -> None:
    (root / "dataset.json").unlink()
    put(root, "imagesTs/t", image(20))
    put(root, "labelsTs/t", label(1, 2, 5, 5))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("error", "t", "2 voxels")
    assert "value 5" in finding.what and finding.fixed_by == "--drop"


def test_a_mask_of_255_among_test_labels(root: Path) -> None:
    (root / "dataset.json").unlink()
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(1, 1))
    put(root, "imagesTs/t", image(20))
    put(root, "labelsTs/t", label(255))
    found = findings(root)
    assert [(one.where, one.fixed_by) for one in found if one.severity == "error"] == [("t", "--fix")]


def test_an_unreadable_label_may_contain_the_missing_class(root: Path) -> None:
    for number in range(2):
        put(root, f"labelsTr/l{number}", label(1))
    (root / "labelsTr/l2.nii.gz").write_bytes(b"garbage")
    assert only(root).where == "labelsTr/l2.nii.gz"


def test_values_without_a_list(root: Path) -> None:
    (root / "dataset.json").unlink()
    assert findings(root) == []
    put(root, "labelsTr/l0", label(1, 4))
    finding = only(root)
    assert (finding.severity, finding.what, finding.where) == ("warning", "the label values have gaps", "l0")
    assert finding.size == "0, 1, 2, 4 occur, 1 value is missing below 4; 1 of 3 cases contain the value 4"
    assert finding.cases == ("l0",)
    assert "--fix OUT" in finding.remedy
    put(root, "labelsTr/l0", label(255))
    finding = only(root)
    assert (finding.severity, finding.size) == (
        "error",
        "0, 1, 2, 255 occur, 252 values are missing below 255; 1 of 3 cases contain the value 255",
    )
    assert "255" in finding.remedy


def test_masks_of_0_and_255(root: Path) -> None:
    for number in range(3):
        put(root, f"labelsTr/l{number}", label(255, 255))
    (root / "dataset.json").write_text('{"labels": {"background": 0, "liver": 1}}')
    assert [finding.what for finding in findings(root)] == ["the mask has the values 0 and 255 instead of 0 and 1"] * 3
    (root / "dataset.json").unlink()
    finding = only(root)
    assert (finding.severity, finding.what) == ("error", "the label maps are masks of 0 and 255")
    assert finding.remedy.endswith("a copy with the values 0 and 1")


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
    assert finding.size == "all 1024 voxels are background"


def test_channels_that_differ(root: Path) -> None:
    put(root, "imagesUn/u9", np.stack([image(40), image(41)]))
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", "u9")
    assert finding.size == "2 channels instead of 1, in 1 of 7 cases"
    for number in range(3):
        put(root, f"imagesUn/u{number}", np.stack([image(60 + number), image(70 + number)]))
        put(root, f"imagesTr/l{number}", np.stack([image(80 + number), image(90 + number)]))
    put(root, "imagesUn/u9", image(40))
    assert only(root).size == "1 channel instead of 2, in 1 of 7 cases"


def test_axes_that_differ(root: Path) -> None:
    put(root, "imagesUn/u9", image(50, (30, 4)), geometry((30, 4)))
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", "u9")
    assert finding.size == "2 axes instead of 3, in 1 of 7 cases"


def test_a_spacing_far_from_the_median(root: Path) -> None:
    put(root, "imagesUn/u9", image(60), geometry(step=2.5))
    finding = only(root)
    assert (finding.severity, finding.where) == ("note", "u9")
    assert finding.size == "2.50 mm, but the median is 1.00 mm"


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
    assert finding.size == "spacing 4.00 and 1.00 mm, in 6 of 6 volumes"
    assert finding.remedy == f"set data.orientation to {orientation} in a 2-D recipe"


def test_intensities_that_differ(root: Path) -> None:
    for number in range(3):
        put(root, f"imagesUn/u{number}", 2 * image(10 + number) + 100)
    finding = only(root)
    assert finding.severity == "warning"
    assert finding.what.startswith("labeled and unlabeled scans differ in brightness or range")
    assert finding.size.startswith("shift ")


def test_errors_come_first(root: Path) -> None:
    put(root, "imagesUn/u9", image(60), geometry(step=2.5))
    put(root, "labelsTr/l2", label())
    put(root, "labelsTr/orphan", label(1))
    assert [finding.severity for finding in findings(root)] == ["error", "warning", "note"]


def test_the_grids_of_image_and_label_differ_by_rounding(root: Path) -> None:
    put(root, "labelsTr/l1", label(1, 2), geometry(origin=0.06))
    finding = only(root)
    assert (finding.severity, finding.where, finding.size) == ("error", "l1", "origin 0.06 mm apart, 0.06 of a voxel")
    assert finding.what == "the grids of image and label differ by rounding"
    assert "--fix OUT" in finding.remedy


def test_a_label_of_another_size(root: Path) -> None:
    smaller = np.ones((16, 15, 4), np.uint8)
    smaller[0] = 2
    put(root, "labelsTr/l1", smaller, geometry((16, 15, 4)))
    finding = only(root)
    assert (finding.severity, finding.where) == ("error", "l1")
    assert finding.size == "shape 16x16x4 and 16x15x4 (1 voxel fewer along axis 2)"


def test_constant_scans_and_channels(root: Path) -> None:
    for name, seed in {"imagesTr/l0": 0, "imagesTr/l1": 1, "imagesTr/l2": 2, "imagesUn/u0": 10}.items():
        put(root, name, np.stack([image(seed), image(seed + 100)]))
    put(root, "imagesUn/u1", np.stack([image(11), np.full(SHAPE, 3, np.float32)]))
    put(root, "imagesUn/u2", np.full((2, *SHAPE), 7, np.float32))
    found = [finding for finding in findings(root) if finding.cases]
    assert [(finding.severity, finding.what, finding.where, finding.size) for finding in found] == [
        ("warning", "a channel has one value everywhere", "u1", "3 in channel 0001"),
        ("warning", "every voxel of the scan has the same value", "u2", "7"),
    ]


def test_a_scan_smaller_than_a_patch(root: Path) -> None:
    put(root, "imagesUn/u9", image(1, (15, 15, 40)), geometry((15, 15, 40)))
    finding = only(root)
    assert (finding.severity, finding.where) == ("warning", "u9")
    assert finding.size == "15x15x40 voxels, below 16 along 2 axes"


def test_voxels_that_are_not_finite(root: Path) -> None:
    broken = image(30)
    broken[1, 2, 3] = np.nan
    put(root, "imagesUn/u9", broken)
    finding = only(root)
    assert (finding.severity, finding.where, finding.cases) == ("error", "imagesUn/u9.nii.gz", ("u9",))
    assert finding.what == "1 of 1024 voxels are NaN or infinite, the first at (1, 2, 3)"


def test_islands_of_a_few_voxels(root: Path) -> None:
    drawn = np.zeros(SHAPE, np.uint8)
    drawn[4:14, 4:14, :] = 1
    drawn[0, 0, 0] = drawn[1, 1, 1] = 2
    put(root, "labelsTr/l0", drawn)
    assert findings(root) == []
    drawn[0, 15, 0] = 1
    drawn[15, 0, :3] = 1
    put(root, "labelsTr/l0", drawn)
    finding = only(root)
    assert (finding.severity, finding.what, finding.where) == ("note", "islands of a few voxels in liver", "l0")
    assert finding.size == (
        "2 islands of 1 to 3 voxels besides 1 piece: 4 voxels, 0.99 % of the class, the largest at (15, 0, 0)"
    )


def test_the_same_scan_on_another_scale(root: Path) -> None:
    put(root, "imagesTs/t0", image(11) * 3 + 1000)
    put(root, "imagesUn/u9", image(12) + image(99) * 0.01)
    found = [finding for finding in findings(root) if "scaling" in finding.what and finding.severity == "warning"]
    assert [(finding.severity, finding.where, finding.cases) for finding in found] == [
        ("warning", "u1, t0", ("u1", "t0")),
        ("warning", "u2, u9", ("u2", "u9")),
    ]
    assert found[0].what == "the same scan with other intensity scaling in test and unlabeled cases"
    assert found[0].size == "correlation 1.0000 on a coarse grid, 2 cases"


def test_orientations_that_are_mixed(root: Path) -> None:
    flipped = Geometry(SHAPE, ((-1.0, 0.0, 0.0, 0.0), *geometry().affine[1:]))
    put(root, "imagesUn/u9", image(40), flipped)
    finding = only(root)
    assert (finding.severity, finding.what, finding.where) == ("note", "orientations are mixed", "u9")
    assert finding.size == "1 of 7 volumes differs from RAS: 1 LAS"
    for name, signs in (("v7", (-1.0, -1.0)), ("v8", (-1.0, -1.0)), ("v9", (1.0, -1.0))):
        rows = ((signs[0], 0.0, 0.0, 0.0), (0.0, signs[1], 0.0, 0.0), *geometry().affine[2:])
        put(root, f"imagesUn/{name}", image(int(name[1]) + 50), Geometry(SHAPE, rows))
    finding = only(root)
    assert finding.size == "4 of 10 volumes differ from RAS: 2 LPS, 1 LAS, 1 RPS"


def test_intensities_on_very_different_scales(root: Path) -> None:
    put(root, "imagesUn/u9", image(40) * 1000)
    finding = only(root)
    assert (finding.severity, finding.what) == ("note", "intensity ranges differ greatly")
    assert finding.cases[1] == "u9"


def test_many_findings_of_one_kind_are_combined(root: Path) -> None:
    for number in range(9):
        put(root, f"imagesTs/t{number}", image(70 + number))
    for number in range(6):
        put(root, f"imagesUn/s{number}", image(60 + number), geometry(step=2.5 + number / 10))
        (root / f"imagesUn/broken{number}.nii.gz").write_bytes(b"garbage")
    found = findings(root)
    assert [finding.severity for finding in found] == ["error", "note"]
    assert (found[0].where, found[0].size) == ("imagesUn/broken0.nii.gz and 5 more", "6 files")
    assert (found[-1].where, found[-1].size) == ("s5 and 5 more", "3.00 mm, but the median is 1.00 mm; in 6 cases")
    assert found[-1].cases == ("s5", "s4", "s3", "s2", "s1", "s0")


def test_the_verdict_of_an_examination(root: Path) -> None:
    examination = examine(read_layout(root), pictures=True, workers=1)
    assert (len(examination), examination.errors) == (0, 0)
    assert examination.verdict == "Ready for training."
    assert examination.counts == {"labeled": 3, "unlabeled": 3, "validation": 0, "test": 0}
    assert sorted(examination.thumbnails) == ["l0", "l1", "l2", "u0", "u1", "u2"]
    put(root, "labelsTr/l2", label())
    assert examine(read_layout(root)).verdict == "Usable, with 1 warning."
    put(root, "labelsTr/orphan", label(1))
    assert examine(read_layout(root)).verdict == "Not ready: fix 1 error first."


def test_an_examination_as_json(root: Path) -> None:
    put(root, "labelsTr/l2", label())
    content = json.loads(json.dumps(examine(read_layout(root)).to_json(), allow_nan=False))
    assert content["cases"] == {"labeled": 3, "unlabeled": 3, "validation": 0, "test": 0}
    assert content["classes"] == {"0": "background", "1": "liver", "2": "tumour"}
    assert [finding["where"] for finding in content["findings"]] == ["l2"]
    assert content["likeness"]["kind"] == "alike"
    assert content["scans"][0]["class_sizes"] == {"1": 0.002, "2": 0.001}
    assert content["mended"] is None


def test_errors_that_differ_in_numbers_are_one_finding(tmp_path: Path) -> None:
    errors = [
        UserError(Code.LABEL_INVALID, tmp_path / f"{n}.nii", f"the label {n}.5 at voxel (1, {n}) is not an integer", "")
        for n in range(5)
    ]
    (finding,) = grouped([from_error(tmp_path, error, str(n)) for n, error in enumerate(errors)])
    assert (finding.where, finding.size, finding.cases) == ("0.nii and 4 more", "5 files", tuple("01234"))
    assert "0.5" in finding.what and "first" in finding.what
    assert len(grouped([from_error(tmp_path, error) for error in errors[:4]])) == 4
