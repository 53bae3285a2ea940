"""Slices or volumes, orientation, spacing and size."""

import pytest
from planning_fakes import case, facts

from graftseg.planning.facts import is_sliced, stacked_axis
from graftseg.planning.frame import choose_frame
from loops import for_each


@for_each(
    ("codes", "shape", "spacing", "dimensions", "reason", "orientation"),
    [
        ("RA", (20, 20), (1.0, 1.0), 2, "the scans are 2-D", "RAS"),
        ("RAS", (20, 18, 16), (1.0, 1.0, 3.0), 3, "only 3.0 times as long as wide", "RAS"),
        ("RAS", (20, 20, 16), (1.0, 1.0, 4.0), 2, "4.0 times the pixel spacing", "RAS"),
        ("PIL", (20, 20, 16), (1.0, 1.0, 4.0), 2, "4.0 times the pixel spacing", "ASR"),
        ("LIP", (20, 20, 4), (1.0, 1.0, 4.0), 2, "4.0 times the pixel spacing", "RSA"),
        ("LPS", (9, 20, 20), (1.0, 1.0, 1.0), 2, "has 9 slices, too few", "ASR"),
        ("RAS", (9, 9, 9), (1.0, 1.0, 1.0), 2, "has 9 slices, too few", "RAS"),
        ("RAS", (20, 40, 40), (2.0, 1.0, 1.0), 3, "volumes", "ASR"),
    ],
)
def test_slices_or_volumes(
    codes: str, shape: tuple[int, ...], spacing: tuple[float, ...], dimensions: int, reason: str, orientation: str
) -> None:
    frame = choose_frame(facts(case(shape, spacing, orientation=codes)))
    assert frame.dimensions == dimensions
    assert reason in frame.choices["data.dimensions"].reason
    assert frame.choices["data.orientation"].value == orientation


def test_most_volumes_decide() -> None:
    axial = case((20, 20, 8), (1.0, 1.0, 5.0))
    sagittal = [case((20, 20, 8), (1.0, 1.0, 5.0), orientation="ASR") for _ in range(2)]
    assert choose_frame(facts(axial, *sagittal)).orientation == "ASR"


def test_spacing_and_size_are_medians_in_the_common_orientation() -> None:
    """Axes are compared by their direction, not by their order in the file."""
    scans = [
        case((100, 80, 60), (1.0, 1.0, 2.0)),
        case((60, 80, 100), (2.0, 1.0, 1.0), "unlabeled", orientation="SAR"),
        case((50, 80, 60), (3.0, 1.5, 2.0), "unlabeled"),
    ]
    frame = choose_frame(facts(*scans))
    assert frame.spacing == (1.0, 1.0, 2.0)
    assert frame.size == (100, 80, 60)
    assert frame.voxels == 2 * 100 * 80 * 60 + 150 * 120 * 60
    assert "1 to 3, 1 to 1.5, 2 to 2" in frame.choices["data.spacing"].reason


def test_slices_are_not_resampled_across() -> None:
    scans = [
        case((64, 64, 10), (1.0, 1.0, 8.0)),
        case((64, 64, 20), (2.0, 2.0, 8.0)),
        case((64, 64, 12), (2.0, 2.0, 9.0)),
    ]
    frame = choose_frame(facts(*scans))
    assert frame.choices["data.spacing"].value == [2.0, 2.0]
    assert "distance between slices is kept" in frame.choices["data.spacing"].reason
    assert frame.size == (64, 64, 12) and frame.image_size == (64, 64) and frame.is_stacked


def test_equal_spacings_are_kept() -> None:
    frame = choose_frame(facts(*[case((64, 64, 64), (0.48828125, 0.48828125, 0.5)) for _ in range(3)]))
    assert frame.spacing == (0.4883, 0.4883, 0.5) and frame.size == (64, 64, 64)
    assert "within 1 %" in frame.choices["data.spacing"].reason


@pytest.mark.parametrize("slack", [-1e-7, 0.0, 1e-7])
def test_rounding_does_not_decide_between_slices_and_volumes(slack: float) -> None:
    """Spacings from an oblique affine differ in the last digits."""
    spacing = (1.0, 1.0, 3.0 + slack)
    assert not is_sliced([(64, 64, 40)], [spacing])
    assert is_sliced([(64, 64, 40)], [(1.0, 1.0, 3.01)])
    assert stacked_axis((20, 64, 40), spacing) == 0
