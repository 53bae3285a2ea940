"""The minutes of a plan: requested, recommended and expected. Numbers are never in scientific notation."""

import re
from collections.abc import Sequence
from math import prod

import pytest
from planning_fakes import CPU, facts, steps_of, usual

from graftseg.core.errors import Code
from graftseg.methods.costs import step_cost
from graftseg.planning.cost import GIB, SPEEDS, Target, network_load
from graftseg.planning.draft import StepTimer
from graftseg.planning.facts import PieceCount
from graftseg.planning.length import MIN_USEFUL_STEPS, check_minutes
from graftseg.planning.pace import Pace
from graftseg.planning.plans import choose
from graftseg.planning.resolution import choose_resolution
from graftseg.recipes.recipe import Recipe
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


def machine(slowness: float) -> StepTimer:
    """Return a timer of a machine that is slower than the table of devices by this factor."""

    def seconds(recipe: Recipe) -> float:
        stage, batches = recipe.stages[-1], recipe.batches
        cost = step_cost(stage.method, stage.settings, uses_unlabeled=batches.unlabeled > 0)
        operations = network_load(recipe.network, 1, 2).operations * batches.labeled * prod(batches.patch)
        return slowness * SPEEDS["cpu"].seconds(cost * operations)

    def timer(recipes: Sequence[Recipe]) -> list[float]:
        return [seconds(recipe) for recipe in recipes]

    return timer


@pytest.mark.parametrize("slowness", [0.4, 1.0, 2.5, 8.0])
@pytest.mark.parametrize(("shape", "spacing"), [((384, 384, 20), (0.5, 0.5, 3.6)), ((300, 300, 200), (0.8, 0.8, 0.8))])
def test_the_recommended_minutes_suffice(shape: tuple[int, ...], spacing: tuple[float, ...], slowness: float) -> None:
    """With more minutes, large scans may get a higher resolution, with which a step takes longer."""
    scans = facts(*usual(shape, spacing), label_detail=(0.98, 0.97, 0.96, 0.95, 0.94))
    timer = machine(slowness)
    short = choose(scans, CPU, minutes=0.5, timer=timer)
    warning = next(line for line in short.head if "not for a good network" in line)
    (minutes,) = map(int, re.findall(r"--minutes (\d+)", warning))
    plan = choose(scans, CPU, minutes=minutes, timer=timer)
    assert sum(stage.steps for stage in plan.recipe.stages) >= MIN_USEFUL_STEPS


def test_the_resolution_follows_the_measured_seconds() -> None:
    scans = facts(*usual((384, 384, 20), (0.5, 0.5, 3.6)), label_detail=(0.98, 0.97, 0.96, 0.95, 0.94))
    sides = [choose(scans, CPU, minutes=13, timer=machine(slow)).recipe.data.spacing for slow in (0.05, 1.0, 4.0)]
    assert [side and side[0] for side in sides] == [0.5, 1.0, 1.5]


@pytest.mark.parametrize(("count", "networks"), [(4, 2), (3, 3)])
def test_the_check_of_an_occasional_class_takes_time(count: int, networks: int) -> None:
    """If some of four label maps lack a class, the average is compared, too."""
    pace = Pace(facts(*usual(), pieces=[PieceCount(), PieceCount(count, count)]), CPU, "graft")
    assert pace.times(*choose_resolution(pace, 9)).compared_networks == networks
