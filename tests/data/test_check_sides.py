from pathlib import Path

import numpy as np
import pytest
from check_fakes import SHAPE, check, geometry, image, put

from graftseg.core.types import Case
from graftseg.data.checks.labels import left_right_centers, side_findings
from graftseg.data.fingerprint import fingerprint_case
from graftseg.data.layouts import read_layout
from graftseg.data.scans import Scan

LEFT, RIGHT = {1: 0.25, 2: 0.5}, {1: 0.75, 2: 0.5}


def test_a_label_mirrored_in_its_voxels(tmp_path: Path) -> None:
    for number in range(5):
        labels = np.zeros(SHAPE, np.uint8)
        labels[2:5, 6:9], labels[10:13, 6:9] = 1, 2
        put(tmp_path, f"imagesTr/l{number}", image(number))
        put(tmp_path, f"labelsTr/l{number}", labels[::-1] if number == 3 else labels)
    (tmp_path / "dataset.json").write_text('{"labels": {"background": 0, "left": 1, "right": 2}}')
    (finding,) = check(read_layout(tmp_path), workers=1)
    assert (finding.severity, finding.where, finding.cases) == ("warning", "l3", ("l3",))
    assert finding.what == "left is left of right in 4 of 5 labels, but not in l3"
    assert finding.size == "right is 50 % of the width left of left"


def test_a_mirrored_label_with_several_pairs_of_classes_is_reported_once() -> None:
    usual, mirrored = {1: 0.2, 2: 0.4, 3: 0.6}, {1: 0.8, 2: 0.6, 3: 0.4}
    found = side_findings({"a": usual, "b": usual, "c": usual, "odd": mirrored}, {})
    assert [finding.where for finding in found] == ["odd"]


def test_the_order_may_be_reversed() -> None:
    (finding,) = side_findings({"a": RIGHT, "b": RIGHT, "c": RIGHT, "odd": LEFT}, {1: "A", 2: "B"})
    assert finding.what == "B is left of A in 3 of 4 labels, but not in odd"


@pytest.mark.parametrize(
    "cases",
    [
        [LEFT, LEFT, RIGHT],  # only two others
        [LEFT, LEFT, LEFT, LEFT],
        [LEFT, LEFT, LEFT, RIGHT, RIGHT],  # two with the opposite order
        [LEFT, LEFT, LEFT, {1: 0.5, 2: 0.46}],  # the odd classes overlap
        [LEFT, LEFT, LEFT, {1: 0.46, 2: 0.5}, RIGHT],  # other classes overlap
        [LEFT, LEFT, {1: 0.1, 2: 0.9}, RIGHT],  # places differ between cases
        [LEFT, LEFT, LEFT, {1: 0.75}],
    ],
)
def test_no_finding(cases: list[dict[int, float]]) -> None:
    assert list(side_findings({str(number): case for number, case in enumerate(cases)}, {})) == []


def test_centers_depend_on_the_header() -> None:
    labels = np.zeros((8, 4, 4), np.uint8)
    labels[1] = 1
    for step, center in ((1.0, 1.5 / 8), (-1.0, 6.5 / 8)):
        where = geometry(labels.shape)
        where = type(where)(where.shape, ((step, 0.0, 0.0, 0.0), *where.affine[1:]))
        scan, label = Scan(labels[None].astype(np.float32), where), Scan(labels, where)
        summary = fingerprint_case(Case("a", (), None, "labeled"), scan, label)
        assert left_right_centers(summary, labels) == {1: center}
