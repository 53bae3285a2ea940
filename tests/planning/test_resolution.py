"""A lower resolution of large scans in a short training on a CPU."""

from collections.abc import Sequence

import pytest
from planning_fakes import CPU, GPU, facts, usual

from graftseg.data.fingerprint import CaseFingerprint
from graftseg.planning.cost import Target
from graftseg.planning.label_detail import FACTORS
from graftseg.planning.plans import choose
from loops import for_each

FINE = (0.98, 0.97, 0.96, 0.95, 0.94)
LARGE = usual((384, 384, 20), (0.5, 0.5, 3.6))
SMALL = usual((40, 48, 40), (1.0, 1.0, 1.0))


def spacing(
    scans: Sequence[CaseFingerprint], detail: tuple[float, ...], target: Target = CPU, minutes: float = 5
) -> list[float]:
    plan = choose(facts(*scans, label_detail=detail), target, minutes=minutes)
    return [side or 0.0 for side in plan.recipe.data.spacing or ()]


@for_each(
    ("minutes", "detail", "expected"),
    [
        (13, FINE, 1.0),  # a patch shows the complete slice, and 1,500 steps fit
        (5, FINE, 1.5),  # fewer steps would fit at 1 mm
        (5, (0.98, 0.97, 0.89, 0.85, 0.80), 0.75),
        (5, (0.89, 0.88, 0.87, 0.86, 0.85), 0.5),
        (5, (), 0.5),
    ],
)
def test_until_enough_steps_show_most_of_a_slice_or_labels_lose_detail(
    minutes: float, detail: tuple[float, ...], expected: float
) -> None:
    assert spacing(LARGE, detail, minutes=minutes) == pytest.approx([expected] * 2)


def test_only_large_scans_on_a_cpu_in_little_time() -> None:
    detail = (0.99,) * len(FACTORS)
    assert spacing(LARGE, detail, GPU) == [0.5, 0.5]
    assert spacing(LARGE, detail, minutes=600) == [0.5, 0.5]
    assert spacing(SMALL, detail) == [1.0, 1.0, 1.0]


def test_the_reason_names_both_resolutions() -> None:
    plan = choose(facts(*LARGE, label_detail=FINE), CPU, minutes=13)
    reason = plan.choices["data.spacing"].reason
    assert "0.5 x 0.5 mm" in reason and "96%" in reason
    assert "1 x 1 x 3.6 mm" in plan.text
