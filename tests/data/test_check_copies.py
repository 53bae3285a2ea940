from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from check_fakes import SHAPE, check, geometry, image, put

from graftseg.core.types import Geometry
from graftseg.data.check import Finding
from graftseg.data.grid import ras_view
from graftseg.data.layouts import read_layout


def severe(root: Path) -> list[Finding]:
    return [finding for finding in check(read_layout(root), workers=1) if finding.severity != "note"]


def turn(path: Path, codes: str) -> None:
    """Store a scan in another orientation without moving its voxels in space."""
    stored = nib.nifti1.load(path)
    now, then = nib.orientations.io_orientation(stored.affine), nib.orientations.axcodes2ornt(codes)
    nib.save(stored.as_reoriented(nib.orientations.ornt_transform(now, then)), path)


@pytest.mark.parametrize("codes", ["LPS", "SAR", "PIL"])
def test_a_copy_in_another_orientation(root: Path, codes: str) -> None:
    put(root, "imagesTs/t0", image(1))
    turn(root / "imagesTs/t0.nii.gz", codes)
    (finding,) = severe(root)
    assert (finding.severity, finding.where) == ("error", "l1, t0")
    assert finding.what == "identical voxels in labeled and test cases"


@pytest.mark.parametrize("codes", ["LPS", "SAR"])
def test_a_rescaled_copy_in_another_orientation(root: Path, codes: str) -> None:
    put(root, "imagesTs/t0", image(11) * 3 + 1000)
    turn(root / "imagesTs/t0.nii.gz", codes)
    (finding,) = [finding for finding in severe(root) if "scaling" in finding.what]
    assert (finding.where, finding.size) == ("u1, t0", "correlation 1.0000 on a coarse grid, 2 cases")


def test_a_copy_whose_header_is_lost(root: Path) -> None:
    put(root, "imagesTs/t0", image(1), Geometry(SHAPE, ((-1.0, 0, 0, 0), *geometry().affine[1:])))
    put(root, "imagesTs/t1", image(2), Geometry(SHAPE, geometry().affine, qform_code=0, sform_code=0))
    assert [(finding.severity, finding.where) for finding in severe(root)] == [("error", "l1, t0"), ("error", "l2, t1")]


def test_a_case_that_matches_two_others_merges_their_groups(root: Path) -> None:
    put(root, "imagesTs/t0", image(1)[::-1], Geometry(SHAPE, ((-1.0, 0, 0, 15.0), *geometry().affine[1:])))
    put(root, "imagesTs/t1", image(1)[::-1])
    (finding,) = severe(root)
    assert set(finding.cases) == {"l1", "t0", "t1"}


def write_cluster(root: Path, count: int) -> None:
    """Write scans of one body that differ by a little noise."""
    for number in range(count):
        put(root, f"imagesUn/p{number:02}", image(500) + image(600 + number) * 0.02)


def test_a_cluster_of_similar_scans_is_a_note(root: Path) -> None:
    write_cluster(root, 5)
    for number in range(12):
        put(root, f"imagesUn/x{number:02}", image(700 + number))
    assert severe(root) == []
    (note,) = [finding for finding in check(read_layout(root)) if "similar on a coarse grid" in finding.what]
    assert (note.severity, note.where, len(note.cases)) == ("note", "p00 and 4 more", 5)
    assert note.size == "5 of 23 scans of one shape, correlation above 0.999"


def test_a_rescaled_copy_in_a_cluster_of_similar_scans(root: Path) -> None:
    write_cluster(root, 12)
    copy = image(500) + image(603) * 0.02
    put(root, "imagesTs/t0", copy * 2 + 1000 + image(999) * 1e-3)
    brightness, finding = severe(root)
    assert brightness.where == "labeled and test scans"
    assert finding.cases == ("p03", "t0")


def test_many_rescaled_copies_of_one_scan(root: Path) -> None:
    for number in range(5):
        put(root, f"imagesUn/c{number}", image(500) * (number + 2) - 100 * number)
    found = check(read_layout(root))
    assert [finding.cases for finding in found if "similar" in finding.what or "same scan" in finding.what] == [
        ("c0", "c1", "c2", "c3", "c4")
    ]


def test_ras_view_shares_memory_and_keeps_2d_scans() -> None:
    array = np.arange(24.0).reshape(1, 2, 3, 4)
    turned = ras_view(array, Geometry((2, 3, 4), ((0, -1.0, 0, 0), (0, 0, 1.0, 0), (1.0, 0, 0, 0), (0, 0, 0, 1.0))))
    assert turned.base is not None and np.shares_memory(turned, array)
    assert np.array_equal(turned[0], array[0].transpose(1, 2, 0)[::-1])
    picture = np.zeros((3, 4, 5))
    mirrored = ((-1.0, 0, 0, 0), *geometry().affine[1:])
    assert ras_view(picture, Geometry((4, 5), mirrored)).strides == picture.strides
