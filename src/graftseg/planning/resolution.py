"""The resolution of prepared scans, with the patch and the network for it, and the time for a number of steps."""

from dataclasses import replace

from graftseg.planning.choices import Choice
from graftseg.planning.frame import Frame, choose_frame
from graftseg.planning.label_detail import FACTORS
from graftseg.planning.length import MIN_USEFUL_STEPS, seconds_in
from graftseg.planning.pace import Pace
from graftseg.planning.patches import MIN_COVERED, StepShape, choose_step_shape, covered_fraction

MIN_DETAIL = 0.9
"""Minimum detail of the labels at a lower resolution."""
MIN_FULL_STEPS = 5000
"""If this number of steps fits into the time, the resolution is not reduced."""


def choose_resolution(pace: Pace, minutes: float | None) -> tuple[Frame, StepShape]:
    """Choose the resolution of prepared scans, which is lower for large scans in a short training on a CPU.

    A patch shows only a small part of a large scan, and a short training sees few patches. The resolution is reduced
    until a patch shows most of a scan and enough steps fit into the time, as far as the labels keep their detail.
    """
    facts, target = pace.facts, pace.target

    def expected_steps() -> int:
        return pace.times(frame, shape).round_steps_in(seconds_in(minutes), None)

    frame = choose_frame(facts)
    shape = choose_step_shape(facts, frame, target)
    is_large = covered_fraction(frame, shape.patch) < MIN_COVERED
    if target.kind != "cpu" or not is_large or expected_steps() >= MIN_FULL_STEPS:
        return frame, shape
    sides = " x ".join(f"{side:g}" for side in frame.spacing[: frame.dimensions])
    for factor, detail in zip(FACTORS, facts.label_detail, strict=False):
        is_complete = covered_fraction(frame, shape.patch) >= MIN_COVERED
        if detail < MIN_DETAIL or (is_complete and expected_steps() >= MIN_USEFUL_STEPS):
            break
        frame = choose_frame(facts, factor)
        reason = (
            f"mm; the scans have {sides} mm, but in a short training on a CPU, a network learns more from large parts "
            f"of scans than from details, and the labels keep a Dice of {detail:.0%}"
        )
        spacing = Choice(frame.choices["data.spacing"].value, reason)
        frame = replace(frame, choices=frame.choices | {"data.spacing": spacing})
        shape = choose_step_shape(facts, frame, target)
    return frame, shape


def minutes_for(pace: Pace, steps: int, folds: int | None = None, *, uses_unlabeled: bool = True) -> int:
    """Return the smallest ``--minutes`` with which a plan has this number of steps, with a margin.

    A plan for more minutes may have a higher resolution, with which a step takes longer.
    """
    minutes, needed = 0, 1
    while needed > minutes:
        minutes = needed
        times = pace.times(*choose_resolution(pace, minutes), uses_unlabeled=uses_unlabeled)
        needed = times.minutes_for(steps, folds)
    return minutes
