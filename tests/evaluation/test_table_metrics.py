"""The four metrics of a table in percent and voxels, and their spread over runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graftseg.evaluation.scores import Evaluation, Row
from graftseg.evaluation.table_metrics import METRIC_NAMES, format_value, mean_metrics, spread, spreads


def row(label: int, value: float) -> Row:
    return Row("a", label, f"class {label}", *[value] * 12)


def test_overlaps_are_in_percent_and_distances_in_voxels() -> None:
    first, second = row(1, 0.5), row(2, 1.0)
    found = mean_metrics(Evaluation((first, second), "standard"))
    assert found == {"dice": 75, "jaccard": 75, "hd95": 0.75, "asd": 0.75}


@given(st.lists(st.floats(0, 100), min_size=2, max_size=6))
def test_the_deviation_divides_by_one_less_than_the_count(values: list[float]) -> None:
    over = spread(values)
    assert over.mean == pytest.approx(np.mean(values), abs=1e-9)
    assert over.std == pytest.approx(np.std(values, ddof=1), abs=1e-6)


def test_one_run_has_no_deviation_and_nan_makes_the_mean_nan() -> None:
    assert spread([3.0]).mean == 3.0 and math.isnan(spread([3.0]).std)
    assert math.isnan(spread([3.0, math.nan]).mean)
    assert math.isnan(spread([]).mean)
    over = spreads([dict.fromkeys(METRIC_NAMES, 1.0), dict.fromkeys(METRIC_NAMES, 3.0)])
    assert {(one.mean, round(one.std, 6)) for one in over.values()} == {(2.0, 1.414214)}


def test_values_are_formatted_with_two_decimals() -> None:
    assert [format_value(89.618), format_value(1.0, 0.126), format_value(math.nan, 1.0)] == [
        "89.62",
        "1.00 ± 0.13",
        "-",
    ]
