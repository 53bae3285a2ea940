"""Durations as text."""

import pytest

from graftseg.core.phrases import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.04, "0.0 s"),
        (59.9, "59.9 s"),
        (60, "1 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (90061, "25 h 1 min"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
