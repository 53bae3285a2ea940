"""Mirroring is planned only if no class is on one side."""

from dataclasses import replace

import pytest
from planning_fakes import facts, usual

from graftseg.planning.augmentation import augmentation_choices, mirrored_axes
from graftseg.planning.facts import Facts
from graftseg.planning.frame import choose_frame
from loops import for_each

MIDDLE = ({1: 0.45, 2: 0.55}, {1: 0.56, 2: 0.44}, {1: 0.5, 2: 0.51})


def known(*left_right: dict[int, float], names: tuple[str, ...] = ("background", "a", "b")) -> Facts:
    return replace(facts(*usual()), classes=names, left_right=left_right)


def mirrored(known: Facts) -> tuple[int, ...]:
    return mirrored_axes(known, choose_frame(known))[0]


def test_classes_in_the_middle_are_mirrored_from_left_to_right() -> None:
    assert mirrored(known(*MIDDLE)) == (0,)


@for_each(
    "name",
    ["left lung", "kidney_R", "Right", "hippocampus-lh", "L", "LeftKidney", "LKidney", "kidneyR", "Niere links", "LV"],
)
def test_names_of_one_side(name: str) -> None:
    assert mirrored(known(*MIDDLE, names=("background", "a", name))) == ()


@pytest.mark.parametrize("name", ["liver", "artery", "Lung", "RECTUM", "Larynx", "class 1"])
def test_names_without_a_side(name: str) -> None:
    assert mirrored(known(*MIDDLE, names=("background", "a", name))) == (0,)


def test_a_class_on_one_side_is_not_mirrored() -> None:
    assert mirrored(known({1: 0.3}, {1: 0.35}, {1: 0.32})) == ()
    assert mirrored(known({1: 0.3}, {1: 0.7}, {1: 0.4}, {1: 0.6})) == (0,)


def test_two_classes_in_a_fixed_order_are_not_mirrored() -> None:
    assert mirrored(known({1: 0.45, 2: 0.55}, {1: 0.47, 2: 0.56}, {1: 0.44, 2: 0.54})) == ()


def test_slices_without_a_left_right_axis_and_pictures_are_not_mirrored() -> None:
    sagittal = replace(facts(*usual((20, 256, 240), (6.0, 1.0, 1.0))), left_right=({1: 0.5},))
    assert mirrored(sagittal) == ()
    picture = replace(facts(*usual((256, 240), (1.0, 1.0))), left_right=())
    assert mirrored(picture) == ()


def test_thickness_is_relative_to_the_plane() -> None:
    flat = replace(facts(*usual((100, 100, 60), (1.0, 1.0, 2.0))), left_right=({1: 0.5},))
    choices = augmentation_choices(flat, choose_frame(flat))
    assert choices["batches.warp.thickness"].value == 2.0
    assert choices["batches.augment.rotate"].value == choices["batches.augment.rotate_flip"].value == 0
