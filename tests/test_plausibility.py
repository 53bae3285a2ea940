"""Tables of metrics that cannot be so are refused where they are read."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graftseg.errors import UserError
from graftseg.evaluation import Evaluation, Row, read_csv
from graftseg.plausibility import implausible

NAMES = {1: "left", 2: "right"}


def rows(*cases: str, **changes: Any) -> list[Row]:
    """A row for each class of each case; the changes are of the last."""
    found = [Row(case, label, name, *[0.5] * 12) for case in cases for label, name in NAMES.items()]
    return [*found[:-1], replace(found[-1], **changes)]


@pytest.mark.parametrize(
    ("table", "finding"),
    [
        (rows("a", dice=1.5), "dice of class 2 of a is 1.5"),
        (rows("a", jaccard=-0.1), "jaccard of class 2 of a is -0.1"),
        (rows("a", dice=math.inf), "dice of class 2 of a is inf"),
        (rows("a", hd95=math.inf), "hd95 of class 2 of a is inf"),
        (rows("a", asd_mm=-1.0), "asd_mm of class 2 of a is -1"),
        (rows("a", volume_reference_ml=math.inf), "volume_reference_ml of class 2 of a is inf"),
        (rows("a", "a"), "class 1 of a is there 2 times"),
        (rows("a", "b")[:-1], "class 2 of b is missing"),
        (rows("a", "b", name="middle"), "class 2 is called right and middle"),
    ],
)
def test_what_cannot_be_so_is_told_in_a_sentence(tmp_path: Path, table: list[Row], finding: str) -> None:
    path = tmp_path / "metrics.csv"
    Evaluation(tuple(table), "standard").write_csv(path)
    with pytest.raises(UserError) as caught:
        read_csv(path)
    assert str(caught.value) == f"{path}: {finding}; make it anew with graftseg evaluate."


@given(
    share=st.floats(0, 1) | st.just(math.nan),
    distance=st.floats(0, 1e9) | st.just(math.nan),
    cases=st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_all_else_is_taken(share: float, distance: float, cases: list[str]) -> None:
    table = rows(*cases, dice=share, jaccard=share, hd95=distance, assd_mm=distance, volume_prediction_ml=distance)
    assert implausible(table) is None
