"""Tables of metrics that cannot be so are refused where they are read."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graftseg.core.errors import UserError
from graftseg.evaluation.figures import SHARES
from graftseg.evaluation.metrics import Protocol
from graftseg.evaluation.plausibility import DISTANCES, VALUES, VOLUMES, implausible, miscounted
from graftseg.evaluation.scores import Evaluation, Row, read_csv

ROOT = Path(__file__).parents[2]
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


OVERLAPS = dict.fromkeys(SHARES, math.nan)
ALL = OVERLAPS | dict.fromkeys(DISTANCES, math.nan)
UNSCORED = ALL | {"volume_reference_ml": 0.0}
FLAT = dict.fromkeys(VOLUMES, math.nan)
NO_DISTANCES = UNSCORED | dict.fromkeys(SHARES, 0.0)


@pytest.mark.parametrize(
    ("changes", "protocol", "finding"),
    [
        *(({name: math.nan}, "standard", name) for name in VALUES),
        *(({name: math.nan}, "paper", name) for name in VALUES),
        (OVERLAPS, "standard", "dice"),
        (ALL, "standard", "dice"),
        (NO_DISTANCES, "standard", "hd95"),
        (NO_DISTANCES | {"volume_reference_ml": 0.5}, "paper", "hd95"),
        (NO_DISTANCES | {"dice": 0.5}, "paper", "hd95"),
        (UNSCORED, "standard", None),
        (UNSCORED, "paper", None),
        (ALL | FLAT, "standard", None),
        (FLAT, "standard", None),
        (NO_DISTANCES, "paper", None),
        (NO_DISTANCES | FLAT, "paper", None),
    ],
)
def test_a_value_is_empty_only_where_there_was_none(
    changes: dict[str, Any], protocol: Protocol, finding: str | None
) -> None:
    words = None if finding is None else f"{finding} of class 2 of b is empty"
    assert implausible(rows("a", "b", **changes), protocol) == words


@pytest.mark.parametrize("cell", ["", "nan"])
def test_a_cell_that_lost_its_value_is_told(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "metrics.csv"
    Evaluation(tuple(rows("a", hd95=0.75)), "standard").write_csv(path)
    path.write_text(path.read_text().replace("0.75", cell))
    with pytest.raises(UserError) as caught:
        read_csv(path)
    assert str(caught.value) == f"{path}: hd95 of class 2 of a is empty; make it anew with graftseg evaluate."


def test_as_many_values_are_read_as_were_written(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    whole = Evaluation(tuple(rows("a", "b", **FLAT)), "standard")
    whole.keep(path, {})
    assert read_csv(path).has_volumes
    Evaluation(tuple(rows("a", "b", **FLAT, **ALL)), "standard").write_csv(path)
    with pytest.raises(UserError) as caught:
        read_csv(path)
    finding = "dice of class 2 has 1 values where 2 were written (none for b)"
    assert str(caught.value) == f"{path}: {finding}; make it anew with graftseg evaluate."
    Evaluation(tuple(rows("a", "b")), "standard").write_csv(path)
    with pytest.raises(UserError, match=r"volume_prediction_ml of class 2 has 2 values where 1 were written; make it"):
        read_csv(path)


@pytest.mark.parametrize(
    "classes",
    [None, {}, [3], [{"label": "x"}], [{"label": 1}], [{"label": 1, "dice": 3}], [{"label": 1, "dice": {"count": ""}}]],
)
def test_a_description_need_not_tell_how_many_values_there_were(classes: Any) -> None:
    assert miscounted(rows("a"), {"classes": classes}) is None


def test_what_was_recorded_is_taken() -> None:
    assert all(read_csv(table).rows for table in (ROOT / "results").rglob("metrics*.csv"))


@given(
    share=st.floats(0, 1),
    distance=st.floats(0, 1e9),
    cases=st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_all_else_is_taken(share: float, distance: float, cases: list[str]) -> None:
    table = rows(*cases, dice=share, jaccard=share, hd95=distance, assd_mm=distance, volume_prediction_ml=distance)
    assert implausible(table, "standard") is None
