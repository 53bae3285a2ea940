"""Times in a plan are plain numbers, and so is the memory."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planning_fakes import CPU, facts, usual

from graftseg.core.errors import UserError
from graftseg.planning import Target, choose
from graftseg.planning.durations import refuse_minutes, requested_minutes, spoken
from graftseg.planning.target import GIB


@pytest.mark.parametrize(
    ("minutes", "words"),
    [
        (0.0, "1 second"),
        (1 / 60, "1 second"),
        (0.5, "30 seconds"),
        (0.995, "1 minute"),
        (1.04, "1 minute"),
        (1.06, "1.1 minutes"),
        (7.32, "7.3 minutes"),
        (9.96, "10 minutes"),
        (13.6, "14 minutes"),
        (119.4, "119 minutes"),
        (119.6, "2 hours"),
        (123.2, "2 hours 3 minutes"),
        (181.0, "3 hours 1 minute"),
        (6000.0, "100 hours"),
    ],
)
def test_durations(minutes: float, words: str) -> None:
    assert spoken(minutes) == words


@given(st.floats(0, 1e6))
def test_no_duration_is_a_power_of_ten(minutes: float) -> None:
    parts = re.fullmatch(r"(?:(\d+) hours?)? ?(?:(\d+(?:\.\d)?) minutes?)?|(\d+) seconds?", spoken(minutes))
    assert parts is not None
    hours, rest, seconds = (float(part or 0) for part in parts.groups())
    assert 60 * hours + rest + seconds / 60 == pytest.approx(minutes, abs=0.51)


def test_what_was_asked_for() -> None:
    assert requested_minutes(1) == "1 minute that was asked for"
    assert requested_minutes(0.5) == "0.5 minutes that were asked for"


@pytest.mark.parametrize("minutes", [float("inf"), 1e6, float("nan"), 0.0, -1.0])
def test_no_time(minutes: float) -> None:
    with pytest.raises(UserError, match="give minutes above 0 and below 1000000"):
        refuse_minutes(minutes)
    refuse_minutes(None)
    refuse_minutes(0.01)


def test_a_plan_has_plain_numbers() -> None:
    """Two hours of steps, and more than a hundred GiB of scans and of what a step takes."""
    plan = choose(facts(*usual()), CPU, minutes=150, timed=lambda recipe: 0.25)
    (time,) = (line for line in plan.head if line.startswith("Time: "))
    assert time.startswith("Time: about 2 hours 29 minutes in all: "), time
    large = choose(facts(*usual((512, 512, 300), unlabeled=1000)), Target("cuda", 16 * GIB, "a GPU", False))
    device = next(line for line in large.head if line.startswith("Device: "))
    assert "the prepared scans 221 GiB in files" in device and "e+" not in plan.text + large.text
