"""The remaining time of a run with stages of different costs, predictions between them, and later runs."""

import pytest
from tiny import tiny_recipe

from graftseg.methods.costs import SELF_TRAINING, SUPERVISED
from graftseg.training.clock import (
    Pace,
    RemainingTime,
    StageWork,
    baseline_work,
    position,
    remaining_seconds,
    run_work,
)
from loops import for_each

STAGES = [StageWork(100, cost=3.0), StageWork(50, cost=6.0, before=9.0, pause=3.0, pauses=4)]


@pytest.mark.parametrize(("done", "expected"), [(0, (0, 0)), (100, (0, 100)), (101, (1, 1)), (150, (1, 50))])
def test_the_position_in_the_stages(done: int, expected: tuple[int, int]) -> None:
    assert position(STAGES, done) == expected


@pytest.mark.parametrize(
    ("done", "seconds", "expected"),
    [
        # a forward pass takes 1 s: 60 steps of 3 s, predictions of 9 s, 50 steps of 6 s, and 4 pauses of 3 s
        (40, 3.0, 60 * 3 + 9 + 50 * 6 + 4 * 3),
        # in the second stage: 30 steps of 12 s; step 20 ends with the second of four pauses of 6 s
        (120, 12.0, 30 * 12 + 3 * 6),
        (121, 12.0, 29 * 12 + 2 * 6),
        (149, 6.0, 6),
    ],
)
def test_remaining_seconds(done: int, seconds: float, expected: float) -> None:
    assert remaining_seconds(STAGES, done, Pace(seconds)) == pytest.approx(expected)


def test_gathering_a_batch_takes_longer_if_it_has_more_images() -> None:
    """A step of 2 s has 1 s for a batch of 4 images. In the next stage: 2 s for 8 images, and 1 s x 4 / 3."""
    stages = [StageWork(10, cost=3.0, images=4), StageWork(10, cost=4.0, images=8)]
    assert Pace(2.0, 0.5).step_seconds(*stages) == pytest.approx(2 + 4 / 3)
    assert remaining_seconds(stages, 10, Pace(2.0, 0.5)) == pytest.approx(20 + 40 / 3)


def test_the_pace_is_unknown_at_first_and_after_the_end() -> None:
    times = RemainingTime([StageWork(10)])
    times.begin(0, 1, 50.0)
    assert times.left(1, 50.0) is None
    assert times.left(3, 54.0) == (14.0, 14.0)
    times.leave_out(2.0)
    assert times.left(3, 54.0) == (7.0, 7.0)
    assert times.left(10, 60.0) is None


def test_later_runs_are_added() -> None:
    later = [StageWork(5, cost=4.0), StageWork(1, cost=2.0), StageWork(0, before=7.0)]
    times = RemainingTime([StageWork(10, cost=2.0)], later=later)
    times.begin(0, 0, 0.0)
    assert times.left(4, 4.0) == (6.0, 6.0 + 5 * 2 + 1 + 7 / 2)


class Simulation:
    """A run of two stages with a fake clock: steps of 1 s and 1.8 s, a prediction pass, and four pauses."""

    def __init__(self, first: int, second: int, prediction: float, pause: float) -> None:
        lengths = [1.0] * first + [1.8] * second
        self.ends: list[float] = []
        now = 0.0
        for number, seconds in enumerate(lengths, start=1):
            now += seconds + (prediction if number == first + 1 else 0.0)
            self.ends.append(now)
            if number > first and (number - first) % (second // 5) == 0 and number < first + second:
                now += pause
        self.first, self.pause, self.total = first, pause, now
        self.interval = second // 5

    def errors(self, work: list[StageWork], batch_share: float = 0.0) -> list[float]:
        """Return the relative errors of all estimates after a tenth of the time, with a line every 30 s."""
        times, errors, reported = RemainingTime(work), [], 0.0
        for done, now in enumerate(self.ends, start=1):
            stage = int(done > self.first)
            times.begin(stage, done, now)
            if now - reported >= 30:
                reported, left = now, times.left(done, now, batch_share)
                times.restart(done, now)
                if left is not None and now > self.total / 10:
                    errors.append(left[0] / (self.total - now) - 1)
            if stage and (done - self.first) % self.interval == 0 and done < len(self.ends):
                times.leave_out(self.pause)
        return errors


LENGTHS = [(300, 700), (600, 400), (1200, 800)]


@pytest.mark.parametrize(("first", "second"), LENGTHS)
def test_the_planned_costs_are_exact(first: int, second: int) -> None:
    """A forward pass takes 1/3 s: the prediction pass 180 passes, a pause 45 passes."""
    work = [StageWork(first, 3.0), StageWork(second, 5.4, before=180.0, pause=45.0, pauses=4)]
    errors = Simulation(first, second, prediction=60.0, pause=15.0).errors(work)
    assert len(errors) > 10 and max(map(abs, errors)) < 1e-9


@for_each(("first", "second"), LENGTHS)
@for_each("prediction", [45.0, 60.0, 75.0])
def test_estimates_are_never_off_by_more_than_30_percent(first: int, second: int, prediction: float) -> None:
    """The table has a ratio of 4 : 3, although a step of the second stage takes 1.8 times as long."""
    work = [
        StageWork(first, SUPERVISED),
        StageWork(second, SELF_TRAINING["bcp"], before=180.0, pause=45.0, pauses=4),
    ]
    errors = Simulation(first, second, prediction, pause=15.0).errors(work)
    assert len(errors) > 10 and max(map(abs, errors)) < 0.3


def test_the_old_estimate_was_off_by_more() -> None:
    """Without the costs of later stages, the estimate is too low by half."""
    errors = Simulation(300, 700, prediction=60.0, pause=15.0).errors([StageWork(300), StageWork(700)])
    assert min(errors) < -0.4


def test_the_work_of_a_recipe_and_its_baseline() -> None:
    recipe = tiny_recipe()
    assert run_work(recipe) == [StageWork(4, 3.0, 2), StageWork(5, 4.0, 4)]
    assert baseline_work(recipe) == [StageWork(9, 3.0, 2)]
    stage = {"optimizer": {"name": "adam"}}
    stages = [{"method": "supervised", "steps": 4, **stage}, {"method": "bcp", "steps": 5, **stage}]
    assert baseline_work(tiny_recipe(stages=stages)) == [StageWork(5, 3.0, 2)]


def test_one_slow_interval_changes_the_estimate_little() -> None:
    """Steps of 1 s, then 10 steps of 5 s: the pace is 0.7 * 1 + 0.3 * 5 = 2.2 s, so 80 steps take 176 s."""
    times = RemainingTime([StageWork(100)])
    times.begin(0, 0, 0.0)
    times.restart(10, 10.0)
    left = times.left(20, 60.0)
    assert left is not None and left[0] == left[1] == pytest.approx(176.0)
