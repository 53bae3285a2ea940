from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from graftseg.data.intensity import IntensitySettings, normalize
from loops import for_each

RULES = [
    IntensitySettings(),
    IntensitySettings(rule="minmax"),
    IntensitySettings(rule="percentile"),
    IntensitySettings(rule="window", low=-100, high=300),
]


def test_zscore() -> None:
    array = np.array([[[2, 4], [4, 6]], [[10, 10], [30, 30]]], dtype=np.int16)
    root = float(np.sqrt(2))
    expected = np.array([[[-root, 0], [0, root]], [[-1, -1], [1, 1]]], dtype=np.float32)
    result = normalize(array, IntensitySettings())
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_minmax() -> None:
    result = normalize(np.array([[[-50, 0], [50, 150]]]), IntensitySettings(rule="minmax"))
    np.testing.assert_array_equal(result, np.array([[[0, 0.25], [0.5, 1]]], dtype=np.float32))


def test_percentile() -> None:
    array = np.arange(101, dtype=np.float32)[None]
    result = normalize(array, IntensitySettings(rule="percentile", low=10, high=90))
    np.testing.assert_allclose(result[0, [0, 10, 30, 50, 90, 100]], [0, 0, 0.25, 0.5, 1, 1], rtol=1e-6)


def test_equal_percentiles_use_the_whole_range() -> None:
    array = np.zeros((1, 1000), dtype=np.float32)
    array[0, 0] = 8
    result = normalize(array, IntensitySettings(rule="percentile"))
    assert result[0, 0] == 1
    assert result[0, 1:].max() == 0


def test_window() -> None:
    array = np.array([[-1000, -100, 0, 300, 2000]], dtype=np.int16)
    result = normalize(array, IntensitySettings(rule="window", low=-100, high=300))
    np.testing.assert_array_equal(result, np.array([[0, 0, 0.25, 1, 1]], dtype=np.float32))


def test_window_zscore() -> None:
    array = np.array([[-1000, -100, 0, 300, 2000]], dtype=np.int16)
    result = normalize(array, IntensitySettings(rule="window-zscore", low=-100, high=300, mean=100, std=50))
    np.testing.assert_array_equal(result, np.array([[-4, -4, -2, 4, 4]], dtype=np.float32))


def test_settings_of_other_rules_omit_mean_and_std() -> None:
    """Stores record their settings. A setting that only one rule uses must not outdate stores with other rules."""
    assert IntensitySettings().model_dump(mode="json") == {"rule": "zscore", "low": 0.5, "high": 99.5}
    fixed = IntensitySettings(rule="window-zscore", low=-100, high=300, mean=100, std=50)
    assert fixed.model_dump(mode="json") == {
        "rule": "window-zscore",
        "low": -100,
        "high": 300,
        "mean": 100,
        "std": 50,
    }
    assert IntensitySettings.model_validate(fixed.model_dump(mode="json")) == fixed


def test_none_keeps_the_values() -> None:
    array = np.array([[-1024, 3071]], dtype=np.int16)
    np.testing.assert_array_equal(normalize(array, IntensitySettings(rule="none")), array)


def test_the_input_is_unchanged() -> None:
    array = np.arange(8, dtype=np.float32).reshape(1, 2, 4)
    before = array.copy()
    for rule in RULES:
        normalize(array, rule)
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("rule", RULES[:3], ids=lambda rule: str(rule.rule))
@pytest.mark.parametrize("value", [0.0, 0.1, -1024.0, 3e7])
def test_a_constant_image_gives_zeros(rule: IntensitySettings, value: float) -> None:
    array = np.full((1, 3, 5, 7), value, dtype=np.float32)
    np.testing.assert_array_equal(normalize(array, rule), np.zeros_like(array))


@settings(deadline=None, max_examples=60)
@given(values=st.lists(st.integers(-3000, 3000), min_size=2, max_size=30), rule=st.sampled_from(RULES))
def test_results_are_finite_and_ordered_like_the_input(values: list[int], rule: IntensitySettings) -> None:
    result = normalize(np.array([values], dtype=np.int16), rule)[0]
    assert np.isfinite(result).all()
    assert (np.diff(result[np.argsort(values, kind="stable")]) >= 0).all()
    if rule.rule != "zscore":
        assert result.min() >= 0
        assert result.max() <= 1


@for_each(
    ("content", "keyword"),
    [
        ({"rule": "window"}, "needs both low and high"),
        ({"rule": "window", "low": 5, "high": 5}, "low .5. must be below high .5."),
        ({"rule": "percentile", "low": 60, "high": 40}, "must be below"),
        ({"rule": "percentile", "low": -1}, "0 to 100"),
        ({"rule": "percentile", "high": 100.5}, "0 to 100"),
        ({"rule": "zscore", "low": 3}, "low and high"),
        ({"rule": "zscore", "mean": 3}, "mean and std"),
        ({"rule": "window-zscore", "low": 0, "high": 5, "mean": 1}, "window-zscore needs mean and std"),
        ({"rule": "window-zscore", "mean": 0, "std": 5}, "window-zscore needs both low and high"),
        ({"rule": "window-zscore", "low": 0, "high": 5, "mean": 1, "std": 0}, "greater than 0"),
        ({"rule": "median"}, "zscore"),
        ({"rulle": "none"}, "rulle"),
    ],
)
def test_invalid_settings_are_refused(content: dict[str, Any], keyword: str) -> None:
    with pytest.raises(ValidationError, match=keyword):
        IntensitySettings.model_validate(content)


def test_written_settings_read_back() -> None:
    for rule in RULES:
        assert IntensitySettings.model_validate(rule.model_dump(mode="json")) == rule
