"""Numbers in a plan are written in full, never in scientific notation."""

import pytest
from planning_fakes import CPU, facts, steps_of, usual

from graftseg.core.errors import Code
from graftseg.planning.cost import GIB, Target
from graftseg.planning.length import check_minutes
from graftseg.planning.plans import choose
from user_errors import user_error


@pytest.mark.parametrize("minutes", [float("inf"), 1e6, float("nan"), 0.0, -1.0])
def test_invalid_minutes(minutes: float) -> None:
    with user_error(Code.OPTION_INVALID, "--minutes", "above 0 and below 1000000"):
        check_minutes(minutes)
    check_minutes(None)
    check_minutes(0.01)


def test_a_plan_has_plain_numbers() -> None:
    """Two hours of steps, and more than a hundred GiB of prepared scans."""
    plan = choose(facts(*usual()), CPU, minutes=150, timer=steps_of(0.25))
    (time,) = (line for line in plan.head if line.startswith("Time: "))
    assert time.startswith("Time: about 2 h 27 min in total: "), time
    large = choose(facts(*usual((512, 512, 300), unlabeled=1000)), Target("cuda", 16 * GIB, "a GPU", False))
    device = next(line for line in large.head if line.startswith("Device: "))
    assert "221 GiB, read from files" in device and "e+" not in plan.text + large.text
