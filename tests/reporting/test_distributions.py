import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_fakes import Page

from graftseg.reporting.distributions import LEFT, MAX_DOTS, RIGHT, WIDTH, bands, strips

values = st.floats(-1e6, 1e6, allow_subnormal=False)


def circles(drawn: str) -> list[dict[str, str]]:
    return [attributes for tag, attributes in Page(drawn).elements if tag == "circle"]


@given(st.lists(values, min_size=1, max_size=20))
def test_every_case_has_a_dot_within_the_frame(sizes: list[float]) -> None:
    drawn = circles(strips("Spacing, mm", {"labeled": {f"c{n}": v for n, v in enumerate(sizes)}}))
    assert len(drawn) == len(sizes)
    for attributes in drawn:
        assert LEFT <= float(attributes["cx"]) <= WIDTH - RIGHT


def test_positions_by_hand() -> None:
    drawn = strips("Size, ml", {"one": {"a": 0.0, "b": 4.0}, "none": {}})
    assert [attributes["cx"] for attributes in circles(drawn)] == [f"{LEFT:g}", f"{WIDTH - RIGHT:g}"]
    median = next(attributes for tag, attributes in Page(drawn).elements if attributes.get("class") == "median")
    assert float(median["x1"]) == pytest.approx((LEFT + WIDTH - RIGHT) / 2)
    assert "medians: one 2" in drawn
    assert "none" not in drawn


def test_thousands_of_cases_are_thinned_and_keep_their_ends() -> None:
    drawn = strips("Size, ml", {"labeled": {f"c{n:04}": float(n) for n in range(5000)}})
    assert len(circles(drawn)) == MAX_DOTS
    assert "c0000: 0<" in drawn and "c4999: 4,999<" in drawn


def test_names_are_escaped() -> None:
    drawn = strips("<i>", {"<b>": {"<u>": 1.0}})
    assert not {"<i>", "<b>", "<u>"} & {drawn[start : start + 3] for start in range(len(drawn))}


def test_bands_show_the_median_case_and_the_middle_half() -> None:
    curves = np.array([[0.0, 0.0], [1.0, 2.0], [4.0, 4.0]])
    drawn = bands("Intensities", (0.0, 100.0), {"labeled": curves})
    shapes = {
        attributes["class"]: attributes["points"] for tag, attributes in Page(drawn).elements if "points" in attributes
    }
    # quartiles 0.5 and 2.5 at the left end, 1 and 3 at the right one, on an axis from 0 to 3
    points = [tuple(map(float, pair.split(","))) for pair in shapes["area labeled"].split()]
    assert len(points) == 4 and points[0][1] > points[1][1] > points[3][1] > points[2][1]
    line = [tuple(map(float, pair.split(","))) for pair in shapes["line labeled"].split()]
    assert points[0][1] > line[0][1] > points[3][1]
