from pathlib import Path

import pytest
from check_fakes import SHAPE, check, geometry, image, label, put

from graftseg.core.errors import Code, UserError
from graftseg.core.names import names_extending, split_suffix
from graftseg.data.check import Finding
from graftseg.data.formats.scan import KEEP_ONE
from graftseg.data.layouts import read_layout
from graftseg.data.scans_to_predict import check_channels

NAMED = "unlabeled scans may be further channels of labeled scans (same name prefix, same grid)"


def named(root: Path, labeled: list[str], unlabeled: list[str], apart: float = 0.0) -> list[Finding]:
    """Return the findings about names in a data set of these cases. Unlabeled scans may have another origin."""
    for number, name in enumerate((*labeled, *unlabeled)):
        put(root, f"imagesTr/{name}", image(number), geometry(origin=apart if name in unlabeled else 0.0))
    for name in labeled:
        put(root, f"labelsTr/{name}", label(1, 1))
    return [finding for finding in check(read_layout(root), workers=1) if finding.what == NAMED]


def test_named_channels_give_one_warning(tmp_path: Path) -> None:
    (finding,) = named(tmp_path, ["p1_T1", "p2_T1"], ["p1_FLAIR", "p1_T2", "p2_FLAIR", "p2_T2"])
    assert (finding.severity, finding.where, finding.size) == ("warning", "p1_FLAIR next to p1_T1", "4 unlabeled scans")
    assert finding.remedy == (
        "if so, name the channels p1_0000, p1_0001 and so on, in the same order for every case, and the label map p1"
    )
    assert finding.cases == ("p1_FLAIR", "p1_T2", "p2_FLAIR", "p2_T2")


def test_a_label_map_may_have_the_name_of_the_patient(tmp_path: Path) -> None:
    (finding,) = named(tmp_path, ["p1"], ["p1-dwi", "p2", "p2-dwi"])
    assert (finding.where, finding.cases) == ("p1-dwi next to p1", ("p1-dwi",))


@pytest.mark.parametrize(
    ("labeled", "unlabeled"),
    [
        (["scan_a", "scan_b"], ["scan_c", "scan_d"]),
        (["p_01", "q_01"], ["p_02", "q_02"]),
        (["p1_T1", "p2_T1"], ["p3_T2", "p4_T2"]),
        (["p1_s0", "p2_s0"], [f"p{patient}_s{number}" for patient in (1, 2) for number in range(1, 9)]),
    ],
)
def test_names_of_separate_cases(tmp_path: Path, labeled: list[str], unlabeled: list[str]) -> None:
    assert named(tmp_path, labeled, unlabeled) == []


def test_scans_on_other_grids_are_not_channels(tmp_path: Path) -> None:
    assert named(tmp_path, ["p1_T1", "p2_T1"], ["p1_T2", "p2_T2"], apart=3.0) == []


def test_suffixes() -> None:
    names = ["p1_T2", "a b flair", "p_0001", "T1", "p1.a-3", "_T1"]
    assert [split_suffix(name) for name in names] == [
        ("p1", "T2"),
        ("a b", "flair"),
        ("p_0001", ""),
        ("T1", ""),
        ("p1.a-3", ""),
        ("_T1", ""),
    ]
    assert names_extending("p1", ["p1_b", "p10_b", "p1", "p1-a", "p1 2"]) == ["p1 2", "p1-a", "p1_b"]


@pytest.mark.parametrize("channels", [1, 2])
def test_one_scan_with_more_channels_may_be_a_time_series(tmp_path: Path, channels: int) -> None:
    for number in range(3):
        shape = (channels if number == 1 else 1, *SHAPE)
        put(tmp_path, f"imagesTr/p{number}", image(number, shape))
        put(tmp_path, f"labelsTr/p{number}", label(1, 1))
    errors = [finding for finding in check(read_layout(tmp_path), workers=1) if finding.severity == "error"]
    assert [(error.cases, KEEP_ONE in error.remedy) for error in errors] == [(("p1",), True)] * (channels - 1)


@pytest.mark.parametrize(("count", "is_offered"), [(3, True), (1, False)])
def test_a_scan_to_predict_with_other_channels(count: int, is_offered: bool) -> None:
    with pytest.raises(UserError) as caught:
        check_channels("scan", count, 2)
    assert caught.value.code is Code.CHANNELS_MISMATCH and (KEEP_ONE in caught.value.remedy) == is_offered
