import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from report_fakes import Page

from graftseg.reporting.curves import Frame, panel, running_mean_width, smooth, split, thin
from graftseg.reporting.run_files import Curve, Stage

# Plot area from x = 52 to 152 and from y = 126 up to 26.
FRAME = Frame(162.0, 148.0, 0.0, 100.0)


def curve(*values: float) -> Curve:
    return Curve(np.arange(float(len(values))), np.array(values))


def lines(html: str) -> dict[str, list[str]]:
    """Return the points of all lines by class."""
    points: dict[str, list[str]] = {}
    for tag, attributes in Page(html).elements:
        if tag == "polyline":
            points.setdefault(attributes["class"], []).append(attributes["points"])
    return points


def test_positions() -> None:
    assert [FRAME.steps.at(step) for step in (0, 50, 100)] == [52, 102, 152]
    assert [FRAME.values(curve(0.0, 1.0)).at(value) for value in (0, 1)] == [126, 26]


def test_panel_draws_the_expected_points() -> None:
    drawn = lines(panel("loss", Curve(np.array([0.0, 50.0, 100.0]), np.array([1.0, 0.5, 0.0])), FRAME))
    assert drawn == {"means": ["52.0,26.0 102.0,76.0 152.0,126.0"]}


def test_few_points_are_all_kept() -> None:
    short = curve(3.0, 1.0, 2.0)
    assert thin(short) is short
    assert smooth(short) is short


@settings(deadline=None)
@given(st.integers(1, 5000), st.integers(0, 4999), st.integers(2, 50))
def test_thinning_keeps_every_spike(length: int, place: int, half: int) -> None:
    values = np.sin(np.arange(length))
    values[place % length] = 9.0
    thinned = thin(Curve(np.arange(float(length)), values), 2 * half)
    assert len(thinned.steps) <= 2 * half
    assert thinned.values.max() == 9.0
    assert (np.diff(thinned.steps) > 0).all()


@pytest.mark.parametrize(("count", "width"), [(1, 1), (7, 1), (8, 2), (39, 9), (40, 10), (200, 10), (400, 20)])
def test_width_of_the_running_mean(count: int, width: int) -> None:
    assert running_mean_width(count) == width


def test_smoothing_takes_means_of_the_last_values() -> None:
    values = np.random.default_rng(0).random(400)
    smoothed = smooth(curve(*values), points=3)
    assert smoothed.steps.tolist() == [0, 200, 399]
    np.testing.assert_allclose(smoothed.values, [values[0], values[181:201].mean(), values[380:].mean()])


def test_the_label_of_a_noisy_curve_is_the_mean_of_its_last_steps() -> None:
    values = [0.0, 1.0] * 50
    stages = (Stage("a", 0, 59), Stage("b", 60, 99))
    assert ("text", "mean of last 10 steps 0.5") in Page(panel("loss", curve(*values), FRAME, stages=stages)).texts
    drawn = lines(panel("loss", curve(*values), FRAME, stages=stages))
    assert [points.split()[-1] for points in drawn["means"]] == ["111.0,76.0", "151.0,76.0"]
    assert [len(points.split()) for points in drawn["extremes"]] == [60, 40]
    assert ("text", "last 1") in Page(panel("rate", curve(*values), FRAME, style="plain")).texts
    assert ("text", "last 1") in Page(panel("dice", curve(*values), FRAME, style="dots")).texts


def test_long_curves_have_a_faint_and_a_strong_line() -> None:
    noise = np.random.default_rng(0).random(2000)
    noise[1234] = 40.0
    drawn = lines(panel("loss", Curve(np.linspace(0, 100, 2000), noise), FRAME))
    assert [len(points.split()) for points in drawn["extremes"]] == [400]
    assert [len(points.split()) for points in drawn["means"]] == [100]
    assert ",26.0" in drawn["extremes"][0]  # the spike reaches the top, 40
    assert ",26.0" not in drawn["means"][0]


def test_no_line_crosses_from_one_stage_into_the_next() -> None:
    stages = (Stage("a", 0, 49), Stage("b", 50, 100))
    parts = split(Curve(np.array([0.0, 49.0, 50.0, 100.0]), np.array([1.0, 1.0, 0.0, 0.0])), stages)
    assert [part.steps.tolist() for part in parts] == [[0, 49], [50, 100]]
    html = panel("loss", curve(*np.linspace(1, 0, 101)), FRAME, stages=stages)
    assert len(lines(html)["means"]) == 2
    assert 'class="border" x1="102"' in html


def test_stage_names_only_where_they_fit() -> None:
    stages = (Stage("a", 0, 49), Stage("a-very-long-name", 50, 100))
    text = Page(panel("loss", curve(1.0, 2.0), FRAME, stages=stages)).texts
    assert ("text", "a") in text
    assert ("text", "a-very-long-name") not in text


def test_dots_mark_each_measurement_and_join_over_stages() -> None:
    stages = (Stage("a", 0, 1), Stage("b", 2, 3))
    html = panel("dice", curve(0.1, 0.2, 0.3), FRAME, stages=stages, style="dots")
    assert html.count("<circle") == 3
    assert len(lines(html)["means"]) == 1


def test_a_single_point_is_visible() -> None:
    assert panel("loss", curve(1.0), FRAME).count("<circle") == 1
