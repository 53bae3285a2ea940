"""A lower resolution of large scans in a short training on a CPU."""

import pytest
from planning_fakes import CPU, GPU, facts, usual

from graftseg.planning.cost import Target
from graftseg.planning.label_detail import FACTORS
from graftseg.planning.plans import choose
from loops import for_each

LARGE = usual((384, 384, 20), (0.5, 0.5, 3.6))
SMALL = usual((40, 48, 40), (1.0, 1.0, 1.0))


def spacing(scans: list, detail: tuple[float, ...], target: Target = CPU, minutes: float = 5) -> list[float]:
    plan = choose(facts(*scans, label_detail=detail), target, minutes=minutes)
    return list(plan.recipe.data.spacing or ())


@for_each(
    ("detail", "expected"),
    [
        ((0.98, 0.97, 0.96, 0.95, 0.94), [1.0, 1.0]),
        ((0.98, 0.97, 0.89, 0.85, 0.80), [0.75, 0.75]),
        ((0.89, 0.88, 0.87, 0.86, 0.85), [0.5, 0.5]),
        ((), [0.5, 0.5]),
    ],
)
def test_until_a_patch_shows_most_of_a_slice_or_labels_lose_detail(
    detail: tuple[float, ...], expected: list[float]
) -> None:
    assert spacing(LARGE, detail) == pytest.approx(expected)


def test_only_large_scans_on_a_cpu_in_little_time() -> None:
    detail = (0.99,) * len(FACTORS)
    assert spacing(LARGE, detail, GPU) == [0.5, 0.5]
    assert spacing(LARGE, detail, minutes=600) == [0.5, 0.5]
    assert spacing(SMALL, detail) == [1.0, 1.0, 1.0]


def test_the_reason_names_both_resolutions() -> None:
    plan = choose(facts(*LARGE, label_detail=(0.98, 0.97, 0.96, 0.95, 0.94)), CPU, minutes=5)
    reason = plan.choices["data.spacing"].reason
    assert "0.5 x 0.5 mm" in reason and "96%" in reason
    assert "1 x 1 x 3.6 mm" in plan.text
