import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from markupsafe import Markup

from graftseg.reporting.svg import Axis, element, format_number, nice_ticks


def test_text_and_attributes_are_escaped_and_markup_is_not() -> None:
    drawn = element("text", "a<b&c", Markup("<i></i>"), class_='x"y', text_anchor="z", dy=None)
    assert drawn == '<text class="x&#34;y" text-anchor="z">a&lt;b&amp;c<i></i></text>'


def test_an_axis_encloses_all_values_or_ends_at_them() -> None:
    axis = Axis.enclosing([0.0, 1.3], 100.0, 0.0)
    assert (axis.ticks, axis.at(0.0), axis.at(1.5)) == ((0.0, 0.5, 1.0, 1.5), 100.0, 0.0)
    axis = Axis.between(3.0, 13.0, 0.0, 50.0, 2)
    assert (axis.ticks, axis.at(3.0), axis.at(13.0)) == ((5.0, 10.0), 0.0, 50.0)
    assert Axis.between(3.0, 3.0, 0.0, 50.0, 2).at(3.0) == 0.0


@settings(deadline=None)
@given(st.floats(-1e6, 1e6), st.floats(0, 1e6), st.integers(2, 8))
def test_ticks_enclose_the_values(low: float, extent: float, count: int) -> None:
    ticks = nice_ticks(low, low + extent, count)
    slack = 1e-8 * (abs(low) + extent + 1)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= low + extent - slack
    assert 2 <= len(ticks) <= count + 3


def test_ticks_are_round() -> None:
    assert nice_ticks(0.0, 1.3, 4) == [0.0, 0.5, 1.0, 1.5]
    assert nice_ticks(0.0, 0.0, 2) == [0.0, 0.5, 1.0]
    assert nice_ticks(0.0, 3e-14, 3) == [0.0, 1e-14, 2e-14, 3e-14]
    assert nice_ticks(0.0, 0.01, 2) == [0.0, 0.005, 0.01]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.12345, "0.123"),
        (-2.0, "−2"),
        (999.4, "999"),
        (-999.7, "−1,000"),
        (12345.0, "12,345"),
        (1.5e-7, "1.5e−7"),
        (2e9, "2e9"),
        (0, "0"),
    ],
)
def test_numbers_are_short(value: float, written: str) -> None:
    assert format_number(value) == written
